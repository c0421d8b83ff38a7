// The form next to the results: the query and its options.

import { Problem } from "./api.js";
import { element } from "./pictures.js";
import { describe } from "./results.js";

const SPARSE = "Every vector becomes a few set bits out of many. Similar vectors share bits, so searching is counting them.";
const byId = (id) => document.getElementById(id);

/** Fill the controls for a collection. */
export function offer(collection, all) {
  const { metadata, hasher, index, n_features: width, has_items: has } = collection;
  byId("about").textContent = hasher?.n_active && !index.metric ? SPARSE : (metadata.about ?? "");
  facts(collection);
  const others = all.filter((one) => one.name !== collection.name && one.n_features === width && isSearchable(one));
  options("compare", [["", "nothing"], ...others.map((one) => [one.name, `${one.name}: ${describe(one)}`])]);
  byId("compare").disabled = !others.length;
  byId("scoring").disabled = !hasher?.n_active || Boolean(index.metric);
  byId("oversample").disabled = !index.refine;
  byId("oversample-hint").textContent = index.refine
    ? `Candidates per neighbour that “${index.refine}” reorders, by default ${index.oversample}.`
    : "This collection does not refine candidates, so there is nothing to oversample.";
  byId("draw").hidden = !metadata.image || metadata.drawable === false;
  byId("filter").disabled = !has;
}

export const isSearchable = ({ hasher, index }) => Boolean(hasher || index.metric);

/** Set the controls from `asked`. */
export function put({ k, scoring, oversample, compare, filter, view = "cards" }) {
  byId("k").value = k ?? 10;
  byId("scoring").value = scoring ?? "";
  byId("oversample").value = oversample ?? "";
  byId("compare").value = compare ?? "";
  byId("filter").value = filter ? JSON.stringify(filter) : "";
  for (const button of byId("views").children) button.setAttribute("aria-pressed", String(button.dataset.view === view));
}

/** Read the options from the controls, except the filter. */
export function readOptions() {
  const k = byId("k").valueAsNumber;
  if (!Number.isInteger(k) || k < 1 || k > most()) {
    const got = byId("k").value || "something else";
    throw new Problem(0, `Expected a whole number of neighbours (k) from 1 to ${most().toLocaleString("en")}, got ${got}.`);
  }
  const oversample = byId("oversample").valueAsNumber;
  return {
    k,
    scoring: byId("scoring").value || undefined,
    oversample: Number.isNaN(oversample) ? undefined : oversample,
    compare: byId("compare").value || undefined,
  };
}

/** Convert options to those of the service for this collection. */
export function forSearch({ k = 10, scoring, oversample, filter }, { hasher, index, has_items: has }) {
  const body = { k, filter, include: has ? ["payload", "vector", ...(index.metric ? [] : ["code"])] : [] };
  if (scoring && hasher?.n_active && !index.metric) body.scoring = scoring;
  if (oversample && index.refine) body.oversample = oversample;
  return body;
}

/** The largest k. */
export const most = () => Number(byId("k").max);

/** Apply the limits of the service. */
export function bound({ k }) {
  byId("k").max = k;
}

export function options(id, pairs) {
  byId(id).replaceChildren(...pairs.map(([value, text]) => element("option", { value }, text)));
}

function facts(collection) {
  const { count, hasher, index, n_features: width, memory_bytes: memory } = collection;
  const rows = {
    Items: count.toLocaleString("en"),
    Vectors: width ? `${width} numbers` : "none yet",
    Searched: describe(collection),
    Scoring: index.refine ? `${index.scoring}, refined by ${index.refine}` : hasher && !index.metric && index.scoring,
    Memory: memory ? `${(memory / 2 ** 20).toFixed(1)} MiB` : undefined,
  };
  const known = Object.entries(rows).filter(([, value]) => value);
  byId("facts").replaceChildren(
    ...known.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
  );
}
