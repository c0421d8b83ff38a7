// The answer in one sentence: “Looks like a 7: 10 of 10 neighbours”.

import { words } from "./payloads.js";

const SURPRISING = 0.2; // a value must be more frequent among neighbours than in the collection, by this share

/** Format the answer of a search. */
export function answer(query, { hits }, { summary, metadata }) {
  const n = hits.length;
  if (query.text) return n ? `${n === 1 ? "The best match" : `The ${n} best matches`} for ${query.name}` : `Nothing has the words ${query.name}`;
  if (!n) return "Nothing passes the filter";
  const near = `${n} ${n === 1 ? "neighbour" : "neighbours"}`;
  const ranked = metadata.label ? rank(hits, metadata.label.field) : [];
  if (ranked.length) return looks(query.label, ranked, near);
  const common = mostTelling(hits, summary);
  return `Nearest to ${query.item ?? query.name.toLowerCase()}${common ? `: ${common.count} of ${near} have ${common.field} ${words(common.value)}` : ""}`;
}

/** Say what a query looks like, which may have a label itself. */
function looks(own, [first, second], near) {
  const many = `${first.count} of ${near}`;
  if (second?.count === first.count) {
    return `${own === undefined ? "Looks like" : `${capital(article(own))} that looks like`} ${article(first.value)} or ${article(second.value)}: ${first.count} each of ${near}`;
  }
  if (own === first.value) return `${capital(article(own))}, like ${many}`;
  return `${own === undefined ? "Looks like" : `${capital(article(own))} that looks like`} ${article(first.value)}: ${many}`;
}

/** Find the value that more than half of the hits have, and that is rare elsewhere. */
function mostTelling(hits, summary) {
  const found = (summary?.fields ?? [])
    .filter(({ name, type }) => ["string", "boolean"].includes(type) && ![summary.title, summary.text, summary.image].includes(name))
    .flatMap(({ name, values }) => {
      const [first] = rank(hits, name);
      if (!first || 2 * first.count <= hits.length) return [];
      const usual = (values.find(({ value }) => value === first.value)?.count ?? 0) / summary.sampled;
      return [{ ...first, field: name, surprise: first.count / hits.length - usual }];
    });
  return found.filter(({ surprise }) => surprise > SURPRISING).sort((one, other) => other.surprise - one.surprise)[0];
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
