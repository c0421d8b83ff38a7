// What was found, drawn.

import { element, image, nameOf, raster } from "./pictures.js";

const KINDS = {
  overlap: "shared bits",
  "equal-bits": "equal bits",
  asymmetric: "asymmetric score",
  decoder: "minus the squared distance to the decoded item",
  sbiht: "minus the squared distance to the decoded item",
  euclidean: "minus the squared distance",
  cosine: "cosine",
};

/** The query: its picture and its code. */
export function showQuery(place, query, code, collection) {
  const parts = [
    image(query.vector, collection.metadata, "The query"),
    code && raster(code, collection.hasher.n_bits),
  ].filter(Boolean);
  const name = element("span", { class: "name" }, query.name);
  place.replaceChildren(element("div", { class: "picture" }, ...parts), name);
}

/** A column of hits of one collection; `choose(item)` is called for a hit that is clicked. */
export function column(collection, found, query, choose) {
  const { metadata, hasher } = collection;
  const shared = new Set(found.code ?? []);
  const cards = found.hits.map((hit, i) => {
    const name = nameOf(hit, metadata);
    const parts = [
      image(hit.vector, metadata, `Item ${hit.id}`),
      hit.code && raster(hit.code, hasher.n_bits, shared),
    ].filter(Boolean);
    const card = element(
      "button",
      { class: "card", type: "button", title: `Item ${hit.id}: find its neighbours` },
      ...parts,
      element("span", { class: "name" }, name),
      element("span", { class: "score" }, `${i + 1}. ${scored(hit, found.kind, shared)}`),
    );
    card.addEventListener("click", () => choose(hit));
    return element("li", {}, card);
  });
  return element(
    "div",
    { class: "column", "data-collection": collection.name },
    element("h3", {}, metadata.title ?? collection.name),
    element("p", {}, `${describe(hasher)}. ${summary(found, query, metadata)}`),
    cards.length ? element("ol", { class: "cards" }, ...cards) : element("p", {}, "Nothing passes the filter."),
  );
}

/** A hasher in a few words. */
export function describe(hasher) {
  if (!hasher) return "no hasher yet";
  const bits = hasher.n_bits.toLocaleString("en");
  return hasher.n_active ? `${hasher.method} ${hasher.n_active} of ${bits} bits` : `${hasher.method} ${bits} bits`;
}

/** Hits that two columns have in common. */
export function common(one, other) {
  const ids = new Set(one.hits.map((hit) => hit.id));
  return other.hits.filter((hit) => ids.has(hit.id)).length;
}

function summary(found, query, metadata) {
  const times = `${milliseconds(found.seconds)} in the service, ${milliseconds(found.roundTrip)} in all`;
  const parts = [`Scores: ${KINDS[found.kind] ?? found.kind}.`, `${times}.`];
  const field = metadata.label?.field;
  if (field && query.label !== undefined && found.hits.length) {
    const same = found.hits.filter((hit) => hit.payload?.[field] === query.label).length;
    parts.push(`${same} of ${found.hits.length} have its label, ${query.label}.`);
  }
  return parts.join(" ");
}

/** The score, in shared bits if that is what it is, and else beside them. */
function scored(hit, kind, shared) {
  if (kind === "overlap") return `${hit.score} shared bits`;
  const score = hit.score === null ? "–" : hit.score.toLocaleString("en", { maximumSignificantDigits: 4 });
  return hit.code ? `${score} (${hit.code.filter((bit) => shared.has(bit)).length} shared bits)` : score;
}

function milliseconds(seconds) {
  const value = 1000 * seconds;
  return `${value < 10 ? value.toPrecision(2) : Math.round(value)} ms`;
}
