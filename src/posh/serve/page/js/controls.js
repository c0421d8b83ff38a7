// The form beside the results: what is asked for.

import { Problem } from "./api.js";
import { element } from "./pictures.js";
import { describe } from "./results.js";

const byId = (id) => document.getElementById(id);

/** Fill the controls for a collection. */
export function offer(collection, all) {
  const { metadata, hasher, index, n_features: width } = collection;
  byId("about").textContent = metadata.about ?? "";
  facts(collection);
  const labels = metadata.label?.values ?? [];
  options("label", [["", "any"], ...labels.map((value) => [JSON.stringify(value), String(value)])]);
  byId("label").disabled = !labels.length;
  const others = all.filter((one) => one.name !== collection.name && one.n_features === width && one.hasher);
  options("compare", [["", "nothing"], ...others.map((one) => [one.name, `${one.name}: ${describe(one.hasher)}`])]);
  byId("compare").disabled = !others.length;
  byId("scoring").disabled = !hasher?.n_active;
  byId("oversample").disabled = !index.refine;
  byId("oversample-hint").textContent = index.refine
    ? `Candidates per neighbour that are put in order by “${index.refine}”, by default ${index.oversample}.`
    : "This collection does not refine candidates, so there is nothing to oversample.";
  byId("name-label").textContent = metadata.name ? `Type a ${metadata.name}` : "Id of an item";
  byId("vector-label").textContent = `${width ?? "Some"} numbers, separated by commas or spaces`;
}

/** The options of a search, as the service takes them for this collection. */
export function chosen({ hasher, index }) {
  const k = byId("k").valueAsNumber;
  if (!Number.isInteger(k)) throw new Problem(0, "Expected a whole number of neighbours (k).");
  const body = { k, include: ["payload", "vector", "code"] };
  if (byId("scoring").value && hasher?.n_active) body.scoring = byId("scoring").value;
  const oversample = byId("oversample").valueAsNumber;
  if (!Number.isNaN(oversample) && index.refine) body.oversample = oversample;
  return body;
}

/** The filter of a collection, or nothing. */
export function filter(collection) {
  const parts = [];
  const label = byId("label").value;
  if (label) parts.push({ [collection.metadata.label.field]: JSON.parse(label) });
  const written = byId("filter").value.trim();
  if (written) parts.push(parsed(written));
  if (!parts.length) return undefined;
  return parts.length === 1 ? parts[0] : { and: parts };
}

/** The numbers of a pasted vector, as many as the collection's vectors have. */
export function numbers(text, expected) {
  const parts = text.replace(/[[\]]/g, " ").split(/[\s,;]+/).filter(Boolean);
  const wrong = parts.find((part) => !Number.isFinite(Number(part)));
  if (wrong !== undefined) throw new Problem(0, `Expected numbers, got “${wrong.slice(0, 40)}”.`);
  if (expected && parts.length !== expected) {
    throw new Problem(0, `Expected ${expected} numbers, like the vectors of this collection, got ${parts.length}.`);
  }
  return parts.map(Number);
}

/** Choose one of the tabs, and show its panel. */
export function choose(tab) {
  for (const one of document.querySelectorAll('[role="tab"]')) {
    const selected = one === tab;
    one.setAttribute("aria-selected", String(selected));
    one.tabIndex = selected ? 0 : -1;
    byId(one.getAttribute("aria-controls")).hidden = !selected;
  }
}

/** Arrow keys go from tab to tab, as screen readers announce it. */
export function walkTabs(list, chooseTab) {
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const tabs = [...list.children].filter((tab) => !tab.hidden);
    if (!step) return;
    const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
    next.focus();
    chooseTab(next);
  });
}

export function options(id, pairs) {
  byId(id).replaceChildren(...pairs.map(([value, text]) => element("option", { value }, text)));
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Problem(0, `Expected a filter like {"label": 3}, in JSON, got “${text.slice(0, 60)}”.`);
  }
}

function facts({ count, hasher, index, n_features: width, memory_bytes: memory }) {
  const rows = {
    Items: count.toLocaleString("en"),
    Vectors: width ? `${width} numbers` : "none yet",
    Codes: describe(hasher),
    Scoring: index.refine ? `${index.scoring}, refined by ${index.refine}` : index.scoring,
    Memory: memory ? `${(memory / 2 ** 20).toFixed(1)} MiB` : undefined,
  };
  const known = Object.entries(rows).filter(([, value]) => value);
  byId("facts").replaceChildren(
    ...known.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
  );
}
