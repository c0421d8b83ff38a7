// Results: cards or a table, for each searched collection.

import { element, image, strip } from "./pictures.js";
import { cell, nameOf, parts } from "./payloads.js";
import { explainScores, milliseconds, formatScore, sharedBits } from "./scores.js";

const MOST_COLUMNS = 6;
const LONG = 32; // characters of a cell from which on it takes two lines

/**
 * Build a column of hits. `place` has the collection, its metadata and the summary of its fields.
 * `act` has the functions `choose(hit)` and `detail(hit)`, or neither if hits are ids and scores only.
 */
export function column(place, found, query, view, act) {
  const { collection, metadata } = place;
  const show = view === "table" ? table : cards;
  const times = `${milliseconds(found.seconds)} in the service, ${milliseconds(found.roundTrip)} in all`;
  return element(
    "div",
    { class: "column", "data-collection": collection.name },
    element("h3", {}, metadata.title ?? collection.name),
    found.hits.length
      ? show(place, found, act)
      : element("p", { class: "none" }, reason(found)),
    element("p", { class: "note" }, `${query.text ? "" : `${capital(describe(collection))}. `}${explainScores(found.kind)} ${times}.`),
  );
}

/** Say why nothing was found. */
function reason({ hint, kind }) {
  if (hint) return `Nothing passes the filter: ${hint}`;
  return kind === "bm25" ? "Nothing with these words. Fewer words, or a beginning such as scar*, find more." : "Nothing passes the filter.";
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

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
  const list = found.hits.map((hit) => {
    const last = element(
      "span",
      { class: "last" },
      element("span", { class: "score", title: sharedBits(hit, shared) ?? "" }, formatScore(hit, found.kind)),
      hit.both ? element("span", { class: "badge" }, "in both") : null,
      near(hit, place, act),
    );
    return element("li", {}, card(hit, place, { open: act.detail, words: "details" }, hit.code && shared.size ? strip(hit.code, shared) : null, last));
  });
  return element("ol", { class: isWide(found.hits, place) ? "cards wide" : "cards" }, ...list);
}

/** Build the card of an item, which is a button as a whole: `open(item)` does what `words` say. */
export function card(item, place, { open, words }, ...below) {
  const picture = image(item.vector, place.metadata, `Item ${item.id}`);
  const [photo, ...rest] = parts(item, place);
  return element(
    "article",
    { class: item.both ? "card both" : "card", "data-id": JSON.stringify(item.id) },
    picture,
    photo,
    title(item, place, open, words),
    ...rest,
    ...below,
  );
}

function table(place, found, act) {
  const shared = new Set(found.code ?? []);
  const used = [place.summary?.title, place.metadata.name, place.summary?.image];
  const fields = (place.summary?.fields ?? []).filter(({ name }) => !used.includes(name)).slice(0, MOST_COLUMNS);
  const bits = found.hits.some((hit) => sharedBits(hit, shared));
  const pictured = place.metadata.image && found.hits.some((hit) => hit.vector);
  const heads = ["", ...(pictured ? [""] : []), "Item", "Score", ...(bits ? ["Shared bits"] : []), ...fields.map(({ name }) => name), ...(act.choose ? [""] : [])];
  const rows = found.hits.map((hit, i) => {
    const cells = [
      element("td", { class: "number" }, `${i + 1}`),
      pictured ? element("td", {}, image(hit.vector, place.metadata, `Item ${hit.id}`)) : null,
      element("td", {}, title(hit, place, act.detail, "details")),
      element("td", { class: "number score" }, formatScore(hit, found.kind), hit.both ? element("span", { class: "badge" }, " in both") : null),
      bits ? element("td", { class: "number" }, sharedBits(hit, shared)?.replace(" bits shared", "")) : null,
      ...fields.map((field) => value(field, hit.payload)),
      act.choose ? element("td", {}, near(hit, place, act)) : null,
    ];
    return element("tr", { "data-id": JSON.stringify(hit.id), class: hit.both ? "both" : "" }, ...cells);
  });
  const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
  const made = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Neighbours as a table" }, made);
}

function value({ name, type }, payload) {
  const text = cell(payload?.[name]);
  if (type === "number") return element("td", { class: "number" }, text);
  return element("td", { class: text.length > LONG ? "long" : "short" }, element("span", { class: "clamp", title: text }, text));
}

/** Show the name of an item; if there is something to open, its card or row is a button. */
function title(item, place, open, words) {
  const name = nameOf(item, place);
  if (!open) return element("span", { class: "name", title: name }, name);
  const button = element("button", { class: "name", type: "button", title: name, "aria-label": `${name}: ${words}` }, name);
  button.addEventListener("click", () => open(item));
  return button;
}

function near(hit, place, act) {
  if (!act.choose) return null;
  const words = `Neighbours of ${nameOf(hit, place)}`;
  const button = element("button", { class: "near", type: "button", title: words, "aria-label": words }, "→");
  button.addEventListener("click", () => act.choose(hit));
  return button;
}

/** Make cards with text wider. */
function isWide(hits, { summary }) {
  return hits.some(({ payload }) => payload && Object.keys(payload).length > 2) || Boolean(summary?.text);
}
