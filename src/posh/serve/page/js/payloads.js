// Payloads for people: a title, a picture, a text, tags, and the other values.

import { element } from "./pictures.js";
import { short } from "./scores.js";

const MOST_TAGS = 6;
const MOST_VALUES = 4;
const LONG = 60;

/** What an item is called: its title, else its label, else its id. */
export function nameOf(item, { metadata, summary }) {
  const payload = item.payload ?? {};
  const value = payload[summary?.title] ?? payload[metadata.name] ?? payload[metadata.label?.field] ?? item.id;
  return words(value);
}

/** The parts of a payload for a card: a picture, the text, tags and values. */
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

/** All of a payload as a list of names and values. */
export function listed(payload) {
  const rows = Object.entries(payload).flatMap(([name, value]) => [
    element("dt", {}, name),
    element("dd", {}, isPlain(value) ? words(value) : JSON.stringify(value)),
  ]);
  return element("dl", {}, ...rows);
}

/** A value in a cell of a table. */
export function cell(value) {
  if (value === undefined || value === null) return "";
  if (Array.isArray(value)) return value.map(words).join(", ").slice(0, 200);
  return isPlain(value) ? words(value).slice(0, 200) : JSON.stringify(value).slice(0, 200);
}

/** A plain value in words; numbers as the reader writes them. */
export function words(value) {
  return typeof value === "number" && !Number.isInteger(value) ? short(value) : String(value);
}

/**
 * A picture of this site, or within the address itself. Pictures of other sites are never loaded: they would tell
 * these sites who looks at what, and the policy of the page forbids it.
 */
function picture(address, description) {
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
