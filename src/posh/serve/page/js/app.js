// The page: choose a collection, search, view the results. The address holds the query; everything is shown from it.

import * as address from "./address.js";
import { answer } from "./answer.js";
import * as api from "./api.js";
import * as controls from "./controls.js";
import { showDetails } from "./details.js";
import * as filters from "./filters.js";
import { wireImport } from "./importing.js";
import { makeMap } from "./map.js";
import { makePad } from "./pad.js";
import { element } from "./pictures.js";
import { placeOf, makeQuery, queryLine, search } from "./query.js";
import { column, markBoth } from "./results.js";
import { describeBox, fillBox, findItem, interpret, keepBreaks } from "./searchbox.js";
import { milliseconds } from "./scores.js";
import { examples, noCollections, welcome } from "./welcome.js";

const PAGE = 48;
const byId = (id) => document.getElementById(id);
const EXAMPLES = 12;
const state = { all: [], asked: {}, place: null, shown: new Set(), after: undefined, running: null };

api.onTokenNeeded(askToken);
const pad = makePad(byId("pad"), searchByDrawing);
const map = makeMap(byId("map"), (id) => navigate({ like: id }));
wire();
await guard(start);

async function start() {
  await reload();
  await show(address.read(), { restore: true });
  controls.bound(await api.limits());
}

async function reload() {
  state.all = await api.collections();
  controls.options("collection", state.all.map((one) => [one.name, one.metadata.title ?? one.name]));
}

function wire() {
  addEventListener("popstate", () => guard(() => show(address.read(), { restore: true })));
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the part of the address after # is taken
    byId("results").focus();
  });
  byId("collection").addEventListener("change", (event) => guard(() => go({ collection: event.target.value, view: state.asked.view })));
  byId("clear").addEventListener("click", () => {
    pad.clear();
    if (state.asked.drawing) navigate({});
  });
  byId("more").addEventListener("click", () => guard(browse));
  byId("search").addEventListener("submit", (event) =>
    submitForm(event, async () => go({ ...withoutQuery(state.asked), ...(await interpret(byId("query").value, state.place.collection)) })),
  );
  keepBreaks(byId("query"));
  byId("field").addEventListener("change", filters.fieldChosen);
  byId("add-condition").addEventListener("submit", (event) =>
    submitForm(event, () => applyFilter([...filters.split(state.asked.filter), filters.readCondition()])),
  );
  byId("controls").addEventListener("change", (event) =>
    guard(() => {
      const text = byId("filter").value.trim();
      if (event.target.id === "filter") return applyFilter(text ? filters.split(filters.parse(text)) : []);
      return go({ ...state.asked, ...controls.readOptions() });
    }),
  );
  byId("views").addEventListener("click", ({ target }) => {
    if (target.dataset.view) guard(() => go({ ...state.asked, view: target.dataset.view }));
  });
  wireImport(() => state.all, async (name) => {
    await reload();
    state.place = null; // what is shown of it may be older
    await guard(() => go({ collection: name }));
  });
}

/** Show another query, and add it to the browser's history. */
function go(asked, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", address.write(asked));
  return show(asked, { restore: false });
}

/** Show another query with the same options. */
function navigate(query, how) {
  return guard(() => go({ ...withoutQuery(state.asked), ...query }, how));
}

/** Return the collection and the options of `asked`. */
function withoutQuery({ like, home, text, vector, drawing, ...options }) {
  return options;
}

function applyFilter(conditions) {
  return go({ ...state.asked, filter: filters.join(conditions) });
}

/** Show the query of the address. `restore` redraws a drawing that the address holds. */
async function show(asked, { restore }) {
  byId("search").hidden = byId("choices").hidden = byId("about-title").hidden = !state.all.length;
  if (!state.all.length) return inviteImport();
  const found = state.all.find((one) => one.name === asked.collection);
  if (asked.collection && !found) throw new api.Problem(404, `There is no collection “${asked.collection}” here.`);
  const collection = found ?? state.all[0];
  state.asked = { ...asked, collection: collection.name };
  state.running?.abort();
  const opened = state.place?.collection !== collection;
  if (opened) open(collection);
  controls.put(state.asked);
  const conditions = filters.split(state.asked.filter);
  filters.chips(conditions, (i) => guard(() => applyFilter(conditions.filter((_, at) => at !== i))));
  if (restore || !asked.drawing) restorePad(asked.drawing, collection.metadata.image);
  fillBox(state.asked);
  if (address.hasQuery(asked)) await run();
  else await invite();
  map.show(state.place);
}

function restorePad(drawing, shape) {
  pad.clear();
  if (!drawing || !shape) return;
  pad.show(drawing, shape);
}

function open(collection) {
  state.place = placeOf(collection, (place) => place === state.place && filters.offer(place.summary));
  byId("collection").value = collection.name;
  document.title = `${collection.metadata.title ?? collection.name} · POSH`;
  controls.offer(collection, state.all);
  describeBox(state.place);
  pad.clear();
}

