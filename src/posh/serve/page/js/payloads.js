// Payloads for people: a title, a picture, a text, tags, and the other values.

import { element } from "./pictures.js";
import { short } from "./scores.js";

const MOST_TAGS = 6;
const MOST_VALUES = 4;
const LONG = 60;

/** Return the name of an item: its title, else its label, else its id. */
export function nameOf(item, { metadata, summary }) {
  const payload = item.payload ?? {};
  const value = payload[summary?.title] ?? payload[metadata.name] ?? payload[metadata.label?.field] ?? item.id;
  return words(value);
}

/** Build the parts of a card from a payload: a picture, the text, tags and values. */
export function parts(item, place) {
  const { summary, metadata } = place;
  const payload = item.payload ?? {};
  const used = [summary?.title, summary?.text, summary?.image, metadata.label?.field, metadata.name];
  const rest = Object.entries(payload).filter(([name]) => !used.includes(name));
  return [
    picture(payload[summary?.image], nameOf(item, place)),
    isText(payload[summary?.text]) ? element("p", { class: "text" }, payload[summary.text]) : null,
    tags(rest.flatMap(([, value]) => (Array.isArray(value) ? value.filter(isPlain) : []))),
    values(rest.filter(([, value]) => isPlain(value) && value !== null && String(value).length <= LONG)),
  ];
}

/** Build a list of all names and values of a payload. */
export function listValues(payload) {
  const rows = Object.entries(payload).flatMap(([name, value]) => [
    element("dt", {}, name),
    element("dd", {}, isPlain(value) ? words(value) : JSON.stringify(value)),
  ]);
  return element("dl", {}, ...rows);
}

/** Format a value for a cell of a table. */
export function cell(value) {
  if (value === undefined || value === null) return "";
  if (Array.isArray(value)) return value.map(words).join(", ").slice(0, 400);
  return isPlain(value) ? words(value).slice(0, 400) : JSON.stringify(value).slice(0, 400);
}

/** Format a plain value; numbers in the reader's locale. */
export function words(value) {
  return typeof value === "number" && !Number.isInteger(value) ? short(value) : String(value);
}

/**
 * Return a picture of this site, or of a `data:` address. Pictures of other sites are never loaded: requests would
 * reveal to these sites what the user views, and the policy of the page forbids them.
 */
export function picture(address, description) {
  if (!isText(address) || !isOwn(address)) return null;
  const made = element("img", { src: address, alt: description, loading: "lazy" });
  made.addEventListener("error", () => made.remove());
  return made;
}

export function isOwn(address) {
  if (address.startsWith("data:image/")) return true;
  return URL.canParse(address, location.href) && new URL(address, location.href).origin === location.origin;
}

function tags(found) {
  if (!found.length) return null;
  const more = found.length > MOST_TAGS ? [element("li", {}, `+${found.length - MOST_TAGS}`)] : [];
  return element("ul", { class: "tags" }, ...found.slice(0, MOST_TAGS).map((tag) => element("li", {}, words(tag))), ...more);
}

function values(found) {
  if (!found.length) return null;
  const said = found.slice(0, MOST_VALUES).map(([name, value]) => `${name} ${words(value)}`);
  return element("p", { class: "values" }, said.join(" · "));
}

const isText = (value) => typeof value === "string" && value !== "";
const isPlain = (value) => value === null || typeof value !== "object";
