// The page: pick a collection, ask, look.

import * as api from "./api.js";
import * as controls from "./controls.js";
import { makePad } from "./pad.js";
import { element, image, nameOf } from "./pictures.js";
import { column, common, showQuery } from "./results.js";

const PAGE = 48;
const byId = (id) => document.getElementById(id);
const state = { all: [], collection: null, query: null, after: undefined, running: null };

api.onTokenNeeded(askToken);
const pad = makePad(byId("pad"), drawn);
wire();
await start();

async function start() {
  await guarded(async () => {
    state.all = await api.collections();
    if (!state.all.length) throw new api.Problem(0, "There are no collections yet. “make serve” makes some.");
    controls.options("collection", state.all.map((one) => [one.name, one.metadata.title ?? one.name]));
    const wanted = new URLSearchParams(location.search).get("collection");
    const first = state.all.find((one) => one.name === wanted) ?? state.all[0];
    byId("collection").value = first.name;
    await open(first);
  });
}

function wire() {
  byId("collection").addEventListener("change", (event) =>
    guarded(() => open(state.all.find((one) => one.name === event.target.value))),
  );
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  for (const tab of tabs) tab.addEventListener("click", () => controls.choose(tab));
  controls.walkTabs(byId("ways"), controls.choose);
  byId("clear").addEventListener("click", () => pad.clear());
  byId("more").addEventListener("click", () => guarded(browse));
  byId("way-name").addEventListener("submit", (event) => submitted(event, named));
  byId("way-paste").addEventListener("submit", (event) => submitted(event, pasted));
  byId("controls").addEventListener("change", (event) =>
    guarded(async () => {
      if (["label", "filter"].includes(event.target.id)) await firstItems();
      await run();
    }),
  );
}

async function open(collection) {
  state.collection = collection;
  state.query = null;
  byId("columns").replaceChildren();
  byId("asked").hidden = true;
  byId("status").textContent = "";
  controls.offer(collection, state.all);
  byId("tab-draw").hidden = !collection.metadata.image || collection.metadata.drawable === false;
  controls.choose(byId(byId("tab-draw").hidden ? (collection.metadata.name ? "tab-name" : "tab-browse") : "tab-draw"));
  const address = new URL(location);
  address.searchParams.set("collection", collection.name);
  history.replaceState(null, "", address);
  await firstItems();
}

async function firstItems() {
  byId("items").replaceChildren();
  state.after = undefined;
  await browse();
}

async function browse() {
  const { collection } = state;
  const include = collection.metadata.image ? ["payload", "vector"] : ["payload"];
  const filter = controls.filter(collection);
  const page = await api.items(collection.name, { limit: PAGE, include, filter, after: state.after });
  if (collection !== state.collection) return;
  state.after = page.next ?? undefined;
  byId("more").hidden = page.next === null;
  byId("items").append(...page.items.map(card));
}

function card(item) {
  const { metadata } = state.collection;
  const picture = image(item.vector, metadata, `Item ${item.id}`);
  const name = element("span", { class: "name" }, nameOf(item, metadata));
  const button = element("button", { class: "card", type: "button" }, ...(picture ? [picture, name] : [name]));
  button.addEventListener("click", () => guarded(() => chosen(item, state.collection)));
  return element("li", {}, button);
}

/** Ask for the neighbours of an item of a collection, which may be the one that is compared with. */
async function chosen(item, collection) {
  const whole = item.vector ? item : await stored(collection, [item.id]);
  const { metadata } = collection;
  const name = `Item ${whole.id}${nameOf(whole, metadata) === String(whole.id) ? "" : `: ${nameOf(whole, metadata)}`}`;
  const label = whole.payload?.[metadata.label?.field];
  await ask({ id: whole.id, home: collection.name, vector: whole.vector, name, label });
}

async function stored(collection, ids) {
  const { items } = await api.get(collection.name, { ids, include: ["payload", "vector"] });
  const item = items.find(Boolean);
  if (!item) throw new api.Problem(404, `There is no item “${ids.at(-1)}” in this collection.`);
  return item;
}

async function named() {
  const text = byId("name").value.trim();
  const number = /^-?\d+$/.test(text) ? Number(text) : NaN;
  const ids = Number.isSafeInteger(number) ? [number, text] : [text];
  await chosen(await stored(state.collection, ids), state.collection);
}

function pasted() {
  const vector = controls.numbers(byId("vector").value, state.collection.n_features);
  return ask({ vector, name: "Your vector" });
}

function drawn() {
  if (!pad.isEmpty()) guarded(() => ask({ vector: pad.vector(state.collection.metadata.image), name: "Your drawing" }));
}

async function ask(query) {
  state.query = query;
  await run();
}

async function run() {
  const { query, collection } = state;
  if (!query) return;
  state.running?.abort();
  const running = (state.running = new AbortController());
  const other = state.all.find((one) => one.name === byId("compare").value);
  const sides = [collection, ...(other ? [other] : [])];
  const found = await Promise.all(sides.map((side) => search(side, query, running.signal)));
  if (running !== state.running) return;
  byId("asked").hidden = false;
  showQuery(byId("asked-picture"), query, found[0].code, collection);
  const columns = sides.map((side, i) => column(side, found[i], query, (hit) => guarded(() => chosen(hit, side))));
  byId("columns").replaceChildren(...columns);
  const both = other ? `, ${common(...found)} of them found by both` : "";
  byId("status").textContent = `${found[0].hits.length} neighbours${both}.`;
  if (!drawing()) bringIntoView(byId("results"));
}

const drawing = () => !byId("way-draw").hidden;

function bringIntoView(place) {
  const { top } = place.getBoundingClientRect();
  if (top > innerHeight * 0.8) place.scrollIntoView({ block: "start" });
}

/** The hits of a query; an item is not its own neighbour, whichever collection it comes from. */
async function search(side, query, signal) {
  const options = controls.chosen(side);
  const filter = controls.filter(side.metadata.label ? side : state.collection);
  const what =
    side.name === query.home
      ? { ids: [query.id] }
      : { vectors: [query.vector], k: options.k + (query.id === undefined ? 0 : 1) };
  const began = performance.now();
  const answer = await api.search(side.name, { ...options, filter, ...what }, signal);
  const [{ hits, code }] = answer.results;
  return {
    hits: hits.filter((hit) => !isSame(hit, query)).slice(0, options.k),
    code,
    kind: answer.kind,
    seconds: answer.seconds,
    roundTrip: (performance.now() - began) / 1000,
  };
}

/** Whether a hit is the item that was asked for: another collection may give its id to something else. */
function isSame(hit, query) {
  return hit.id === query.id && hit.vector.every((value, i) => value === query.vector[i]);
}

function submitted(event, action) {
  event.preventDefault();
  guarded(action);
}

/** Run an action and show its problem, if it has one, instead of what was there before. */
async function guarded(action) {
  const place = byId("problem");
  place.hidden = true;
  try {
    await action();
  } catch (error) {
    if (error.name === "AbortError") return;
    place.textContent = error.message;
    place.hidden = false;
    byId("status").textContent = "";
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
