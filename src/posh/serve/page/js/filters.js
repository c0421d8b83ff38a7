// Filters: conditions that are built by choosing a field and a value, and shown as chips.

import { Problem } from "./api.js";
import { element } from "./pictures.js";

const byId = (id) => document.getElementById(id);
const OPERATORS = {
  is: { words: "is", make: (field, value) => ({ [field]: value }) },
  "is-not": { words: "is not", make: (field, value) => ({ not: { [field]: value } }) },
  gte: { words: "is at least", make: (field, value) => ({ [field]: { gte: value } }) },
  contains: { words: "has", make: (field, value) => ({ [field]: { contains: value } }) },
  lte: { words: "is at most", make: (field, value) => ({ [field]: { lte: value } }) },
  prefix: { words: "starts with", make: (field, value) => ({ [field]: { prefix: value } }) },
};
const EQUAL = ["is", "is-not"];
const BY_TYPE = { string: [...EQUAL, "prefix"], boolean: EQUAL, number: ["gte", "lte", ...EQUAL], list: ["contains"] };
const SIGNS = {
  ...{ eq: "=", ne: "≠", gt: ">", gte: "≥", lt: "<", lte: "≤", in: "in", nin: "not in" },
  ...{ prefix: "starts with", contains: "has", any: "has one of", exists: "exists:" },
};
let fields = [];

/** Offer the fields of a collection. */
export function offer(summary) {
  fields = (summary?.fields ?? []).filter(({ type }) => type in BY_TYPE);
  byId("field").replaceChildren(...fields.map(({ name }) => element("option", { value: name }, name)));
  byId("add-condition").hidden = !fields.length;
  fieldChosen();
}

/** Offer the comparisons and the values of the chosen field. */
export function fieldChosen() {
  const field = fields.find(({ name }) => name === byId("field").value);
  if (!field) return;
  const names = field.type === "number" && hasFew(field) ? [...EQUAL, "gte", "lte"] : BY_TYPE[field.type];
  const operators = names.map((name) => element("option", { value: name }, OPERATORS[name].words));
  byId("operator").replaceChildren(...operators);
  byId("value-place").replaceChildren(element("label", { for: "value", class: "unseen" }, "Value"), ...input(field));
}

/** Whether the service has listed all values of its sample. */
const hasFew = ({ values, distinct }) => values.length > 0 && distinct <= values.length;

function input(field) {
  const { type, values, low, high } = field;
  if (hasFew(field)) {
    const sorted = values.toSorted(({ value: one }, { value: other }) => (one < other ? -1 : 1));
    const options = sorted.map(({ value, count }) =>
      element("option", { value: JSON.stringify(value) }, `${value} (${count} of the sample)`),
    );
    return [element("select", { id: "value" }, ...options)];
  }
  const known = element("datalist", { id: "values" }, ...values.map(({ value }) => element("option", { value: String(value) })));
  const kind = type === "number" ? { inputmode: "decimal", placeholder: `${low} to ${high}` } : {};
  return [element("input", { id: "value", list: "values", required: true, autocomplete: "off", ...kind }), known];
}

/** Read the condition from the form. */
export function readCondition() {
  const field = fields.find(({ name }) => name === byId("field").value);
  return OPERATORS[byId("operator").value].make(field.name, value(field));
}

function value({ type }) {
  const place = byId("value");
  if (place.tagName === "SELECT") return JSON.parse(place.value);
  const text = place.value.trim();
  if (type !== "number") return text;
  if (!text || !Number.isFinite(Number(text))) throw new Problem(0, `Expected a number, got “${text.slice(0, 40)}”.`);
  return Number(text);
}

/** Split a filter into conditions that must all hold. */
export function split(filter) {
  if (!filter) return [];
  const names = Object.keys(filter);
  if (names.length === 1 && Array.isArray(filter.and)) return filter.and;
  return names.map((name) => ({ [name]: filter[name] }));
}

/** Join conditions into a filter, or undefined without any. */
export function join(conditions) {
  if (conditions.length < 2) return conditions[0];
  return { and: conditions };
}

/** Parse a filter that the user has typed. */
export function parse(text) {
  try {
    const filter = JSON.parse(text);
    if (filter && typeof filter === "object" && !Array.isArray(filter)) return filter;
  } catch {
    // The problem below explains it.
  }
  throw new Problem(0, `Expected a filter like {"label": 3}, in JSON, got “${text.slice(0, 60)}”.`);
}

/** Show conditions as chips; `drop(i)` is called when one is clicked. */
export function chips(conditions, drop) {
  const list = conditions.map((condition, i) => {
    const button = element("button", { type: "button", "aria-label": `Remove the filter ${formatCondition(condition)}` }, `${formatCondition(condition)} ✕`);
    button.addEventListener("click", () => drop(i));
    return element("li", {}, button);
  });
  byId("conditions").replaceChildren(...list);
}

/** Format a condition for people. */
export function formatCondition(condition) {
  const [[name, test], ...more] = Object.entries(condition);
  if (more.length || name === "and" || name === "or") return JSON.stringify(condition);
  if (name === "not") return `not ${formatCondition(test)}`;
  if (test === null || typeof test !== "object") return `${name} = ${test}`;
  return Object.entries(test)
    .map(([operator, bound]) => `${name} ${SIGNS[operator] ?? operator} ${Array.isArray(bound) ? bound.join(", ") : bound}`)
    .join(", ");
}
