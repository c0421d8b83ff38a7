// Files of items, read in the browser: JSON Lines, JSON, CSV and .npy; the service reads Parquet and Arrow.
//
// A table is `{ rows, columns, vectors }`: rows are objects; `columns` are their names; `vectors` are the choices for
// the vector, each with a name and a function from a row to its numbers.

import { Problem, readFile } from "./api.js";
import { fromBase64 } from "./bytes.js";

const MOST_BYTES = 100 * 2 ** 20;
const LOOKED_AT = 50; // rows that tell which columns there are

/** Read a file as a table. */
export async function readTable(file) {
  if (file.size > MOST_BYTES) {
    const size = Math.round(file.size / 2 ** 20);
    throw new Problem(0, `Expected a file of at most 100 MB, got ${size} MB: “posh import” on the command line takes any size.`);
  }
  const name = file.name.toLowerCase();
  if (name.endsWith(".npy")) return npyTable(await file.arrayBuffer());
  if (/\.(parquet|arrow|feather)$/.test(name)) return convertedTable(await readFile(file));
  const text = (await file.text()).replace(/^\uFEFF/, "");
  if (name.endsWith(".csv")) return tableOf(csvRows(text));
  if (/\.(jsonl|ndjson|json)$/.test(name)) return tableOf(jsonRows(text));
  throw new Problem(0, `Expected a file whose name ends in .jsonl, .json, .csv, .parquet or .npy, got “${file.name}”.`);
}

/** Convert a table to items: ids, vectors and payloads; `own(i)` is the id of row i if no column has ids. */
export function itemsOf({ rows, vectors }, vectorName, idColumn, own, width) {
  const { numbers, used } = vectors.find(({ name }) => name === vectorName);
  const seen = new Map();
  const items = { ids: [], vectors: [], payloads: [], width };
  rows.forEach((row, i) => {
    const vector = numbers(row);
    const wrong = problemOf(vector, items.width);
    if (wrong) throw new Problem(0, `Row ${i + 1}: ${wrong}. Nothing was imported.`);
    items.width ??= vector.length;
    const id = idColumn ? idOf(row[idColumn], i) : own(i);
    const key = JSON.stringify(id);
    if (seen.has(key)) throw new Problem(0, `Row ${i + 1}: expected another id than row ${seen.get(key)} has, got ${key} again. Nothing was imported.`);
    seen.set(key, i + 1);
    items.ids.push(id);
    items.vectors.push(vector);
    items.payloads.push(Object.fromEntries(Object.entries(row).filter(([name]) => name !== idColumn && !used.includes(name))));
  });
  return items;
}

function problemOf(vector, width) {
  if (!vector?.length) return "expected numbers for the vector, got none";
  if (width && vector.length !== width) return `expected ${width} numbers, got ${vector.length}`;
  const wrong = vector.findIndex((value) => typeof value !== "number" || !Number.isFinite(value));
  return wrong < 0 ? null : `expected finite numbers, got ${String(vector[wrong]).slice(0, 30)} at place ${wrong + 1}`;
}

function idOf(value, i) {
  if (!isId(value) || value.length > 512) throw new Problem(0, `Row ${i + 1}: expected an id, a whole number or a text, got ${JSON.stringify(value) ?? "none"}. Nothing was imported.`);
  return value;
}

const ID_NAME = /^(_?ids?|uuid|key|.*_id)$/i;
const isId = (value) => Number.isSafeInteger(value) || (typeof value === "string" && value !== "");

/**
 * Choose the column of ids as “posh import” does: the only one with the name of an id, where “id” itself comes first.
 * Return it, null for row numbers or undefined if the user must choose, and a sentence about the choice.
 */