/** Show the start: the service's examples, or the first items that pass the filter. */
async function invite() {
  const { place, asked } = state;
  await place.known;
  const ids = asked.filter ? [] : place.summary.examples;
  const items = ids.length
    ? (await api.get(place.collection.name, { ids, include: ["payload", "vector"] })).items.filter(Boolean)
    : await nextItems(undefined);
  if (asked !== state.asked) return;
  clear();
  if (ids.length) state.after = undefined;
  state.shown = new Set();
  const first = unseen(items).slice(0, EXAMPLES);
  byId("results-title").textContent = place.metadata.title ?? place.collection.name;
  byId("welcome").replaceChildren(...welcome(place, first, acts(place), (text) => navigate({ text })));
  byId("welcome").hidden = false;
  byId("more").hidden = first.length < EXAMPLES || place.collection.count <= EXAMPLES;
  map.light(null, []);
}

/** Show the start of a service without collections. */
function inviteImport() {
  clear();
  byId("results-title").textContent = "Nothing to search yet";
  byId("welcome").replaceChildren(...noCollections(() => byId("open-import").click()));
  byId("welcome").hidden = false;
}

/** Show the next page of items under the examples. */
async function browse() {
  const { place, asked } = state;
  const items = await nextItems(state.after);
  if (asked !== state.asked) return;
  byId("welcome").querySelector("ul").append(...examples(place, unseen(items), acts(place)));
  byId("more").hidden = state.after === null;
}

/** Fetch the items after a place in their order, which `state.after` then is: null at the end. */
async function nextItems(after) {
  const { place, asked } = state;
  if (!place.collection.has_items) return [];
  const page = await api.items(place.collection.name, { limit: PAGE, include: ["payload", "vector"], filter: asked.filter, after });
  if (asked === state.asked) state.after = page.next;
  return page.items;
}

/** Return the items that are not shown yet, and remember them as shown. */
function unseen(items) {
  return items.filter(({ id }) => !state.shown.has(id) && state.shown.add(id));
}

function acts(place, found) {
  if (!place.collection.has_items) return {};
  const home = place === state.place ? undefined : place.collection.name;
  const choose = (item) => navigate({ like: item.id, home });
  return { choose, detail: (item) => showDetails(item, place, found, choose) };
}

function clear() {
  for (const id of ["columns", "welcome"]) byId(id).replaceChildren();
  for (const id of ["asked", "welcome", "views", "more"]) byId(id).hidden = true;
  for (const id of ["status", "results-title"]) byId(id).textContent = "";
}

async function run() {
  const running = (state.running = new AbortController());
  const { asked, place } = state;
  const other = state.all.find((one) => one.name === asked.compare && one !== place.collection && (!asked.text || one.text));
  const sides = [place, ...(other ? [placeOf(other)] : [])];
  const home = state.all.find((one) => one.name === asked.home);
  const query = await makeQuery(asked, home ? placeOf(home) : place, running.signal);
  const found = await Promise.all(sides.map((side) => search(side, asked, query, running.signal)));
  const [toItem] = await Promise.all([linkToItem(query, place), ...sides.map((side) => side.known)]);
  if (running !== state.running || place !== state.place) return;
  const both = other ? `, ${markBoth(...found)} of them found by both` : "";
  clear();
  byId("results-title").textContent = answer(query, found[0], place);
  byId("asked").replaceChildren(...queryLine(query, place, found[0], toItem));
  byId("asked").hidden = !byId("asked").children.length;
  byId("columns").replaceChildren(...sides.map((side, i) => column(side, found[i], query, asked.view, acts(side, found[i]))));
  byId("views").hidden = false;
  const count = `${found[0].hits.length} ${query.text ? "items" : "neighbours"}${both}`;
  byId("status").textContent = `${count}. ${milliseconds(found[0].seconds)} in the service.`;
  map.light(query, found[0].hits);
}

/** Build a button to the item whose id is what was searched as words, if there is one. */
async function linkToItem({ text }, { collection }) {
  const item = text ? await findItem(text, collection).catch(() => null) : null;
  if (!item) return null;
  const button = element("button", { type: "button" }, `Neighbours of the item ${item.id}`);
  button.addEventListener("click", () => navigate({ like: item.id }));
  return button;
}

/** Search for a drawing in place of the previous one: Back does not lead through all strokes. */
function searchByDrawing() {
  if (!pad.isEmpty()) navigate({ drawing: pad.greys(state.place.metadata.image) }, { replace: Boolean(state.asked.drawing) });
}

function submitForm(event, action) {
  event.preventDefault();
  guard(action);
}

/** Run an action; if it fails, show the problem instead of the previous results. */
async function guard(action) {
  const place = byId("problem");
  place.hidden = true;
  try {
    await action();
  } catch (error) {
    if (error.name === "AbortError") return;
    clear();
    place.textContent = error.message;
    place.hidden = false;
    if (!(error instanceof api.Problem)) throw error;
  }
}

function askToken(message) {
  const dialog = byId("ask-token");
  byId("token-problem").textContent = message;
  byId("token").value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(byId("token").value || null), { once: true });
  });
}
