// The query and its options, as the part of the address after “#”: Back, bookmarks and shared links work.
//
// `asked` is an object: the names of a `collection` and of one to `compare` with, one query (`like`, an id, with its
// `home` if that is another collection; `text`, words; `vector`, numbers; `drawing`, grey values from 0 to 255), and
// options.

import { Problem } from "./api.js";
import { fromBase64, toBase64 } from "./bytes.js";

const TEXTS = ["collection", "compare", "scoring", "view", "home", "text"];
const VALUES = ["like", "filter", "k", "oversample"];
const LONGEST = 4096; // numbers of a vector in an address

/** Parse an address into `asked`. */
export function read(hash = location.hash) {
  const params = new URLSearchParams(hash.slice(1));
  const asked = {};
  try {
    for (const name of TEXTS) if (params.get(name)) asked[name] = params.get(name);
    for (const name of VALUES) if (params.get(name)) asked[name] = JSON.parse(params.get(name));
    if (params.get("drawing")) asked.drawing = Array.from(fromBase64(params.get("drawing")));
    if (params.get("vector")) asked.vector = Array.from(new Float32Array(fromBase64(params.get("vector")).buffer));
  } catch {
    throw new Problem(0, "Expected a complete link, got one that cannot be parsed: is a part of it missing?");
  }
  return asked;
}

/** Format `asked` as an address. */
export function write(asked) {
  const params = new URLSearchParams();
  for (const name of TEXTS) if (asked[name]) params.set(name, asked[name]);
  for (const name of VALUES) if (asked[name] !== undefined) params.set(name, JSON.stringify(asked[name]));
  if (asked.drawing) params.set("drawing", toBase64(Uint8Array.from(asked.drawing)));
  if (asked.vector?.length <= LONGEST) params.set("vector", toBase64(new Uint8Array(Float32Array.from(asked.vector).buffer)));
  return `#${params}`;
}

/** Whether there is a query. */
export const hasQuery = (asked) => asked.like !== undefined || Boolean(asked.text || asked.drawing || asked.vector);
