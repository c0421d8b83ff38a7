// The page: choose a collection, search, view the results. The address holds the query; everything is shown from it.

import * as address from "./address.js";
import * as api from "./api.js";
import * as controls from "./controls.js";
import { showDetails } from "./details.js";
import * as filters from "./filters.js";
import { wireImport } from "./importing.js";
import { makeMap } from "./map.js";
import { makePad } from "./pad.js";
import { element } from "./pictures.js";
import { placeOf, makeQuery, queryLine, search } from "./query.js";
import { card, column, markBoth } from "./results.js";
import { welcome } from "./welcome.js";

const PAGE = 48;
const byId = (id) => document.getElementById(id);
const state = { all: [], asked: {}, place: null, ready: null, items: [], after: undefined, running: null };

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
  if (!state.all.length) throw new api.Problem(0, "There are no collections yet. “Import…” creates one from a file; “make serve” creates samples.");
}

function wire() {
  addEventListener("popstate", () => guard(() => show(address.read(), { restore: true })));
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the part of the address after # is taken
    byId("results").focus();
  });
  byId("collection").addEventListener("change", (event) => guard(() => go({ collection: event.target.value, view: state.asked.view })));
  for (const tab of document.querySelectorAll('[role="tab"]')) tab.addEventListener("click", () => controls.choose(tab));
  controls.walkTabs(byId("ways"), controls.choose);
  byId("clear").addEventListener("click", () => {
    pad.clear();
    if (state.asked.drawing) navigate({});
  });
  byId("more").addEventListener("click", () => guard(browse));
  byId("way-text").addEventListener("submit", (event) => submitForm(event, () => navigate({ text: byId("text").value.trim() || undefined })));
  byId("way-name").addEventListener("submit", (event) => submitForm(event, searchByName));
  byId("way-paste").addEventListener("submit", (event) => submitForm(event, searchByVector));
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
function navigate({ like, home, text, vector, drawing }, how) {
  return guard(() => go({ ...state.asked, like, home, text, vector, drawing }, how));
}

function applyFilter(conditions) {
  return go({ ...state.asked, filter: filters.join(conditions) });
}

/** Show the query of the address. `restore` redraws a drawing that the address holds. */
async function show(asked, { restore }) {
  const found = state.all.find((one) => one.name === asked.collection);
  if (asked.collection && !found) throw new api.Problem(404, `There is no collection “${asked.collection}” here.`);
  const collection = found ?? state.all[0];
  const before = state.asked;
  state.asked = { ...asked, collection: collection.name };
  state.running?.abort();
  const opened = state.place?.collection !== collection;
  if (opened) open(collection);
  controls.put(state.asked);
  const conditions = filters.split(state.asked.filter);
  filters.chips(conditions, (i) => guard(() => applyFilter(conditions.filter((_, at) => at !== i))));
  if (opened || JSON.stringify(before.filter) !== JSON.stringify(asked.filter)) {
    state.ready = firstItems();
    state.ready.catch(() => {}); // a search with this filter has the same problem
  }
  if (restore) restorePad(asked.drawing, collection.metadata.image);
  if (restore && asked.text && collection.text) controls.choose(byId("tab-text"));
  if (address.hasQuery(asked)) await run();
  else await invite();
  map.show(state.place);
}

function restorePad(drawing, shape) {
  pad.clear();
  if (!drawing || !shape) return;
  pad.show(drawing, shape);
  controls.choose(byId("tab-draw"));
}

function open(collection) {
  state.place = placeOf(collection, (place) => place === state.place && filters.offer(place.summary));
  byId("collection").value = collection.name;
  document.title = `${collection.metadata.title ?? collection.name} · POSH`;
  controls.offer(collection, state.all);
  controls.choose(byId(firstWay(collection)));
}

function firstWay({ has_items: has, metadata }) {
  if (!byId("tab-text").hidden) return "tab-text";
  if (!byId("tab-draw").hidden) return "tab-draw";
  if (!has) return "tab-paste";
  return metadata.name ? "tab-name" : "tab-browse";
}