export function chooseId({ rows, columns }) {
  const named = columns.filter((name) => ID_NAME.test(name));
  const exact = named.filter((name) => name.toLowerCase() === "id");
  const candidates = exact.length ? exact : named;
  const isWrong = (value) => value !== undefined && value !== null && value !== "" && !isId(value); // gaps are told by their rows
  const usable = candidates.filter((name) => !rows.some((row) => isWrong(row[name])));
  if (usable.length === 1) return { id: usable[0], note: "" };
  if (usable.length) return { id: undefined, note: `Several columns can be the id: ${usable.join(", ")}.` };
  if (!candidates.length) return { id: null, note: "No column has the name of an id: rows are numbered." };
  const row = rows.findIndex((one) => isWrong(one[candidates[0]]));
  const got = JSON.stringify(rows[row][candidates[0]]).slice(0, 40);
  return { id: undefined, note: `“${candidates[0]}” has the name of an id, but row ${row + 1} has ${got}.` };
}

/** Convert the answer of the service to a table. */
function convertedTable({ rows, columns, vectors }) {
  const places = new Map(rows.map((row, i) => [row, i]));
  const choices = vectors.map(({ name, shape: [, width], float32 }) => {
    const all = new Float32Array(fromBase64(float32).buffer);
    return { name, used: [name], numbers: (row) => all.subarray(places.get(row) * width, (places.get(row) + 1) * width) };
  });
  return { rows, columns, vectors: choices };
}

function tableOf(rows) {
  if (!rows.length) throw new Problem(0, "Expected a file with rows, got an empty one.");
  const columns = [...new Set(rows.slice(0, LOOKED_AT).flatMap((row) => Object.keys(row)))];
  const lists = columns.filter((name) => rows.slice(0, LOOKED_AT).some((row) => asNumbers(row[name])?.length > 1));
  const vectors = [
    ...lists.map((name) => ({ name, used: [name], numbers: (row) => asNumbers(row[name]) })),
    ...series(columns).map((used) => ({ name: `${used[0]} … ${used.at(-1)}`, used, numbers: (row) => used.map((name) => row[name]) })),
  ];
  if (!vectors.length) throw new Problem(0, `Expected a column with lists of numbers, got the columns ${columns.slice(0, 10).join(", ")}.`);
  return { rows, columns: columns.filter((name) => !lists.includes(name)), vectors };
}

/** Find columns like x0, x1, x2: the numbers of a vector, in order, as “posh import” does. */
function series(columns) {
  const groups = new Map();
  for (const name of columns) {
    const [, stem] = /^(.*?)\d+$/.exec(name) ?? [];
    if (stem !== undefined) groups.set(stem, [...(groups.get(stem) ?? []), name]);
  }
  const number = (name) => Number(/\d+$/.exec(name)[0]);
  return [...groups.values()].filter((names) => names.length > 1).map((names) => names.sort((a, b) => number(a) - number(b)));
}

/** Return the numbers of a list, or of a text like “[1, 2]” or “1 2”; null for other values. */
function asNumbers(value) {
  if (Array.isArray(value)) return value.every((one) => typeof one !== "string") ? value : null;
  if (typeof value !== "string" || !/^[\s[\]\d+\-.,;eEnaNA]+$/.test(value)) return null;
  const parts = value.replace(/[[\]]/g, " ").split(/[\s,;]+/).filter(Boolean);
  return parts.map(Number);
}

function jsonRows(text) {
  if (text.trimStart().startsWith("[")) {
    const rows = parseJson(text, 1);
    rows.forEach((row, i) => requireObject(row, i));
    return rows;
  }
  const rows = [];
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    const row = parseJson(line, rows.length + 1);
    requireObject(row, rows.length);
    rows.push(row);
  }
  return rows;
}

function parseJson(text, row) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Problem(0, `Row ${row}: expected JSON, got “${text.trim().slice(0, 40)}”: is the file cut off? Nothing was imported.`);
  }
}

