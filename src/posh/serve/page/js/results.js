// Results: cards or a table, for each searched collection.

import { element, image, strip } from "./pictures.js";
import { cell, nameOf, parts } from "./payloads.js";
import { explainScores, milliseconds, formatScore, sharedBits } from "./scores.js";

const MOST_COLUMNS = 6;
const LONG = 40; // characters of a cell from which on it needs room

/**
 * Build a column of hits. `place` has the collection, its metadata and the summary of its fields.
 * `act` has the functions `choose(hit)` and `detail(hit)`, or neither if hits are ids and scores only.
 */
export function column(place, found, query, view, act) {
  const { collection, metadata } = place;
  const show = view === "table" ? table : cards;
  return element(
    "div",
    { class: "column", "data-collection": collection.name },
    element("h3", {}, metadata.title ?? collection.name),
    element("p", {}, `${query.text ? "" : `${describe(collection)}. `}${summary(found, query, metadata)}`),
    found.hits.length ? show(place, found, act) : element("p", {}, found.hint ? `Nothing passes the filter: ${found.hint}` : found.kind === "bm25" ? "Nothing with these words." : "Nothing passes the filter."),
  );
}

/** Mark the hits that two searches have in common; return their number. */
export function markBoth(one, other) {
  const ids = new Set(one.hits.map((hit) => hit.id));
  const both = new Set(other.hits.filter((hit) => ids.has(hit.id)).map((hit) => hit.id));
  for (const hit of [...one.hits, ...other.hits]) hit.both = both.has(hit.id);
  return both.size;
}

/** Describe the index of a collection in a few words. */
export function describe({ hasher, index }) {
  if (index.metric) return `nearest by ${index.metric}`;
  if (!hasher) return "no hasher yet";
  const bits = hasher.n_bits.toLocaleString("en");
  return hasher.n_active ? `${hasher.method} ${hasher.n_active} of ${bits} bits` : `${hasher.method} ${bits} bits`;
}

function cards(place, found, act) {
  const shared = new Set(found.code ?? []);
  const list = found.hits.map((hit, i) => {
    const last = element(
      "span",
      { class: "last" },
      element("span", { class: "score", title: sharedBits(hit, shared) ?? "" }, `${i + 1}. ${formatScore(hit, found.kind)}`),
      hit.both ? element("span", { class: "badge" }, "in both") : null,
      details(hit, place, act),
    );
    return element("li", {}, card(hit, place, act, hit.code && shared.size ? strip(hit.code, shared) : null, last));
  });
  return element("ol", { class: isWide(found.hits, place) ? "cards wide" : "cards" }, ...list);
}

/** Build the card of an item. */
export function card(item, place, act, ...below) {
  const picture = image(item.vector, place.metadata, `Item ${item.id}`);
  const [photo, ...rest] = parts(item, place);
  return element(
    "article",
    { class: item.both ? "card both" : "card", "data-id": JSON.stringify(item.id) },
    picture,
    photo,
    title(item, place, act),
    ...rest,
    ...below,
  );
}

function table(place, found, act) {
  const shared = new Set(found.code ?? []);
  const used = [place.summary?.title, place.metadata.name];
  const fields = (place.summary?.fields ?? []).filter(({ name }) => !used.includes(name)).slice(0, MOST_COLUMNS);
  const bits = found.hits.some((hit) => sharedBits(hit, shared));
  const heads = ["", "Item", "Score", ...(bits ? ["Shared bits"] : []), ...fields.map(({ name }) => name), ""];
  const rows = found.hits.map((hit, i) => {
    const cells = [
      element("td", { class: "number" }, `${i + 1}`),
      element("td", {}, title(hit, place, act)),
      element("td", { class: "number score" }, formatScore(hit, found.kind), hit.both ? element("span", { class: "badge" }, " in both") : null),
      bits ? element("td", { class: "number" }, sharedBits(hit, shared)?.replace(" bits shared", "")) : null,
      ...fields.map(({ name, type }) => {
        const text = cell(hit.payload?.[name]);
        return element("td", { class: type === "number" ? "number" : text.length > LONG ? "long" : "" }, text);
      }),
      element("td", {}, details(hit, place, act)),
    ];
    return element("tr", { "data-id": JSON.stringify(hit.id), class: hit.both ? "both" : "" }, ...cells);
  });
  const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
  const made = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Neighbours as a table" }, made);
}

/** Show the name of an item; if its neighbours can be searched, a click does so. */
function title(item, place, act) {
  const name = nameOf(item, place);
  if (!act.choose) return element("span", { class: "name" }, name);
  const button = element("button", { class: "name", type: "button", "aria-label": `${name}: find its neighbours` }, name);
  button.addEventListener("click", () => act.choose(item));
  return button;
}

function details(hit, place, act) {
  if (!act.detail) return null;
  const button = element(
    "button",
    { class: "more", type: "button", "aria-label": `Details of ${nameOf(hit, place)}` },
    "Details",
  );
  button.addEventListener("click", () => act.detail(hit));
  return button;
}

/** Make cards with text wider. */
function isWide(hits, { summary }) {
  return hits.some(({ payload }) => payload && Object.keys(payload).length > 2) || Boolean(summary?.text);
}

function summary(found, query, metadata) {
  const times = `${milliseconds(found.seconds)} in the service, ${milliseconds(found.roundTrip)} in all`;
  const said = [explainScores(found.kind), `${times}.`];
  const field = metadata.label?.field;
  if (field && query.label !== undefined && found.hits.length) {
    const same = found.hits.filter((hit) => hit.payload?.[field] === query.label).length;
    said.push(`${same} of ${found.hits.length} have its label, ${query.label}.`);
  }
  return said.join(" ");
}