async function firstItems() {
  [state.items, state.after] = [[], undefined];
  byId("items").replaceChildren();
  if (state.place.collection.has_items) await browse();
}

async function browse() {
  const { place, asked } = state;
  const include = place.metadata.image ? ["payload", "vector"] : ["payload"];
  const body = { limit: PAGE, include, filter: asked.filter, after: state.after };
  const [page] = await Promise.all([api.items(place.collection.name, body), place.known]);
  if (place !== state.place || asked.filter !== state.asked.filter) return;
  state.after = page.next ?? undefined;
  byId("more").hidden = page.next === null;
  state.items.push(...page.items);
  byId("items").append(...page.items.map((item) => element("li", {}, card({ ...item, payload: brief(item, place) }, place, acts(place)))));
}

/** Fields that the name of an item needs: the list to browse is narrow. */
function brief({ payload = {} }, { summary, metadata }) {
  const names = [summary?.title, metadata.name, metadata.label?.field];
  return Object.fromEntries(Object.entries(payload).filter(([name]) => names.includes(name)));
}

function acts(place, found) {
  if (!place.collection.has_items) return {};
  const home = place === state.place ? undefined : place.collection.name;
  return {
    choose: (item) => navigate({ like: item.id, home }),
    detail: (item) => showDetails(item, place, found),
  };
}

async function invite() {
  const { place, asked } = state;
  const items = await examples(place, asked.filter);
  if (asked !== state.asked) return;
  clear();
  byId("results-title").textContent = "Start here";
  byId("welcome").replaceChildren(...welcome(place, items, acts(place)));
  byId("welcome").hidden = false;
  map.light(null, []);
}

/** Fetch items to start from: the service's examples, or the first that pass the filter. */
async function examples(place, filter) {
  await place.known;
  if (filter || !place.summary.examples.length) {
    await state.ready;
    return state.items;
  }
  const { items } = await api.get(place.collection.name, { ids: place.summary.examples, include: ["payload", "vector"] });
  return items.filter(Boolean);
}

function clear() {
  for (const id of ["columns", "welcome"]) byId(id).replaceChildren();
  for (const id of ["asked", "welcome", "views"]) byId(id).hidden = true;
  byId("status").textContent = "";
}

async function run() {
  const running = (state.running = new AbortController());
  const { asked, place } = state;
  const other = state.all.find((one) => one.name === asked.compare && one !== place.collection && (!asked.text || one.text));
  const sides = [place, ...(other ? [placeOf(other)] : [])];
  const home = state.all.find((one) => one.name === asked.home);
  const query = await makeQuery(asked, home ? placeOf(home) : place, running.signal);
  const found = await Promise.all(sides.map((side) => search(side, asked, query, running.signal)));
  await Promise.all(sides.map((side) => side.known));
  if (running !== state.running || place !== state.place) return;
  const both = other ? `, ${markBoth(...found)} of them found by both` : "";
  clear();
  byId("results-title").textContent = query.text ? "Found" : "Neighbours";
  byId("asked").replaceChildren(...queryLine(query, place, found[0]));
  byId("asked").hidden = false;
  byId("columns").replaceChildren(...sides.map((side, i) => column(side, found[i], query, asked.view, acts(side, found[i]))));
  byId("views").hidden = false;
  byId("status").textContent = `${found[0].hits.length} ${query.text ? "items" : "neighbours"}${both}.`;
  map.light(query, found[0].hits);
}

async function searchByName() {
  const text = byId("name").value.trim();
  const number = /^-?\d+$/.test(text) ? Number(text) : NaN;
  const ids = Number.isSafeInteger(number) ? [number, text] : [text];
  const { items } = await api.get(state.place.collection.name, { ids, include: [] });
  const item = items.find(Boolean);
  if (!item) throw new api.Problem(404, `There is no item “${text}” in this collection.`);
  await navigate({ like: item.id });
}

function searchByVector() {
  return navigate({ vector: controls.numbers(byId("vector").value, state.place.collection.n_features) });
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