function requireObject(row, i) {
  if (row === null || typeof row !== "object" || Array.isArray(row)) {
    throw new Problem(0, `Row ${i + 1}: expected an object like {"id": 1, "vector": [1, 2]}, got ${JSON.stringify(row).slice(0, 40)}. Nothing was imported.`);
  }
}

/** Parse CSV with a line of names; values that are numbers become numbers. */
export function csvRows(text) {
  const [head, ...lines] = csvLines(text);
  if (!head) return [];
  if (head.every((name) => typeof typed(name) === "number") && head.some((name, at) => name !== String(at))) {
    throw new Problem(0, `Expected a first line with the names of the columns, got the values ${head.join(",").slice(0, 60)}: add a line of names.`);
  }
  return lines.map((line, i) => {
    if (line.length !== head.length) {
      throw new Problem(0, `Row ${i + 1}: expected ${head.length} values, got ${line.length}. Nothing was imported.`);
    }
    return Object.fromEntries(head.map((name, at) => [name, typed(line[at])]));
  });
}

function csvLines(text) {
  const lines = [];
  let [line, value, quoted] = [[], "", false];
  const ended = () => {
    line.push(value);
    if (line.length > 1 || line[0] !== "") lines.push(line);
    [line, value] = [[], ""];
  };
  for (let i = 0; i < text.length; i++) {
    const letter = text[i];
    if (quoted && letter === '"' && text[i + 1] === '"') value += text[++i];
    else if (letter === '"' && (quoted || value === "")) quoted = !quoted;
    else if (quoted || !",\n\r".includes(letter)) value += letter;
    else if (letter === ",") {
      line.push(value);
      value = "";
    } else if (letter === "\n") ended();
  }
  if (quoted) throw new Problem(0, `Row ${lines.length}: expected an end of a quoted value, got the end of the file: is it cut off? Nothing was imported.`);
  if (line.length || value) ended();
  return lines;
}

/** Convert a text to a number if JavaScript formats the number in the same way: “007” stays a text. */
const typed = (value) => (/^-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?$/.test(value) && Math.abs(Number(value)) <= Number.MAX_SAFE_INTEGER ? Number(value) : value);

const NUMPY = { "<f4": Float32Array, "<f8": Float64Array, "|u1": Uint8Array, "|i1": Int8Array, "<i4": Int32Array, "<i2": Int16Array };

function npyTable(buffer) {
  const bytes = new Uint8Array(buffer);
  if (bytes[0] !== 0x93 || new TextDecoder("latin1").decode(bytes.subarray(1, 6)) !== "NUMPY") throw new Problem(0, "Expected a .npy file, got something else.");
  const view = new DataView(buffer);
  const [start, length] = bytes[6] > 1 ? [12, view.getUint32(8, true)] : [10, view.getUint16(8, true)];
  const head = new TextDecoder("latin1").decode(bytes.subarray(start, start + length));
  const [, type] = /'descr':\s*'([^']+)'/.exec(head) ?? [];
  const [, n, width] = /'shape':\s*\((\d+),\s*(\d+)\)/.exec(head) ?? [];
  if (!NUMPY[type] || !n || head.includes("'fortran_order': True")) {
    throw new Problem(0, `Expected rows of vectors (n, d) of ${Object.keys(NUMPY).join(", ")}, got ${head.trim().slice(0, 100)}.`);
  }
  const size = NUMPY[type].BYTES_PER_ELEMENT * n * width;
  const data = buffer.slice(start + length);
  if (data.byteLength !== size) throw new Problem(0, `Expected ${size} bytes of numbers, got ${data.byteLength}: is the file cut off?`);
  if (!size) throw new Problem(0, "Expected a file with rows, got an empty one.");
  const all = new NUMPY[type](data);
  const rows = Array.from({ length: Number(n) }, (_, i) => ({ vector: all.subarray(i * width, (i + 1) * width) }));
  return { rows, columns: [], vectors: [{ name: "vector", used: ["vector"], numbers: (row) => row.vector }] };
}
