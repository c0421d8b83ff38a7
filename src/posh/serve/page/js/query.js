// One query: its vector or words, its search, and how it is shown.

import * as api from "./api.js";
import * as controls from "./controls.js";
import { vectorOf } from "./pad.js";
import { nameOf } from "./payloads.js";
import { element, image } from "./pictures.js";

const NO_FIELDS = { fields: [], examples: [] };

/** Collect data of a collection: itself, its metadata and, when `known` is fulfilled, the summary of its fields. */
export function placeOf(collection, changed = () => {}) {
  const place = { collection, metadata: collection.metadata, summary: null };
  const asked = collection.has_items ? api.fields(collection.name) : Promise.resolve(NO_FIELDS);
  place.known = asked.then((summary) => {
    place.summary = summary;
    changed(place);
  });
  place.known.catch(() => {}); // callers that await it get the error
  return place;
}

/** Build the query of `asked`: a vector or words, and its name. `from` is the collection of a stored item. */
export async function makeQuery({ like, text, vector, drawing }, from, signal) {
  if (text) return { text, name: `“${text}”` };
  if (drawing) return { vector: vectorOf(drawing, from.metadata.image), name: "Your drawing" };
  if (vector) return { vector, name: "Your vector" };
  const { items } = await api.get(from.collection.name, { ids: [like], include: ["payload", "vector"] }, signal);
  if (!items[0]) throw new api.Problem(404, `There is no item “${like}” in this collection.`);
  await from.known;
  const name = nameOf(items[0], from);
  const label = items[0].payload?.[from.metadata.label?.field];
  const words = `Item ${like}${name === String(like) ? "" : `: ${name}`}`;
  const item = name === String(like) || label !== undefined ? `item ${like}` : `“${name}”`;
  return { id: like, home: from.collection.name, vector: items[0].vector, name: words, item, label };
}

/** Search for a query; an item is not its own neighbour, in any collection. */
export async function search({ collection }, asked, query, signal) {
  const options = controls.forSearch(asked, collection);
  const began = performance.now();
  const body = query.text ? forText(options, query) : { ...options, ...forVector(collection, options, query) };
  const answer = await api.search(collection.name, body, signal);
  const [{ hits, code }] = answer.results;
  return {
    hits: hits.filter((hit) => !isSame(hit, query)).slice(0, options.k),
    code,
    kind: answer.kind,
    hint: answer.hint, // why nothing can pass the filter
    seconds: answer.seconds,
    roundTrip: (performance.now() - began) / 1000,
  };
}

/** Options that a search by words has, and its words. */
const forText = ({ k, filter, include }, { text }) => ({ text, k, filter, include });

function forVector(collection, { k }, query) {
  if (collection.name === query.home) return { ids: [query.id] };
  return { vectors: [query.vector], k: Math.min(k + (query.id === undefined ? 0 : 1), controls.most()) };
}

/** Whether a hit is the queried item: another collection may use its id for another item. */
function isSame(hit, query) {
  return hit.id === query.id && hit.vector.every((value, i) => value === query.vector[i]);
}

/** Show the query above its neighbours, with a legend of the colours of bits. */
export function queryLine(query, { metadata, collection }, { code }, toItem = null) {
  const picture = query.vector ? image(query.vector, metadata, "The query") : null;
  const parts = [picture, query.text ? null : element("span", { class: "name" }, query.name), toItem].filter(Boolean);
  if (!code) return parts;
  const bits = `${code.length} of ${collection.hasher.n_bits.toLocaleString("en")} bits set`;
  const shared = element("span", {}, element("i", { class: "shared" }), " shared bits, first");
  const others = element("span", {}, element("i", { class: "set" }), " other set bits");
  return [...parts, element("span", { class: "hint" }, bits), element("p", { class: "legend" }, shared, others)];
}
