// The start: a description of the collection, and examples to click.

import { isSearchable } from "./controls.js";
import { nameOf } from "./payloads.js";
import { element } from "./pictures.js";
import { card } from "./results.js";

const TRIED = 4;

/** Build the start of a collection; `search(text)` searches for words. */
export function welcome(place, items, act, search) {
  const { collection, metadata } = place;
  const count = collection.count.toLocaleString("en");
  const start = element("p", {}, `${count} ${collection.count === 1 ? "item" : "items"}. ${metadata.about ?? ""}`);
  if (!collection.has_items) {
    const vector = `a vector of ${collection.n_features} numbers`;
    return [start, element("p", {}, `It has ids and scores, and nothing else to show. Paste ${vector} to see the ids of its nearest neighbours.`)];
  }
  if (!items.length) return [start, element("p", {}, "It is empty. “Import” above reads items from a file.")];
  if (!isSearchable(collection) && !collection.text) {
    return [start, element("p", {}, "It cannot be searched yet: it has neither a hasher nor a metric. Fit a hasher, or rebuild its index with a metric.")];
  }
  const ways = metadata.image && metadata.drawable !== false ? "Draw something, or choose" : "Choose";
  return [
    start,
    collection.text ? suggestions(items, place, search) : "",
    element("h3", {}, `${ways} one of these to see its nearest neighbours`),
    element("ul", { class: place.summary?.text ? "cards wide" : "cards" }, ...examples(place, items, act)),
  ];
}

/** Build the start of a service without collections; `act` opens the dialog of imports. */
export function noCollections(act) {
  const button = element("button", { type: "button", class: "primary" }, "Import a file");
  button.addEventListener("click", act);
  const samples = "There are no collections yet. Import a file of vectors, or run “make serve” for collections of handwritten digits.";
  return [element("p", {}, samples), button];
}

/** Build the entries of a list of items to start from. */
export function examples(place, items, act) {
  const open = { open: act.choose, words: "find its neighbours" };
  return items.map((item) => element("li", {}, card(item, place, open)));
}

function suggestions(items, place, search) {
  const names = [...new Set(items.map((item) => nameOf(item, place)))].slice(0, TRIED);
  const buttons = names.map((name) => {
    const button = element("button", { type: "button" }, name);
    button.addEventListener("click", () => search(name));
    return button;
  });
  return element("p", { class: "try" }, "Try ", ...buttons);
}
