// The answer in one sentence: “Looks like a 7: 10 of 10 neighbours”.

import { words } from "./payloads.js";

/** Format the answer of a search. */
export function answer(query, { hits }, { summary, metadata }) {
  const n = hits.length;
  if (query.text) return n ? `${n === 1 ? "The best match" : `The ${n} best matches`} for ${query.name}` : `Nothing has the words ${query.name}`;
  if (!n) return "Nothing passes the filter";
  const field = metadata.label?.field ?? summary?.group;
  const [first, second] = field ? rank(hits, field) : [];
  const near = `${n} ${n === 1 ? "neighbour" : "neighbours"}`;
  if (!first) return query.id === undefined ? `The ${near} nearest to ${query.name.toLowerCase()}` : `Nearest to ${query.item}`;
  if (!metadata.label) return query.id === undefined || 2 * first.count <= n ? `Nearest to ${query.item ?? query.name.toLowerCase()}` : `Nearest to ${query.item}: ${first.count} of ${near} have ${field} ${words(first.value)}`;
  const looks = query.label === undefined ? "Looks like" : query.label === first.value ? `${capital(article(query.label))}, and looks like` : `${capital(article(query.label))}, but looks like`;
  if (second && second.count === first.count) return `${looks} ${article(first.value)} or ${article(second.value)}: ${first.count} each of ${near}`;
  return query.label === first.value
    ? `${capital(article(first.value))}, like ${first.count} of ${near}`
    : `${looks} ${article(first.value)}: ${first.count} of ${near}`;
}

/** Count the values of a field among hits, the most frequent ones first. */
function rank(hits, field) {
  const counts = new Map();
  for (const { payload } of hits) {
    const value = payload?.[field];
    if (value !== undefined && value !== null && typeof value !== "object") counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  return [...counts].map(([value, count]) => ({ value, count })).sort((one, other) => other.count - one.count);
}

/** Put “a” or “an” before a value, as it is spoken: an 8, an 11, an owl. */
export function article(value) {
  const text = words(value);
  return `${/^(8|1[18](\D|$)|[aeiou])/i.test(text) ? "an" : "a"} ${text}`;
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);
