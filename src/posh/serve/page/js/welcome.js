// The start: a description of the collection, and examples to click.

import { isSearchable } from "./controls.js";
import { element } from "./pictures.js";
import { card } from "./results.js";

const EXAMPLES = 12;

const SPARSE = "Every vector becomes a few set bits out of many. Similar vectors share bits, so searching is counting them.";

/** Build the start of a collection. */
export function welcome(place, items, act) {
  const { collection, metadata } = place;
  const title = metadata.title ?? collection.name;
  const count = collection.count.toLocaleString("en");
  const start = element("p", {}, element("strong", {}, title), `: ${count} ${collection.count === 1 ? "item" : "items"}. ${metadata.about ?? ""}`);
  if (!collection.has_items) {
    const vector = `a vector of ${collection.n_features} numbers`;
    return [start, element("p", {}, `It has ids and scores, and nothing else to show. Paste ${vector} to see the ids of its nearest neighbours.`)];
  }
  if (!items.length) return [start, element("p", {}, "It is empty. “Import…” above reads items from a file.")];
  if (!isSearchable(collection) && !collection.text) {
    return [start, element("p", {}, "It cannot be searched yet: it has neither a hasher nor a metric. Fit a hasher, or rebuild its index with a metric.")];
  }
  const ways = metadata.image && metadata.drawable !== false ? "Draw something, or choose" : "Choose";
  const list = items.slice(0, EXAMPLES).map((item) => element("li", {}, card(item, place, act)));
  return [
    start,
    collection.hasher?.n_active && !collection.index.metric ? element("p", {}, SPARSE) : "",
    element("h3", {}, `${ways} one of these to see its nearest neighbours:`),
    element("ul", { class: place.summary?.text ? "cards wide" : "cards" }, ...list),
  ];
}
