// Import a file of items into a collection, in batches.

import * as api from "./api.js";
import { toBase64 } from "./bytes.js";
import { options } from "./controls.js";
import { chooseId, itemsOf, readTable } from "./formats.js";

const byId = (id) => document.getElementById(id);
const ITEMS = 500; // in one request, unless the service takes fewer
const NUMBERS = 2_000_000;
const UNDECIDED = " "; // the value of the choice that must be made
const state = { table: null, file: null, stop: false };

/** Set up the dialog: `collections()` returns the collections, `done(name)` is called when one has new items. */
export function wireImport(collections, done) {
  byId("open-import").addEventListener("click", () => {
    options("import-into", [["", "a new collection"], ...collections().map(({ name }) => [name, name])]);
    forget();
    byId("import").showModal();
  });
  byId("import-close").addEventListener("click", () => byId("import").close());
  byId("import").addEventListener("close", () => (state.stop = true));
  byId("import-into").addEventListener("change", intoChosen);
  byId("import-file").addEventListener("change", () => guard(chosen));
  byId("import-form").addEventListener("submit", (event) => {
    event.preventDefault();
    guard(async () => {
      const name = await importAll(collections());
      byId("import").close();
      await done(name);
    });
  });
}

function forget() {
  [state.table, state.stop] = [null, false];
  byId("import-form").reset();
  for (const id of ["import-columns", "import-progress", "import-problem"]) byId(id).hidden = true;
  byId("import-about").textContent = "";
  intoChosen();
}

function intoChosen() {
  const isNew = !byId("import-into").value;
  for (const id of ["import-name", "import-name-label"]) byId(id).hidden = !isNew;
  byId("import-name").required = isNew;
}

/** Read the file, and offer its columns as vector and id. */
async function chosen() {
  state.table = null;
  byId("import-columns").hidden = true;
  byId("import-about").textContent = "Reading…";
  [state.file] = byId("import-file").files;
  if (!state.file) return;
  const table = (state.table = await readTable(state.file));
  options("import-vector", table.vectors.map(({ name }) => [name, name]));
  const { id, note } = chooseId(table);
  options("import-id", [...(id === undefined ? [[UNDECIDED, "choose…"]] : []), ["", "the number of the row"], ...table.columns.map((name) => [name, name])]);
  byId("import-id").value = id === undefined ? UNDECIDED : (id ?? "");
  byId("import-id-hint").textContent = note;
  byId("import-columns").hidden = false;
  const rest = table.columns.length ? `, with ${table.columns.join(", ")}`.slice(0, 200) : "";
  byId("import-about").textContent = `${table.rows.length.toLocaleString("en")} rows${rest}.`;
  if (!byId("import-name").value) byId("import-name").value = suggested(state.file.name);
}

const suggested = (name) => name.toLowerCase().replace(/\.[^.]*$/, "").replace(/[^a-z0-9_-]+/g, "-").replace(/^[_-]+/, "").slice(0, 64);

/** Validate all rows, then write them; return the name of the collection. */
async function importAll(collections) {
  if (!state.table) throw new api.Problem(0, "Choose a file first.");
  if (byId("import-id").value === UNDECIDED) throw new api.Problem(0, `${byId("import-id-hint").textContent} Choose the column of ids, or number the rows.`);
  const into = collections.find(({ name }) => name === byId("import-into").value);
  const own = into ? (i) => `${state.file.name}:${i + 1}` : (i) => i; // numbers could be those of other items
  const items = itemsOf(state.table, byId("import-vector").value, byId("import-id").value, own, into?.n_features ?? undefined);
  const limits = await api.limits();
  const name = into?.name ?? byId("import-name").value;
  if (!into) await api.create(name, { metadata: { title: name }, index: { metric: "cosine", recall: 0.95 } });
  byId("import-progress").hidden = false;
  await write(name, items, Math.max(1, Math.min(ITEMS, limits.items, Math.floor(NUMBERS / items.width))));
  return name;
}

async function write(name, items, atOnce) {
  const n = items.ids.length;
  for (let start = 0; start < n; start += atOnce) {
    const part = (list) => list.slice(start, start + atOnce);
    try {
      if (state.stop) throw new api.Problem(0, "Stopped.");
      await api.upsert(name, { ids: part(items.ids), vectors: pack(part(items.vectors), items.width), payloads: part(items.payloads) });
    } catch (error) {
      throw new api.Problem(error.status ?? 0, `${error.message} The rows up to ${start.toLocaleString("en")} were imported.`);
    }
    const done = Math.min(n, start + atOnce);
    byId("import-progress").value = done / n;
    byId("import-about").textContent = `${done.toLocaleString("en")} of ${n.toLocaleString("en")} rows written.`;
  }
}

function pack(rows, width) {
  const numbers = new Float32Array(rows.length * width);
  rows.forEach((row, i) => numbers.set(row, i * width));
  return { shape: [rows.length, width], float32: toBase64(new Uint8Array(numbers.buffer)) };
}

/** Run a step, and show its problem in the dialog. */
async function guard(step) {
  const place = byId("import-problem");
  place.hidden = true;
  byId("import-start").disabled = true;
  try {
    await step();
  } catch (error) {
    byId("import-about").textContent = "";
    place.textContent = error.message;
    place.hidden = false;
    if (!(error instanceof api.Problem)) throw error;
  } finally {
    byId("import-start").disabled = false;
  }
}
