// The search box: words, the id of an item, or a pasted vector.

import * as api from "./api.js";

const byId = (id) => document.getElementById(id);

/** Say what the box takes in a collection. */
export function describeBox({ collection, metadata }) {
  const { text, has_items: has, n_features: width } = collection;
  const vector = `${width ?? "some"} numbers`;
  const words = text && `Search in ${text.fields.join(", ")}`;
  const name = metadata.name ? `Type a ${metadata.name}` : "Type the id of an item";
  byId("query-label").textContent = words ?? (has ? name : `Paste a vector of ${vector}`);
  byId("query").placeholder = byId("query-label").textContent;
  byId("query-hint").textContent = text
    ? "“Quotes” make a phrase, a star a beginning: scar*. An id or a pasted vector finds its neighbours."
    : has
      ? `It finds the nearest neighbours; so does a pasted vector of ${vector}.`
      : "The ids of its nearest neighbours are shown.";
}

/** Put a query into the box. Drawings have no text. */
export function fillBox({ text, like, home, vector }) {
  const shown = text ?? (like !== undefined && !home ? String(like) : vector ? shorten(vector) : "");
  if (document.activeElement !== byId("query") || shown) byId("query").value = shown;
}

const shorten = (vector) => vector.map((value) => Number(value.toPrecision(6))).join(" ");

/** Let the line breaks of a pasted vector separate its numbers: the box would remove them. */
export function keepBreaks(input) {
  input.addEventListener("paste", (event) => {
    const text = event.clipboardData.getData("text/plain");
    if (!text.trim().includes("\n")) return;
    event.preventDefault();
    input.setRangeText(text.trim().replace(/\s+/g, " "), input.selectionStart, input.selectionEnd, "end");
  });
}

/** Return the query that a text is in a collection: `{ text }`, `{ vector }` or `{ like }`. */
export async function interpret(text, collection) {
  const asked = text.trim();
  if (!asked) return {};
  if (isVector(asked, collection)) return { vector: numbers(asked, collection.n_features) };
  if (collection.text) return { text: asked };
  const item = collection.has_items ? await findItem(asked, collection) : null;
  if (!item) throw new api.Problem(404, collection.has_items ? `There is no item “${asked}” in this collection.` : `Expected numbers, got “${asked.slice(0, 40)}”.`);
  return { like: item.id };
}

/** Return the item with an id that is typed: a number or a text; undefined if there is none. */
export async function findItem(text, { name }, signal) {
  const number = /^-?\d+$/.test(text) ? Number(text) : NaN;
  const ids = Number.isSafeInteger(number) ? [number, text] : [text];
  const { items } = await api.get(name, { ids, include: [] }, signal);
  return items.find(Boolean);
}

/** Whether a text is meant as numbers. Where words are searched, “1984 2001” are words. */
function isVector(text, { text: hasWords, n_features: width }) {
  if (text.startsWith("[")) return true;
  const parts = split(text);
  const n = parts.filter((part) => Number.isFinite(Number(part))).length;
  return hasWords ? parts.length > 1 && parts.length === width && n === width : parts.length > 1 && 2 * n > parts.length;
}

const split = (text) => text.replace(/[[\]]/g, " ").split(/[\s,;]+/).filter(Boolean);

/** Parse a vector, which must have as many numbers as those of the collection. */
function numbers(text, expected) {
  const parts = split(text);
  const wrong = parts.find((part) => !Number.isFinite(Number(part)));
  if (wrong !== undefined) throw new api.Problem(0, `Expected numbers, got “${wrong.slice(0, 40)}”.`);
  if (expected && parts.length !== expected) {
    throw new api.Problem(0, `Expected ${expected} numbers, like the vectors of this collection, got ${parts.length}.`);
  }
  return parts.map(Number);
}
