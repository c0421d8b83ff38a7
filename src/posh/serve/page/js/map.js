// A map of the collection: a sample of items near their neighbours, with the query and its neighbours on it.

import * as api from "./api.js";
import { hue, paintScale } from "./colours.js";
import { drawMap, onCanvas } from "./map_drawing.js";
import { makePlacer } from "./map_places.js";
import { element } from "./pictures.js";
import { words } from "./payloads.js";

const byId = (id) => document.getElementById(id);
const REACH = 14; // pixels around a point in which it is meant
const ZOOM = 1.5;
const FARTHEST = 60;

/** Turn the canvas into a map; `choose(id)` is called for an item that is clicked. */
export function makeMap(canvas, choose) {
  const map = { data: null, place: null, field: null, only: null, query: null, hits: [], marked: null, scale: 1, x: 0, y: 0 };
  const draw = () => drawMap(canvas, map);
  const moved = () => {
    map.marked = null;
    byId("map-hover").hidden = true;
    draw();
  };
  const zoom = (factor, at = { x: 0.5, y: 0.5 }) => {
    const scale = Math.min(FARTHEST, Math.max(1, map.scale * factor));
    [map.x, map.y] = ["x", "y"].map((axis) => at[axis] - ((at[axis] - map[axis]) * scale) / map.scale);
    map.scale = scale;
    if (scale === 1) [map.x, map.y] = [0, 0];
    moved();
  };
  wirePointer(canvas, map, { draw, zoom, moved, choose });
  wireKeys(canvas, map, { draw, zoom, choose });
  wireColours(map, draw);
  byId("zoom-in").addEventListener("click", () => zoom(ZOOM));
  byId("zoom-out").addEventListener("click", () => zoom(1 / ZOOM));
  byId("zoom-all").addEventListener("click", () => zoom(0));
  byId("map-grow").addEventListener("click", (event) => {
    const grown = document.querySelector("main").classList.toggle("grown");
    event.target.setAttribute("aria-pressed", String(grown));
    event.target.textContent = grown ? "Reduce" : "Enlarge";
  });
  new ResizeObserver(draw).observe(canvas);
  canvas.paint = draw;

  return {
    /** Show the map of a collection as soon as the service has arranged it. */
    async show(place) {
      if (!place || map.place === place) return;
      Object.assign(map, { place, data: null, field: null, only: null, scale: 1, x: 0, y: 0 });
      byId("map-section").hidden = !place.collection.has_items || place.collection.count < 3;
      if (byId("map-section").hidden) return;
      present(null);
      draw();
      const data = await api.map(place.collection.name).catch(() => null); // the page is complete without a map
      if (map.place !== place) return;
      byId("map-section").hidden = !data || data.ids.length < 3;
      if (byId("map-section").hidden) return;
      map.data = prepare(data);
      map.field = data.fields[0] ?? null;
      present(map);
      draw();
    },
    /** Highlight a query and its neighbours. */
    light(query, hits) {
      [map.query, map.hits, map.marked] = [query, hits, null];
      draw();
    },
  };
}

/** Scale points to [0, 1], y downwards; return them and the function that places other vectors. */
function prepare(data) {
  const [xs, ys] = [0, 1].map((axis) => data.points.map((point) => point[axis]));
  const [left, right, low, high] = [min(xs), max(xs), min(ys), max(ys)];
  const size = Math.max(right - left, high - low) * 1.08 || 1;
  const [cx, cy] = [(left + right) / 2, (low + high) / 2];
  const places = data.points.map(([x, y]) => ({ x: 0.5 + (x - cx) / size, y: 0.5 - (y - cy) / size }));
  return { ...data, places, placeOf: makePlacer(data, places) };
}

const min = (values) => values.reduce((one, other) => Math.min(one, other));
const max = (values) => values.reduce((one, other) => Math.max(one, other));

/** Show what belongs to a map, or without one that it is being arranged. */
function present(map) {
  byId("map-wait").hidden = Boolean(map);
  for (const id of ["map-legend", "map-about"]) byId(id).hidden = !map;
  document.querySelector(".zoom").hidden = !map;
  byId("map-colour").hidden = !map?.data.fields.length;
  if (!map) return;
  const { ids, count, fields } = map.data;
  byId("map-colour").replaceChildren(...fields.map(({ name }) => element("option", { value: name }, `by ${name}`)), element("option", { value: "" }, "one colour"));
  const what = ids.length < count ? `${ids.length.toLocaleString("en")} of ${count.toLocaleString("en")} items` : `All ${ids.length} items`;
  byId("map-about").textContent = `${what}; near ones are neighbours. Scroll or + and − zoom, dragging moves, arrow keys mark an item, Enter finds its neighbours.`;
  showLegend(map);
}

function wireColours(map, draw) {
  byId("map-colour").addEventListener("change", ({ target }) => {
    map.field = map.data.fields.find(({ name }) => name === target.value) ?? null;
    map.only = null;
    showLegend(map);
    draw();
  });
  byId("map-legend").addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    if (!button) return;
    const i = Number(button.dataset.value);
    map.only = map.only === i ? null : i;
    for (const one of byId("map-legend").querySelectorAll("button")) one.setAttribute("aria-pressed", String(Number(one.dataset.value) === map.only));
    draw();
  });
}

function showLegend({ field }) {
  byId("map-legend").replaceChildren(...(!field ? [] : field.values ? valuesOf(field) : [scaleOf(field)]));
}

function valuesOf({ values, of }) {
  const named = values.map((value, i) => [words(value), i]);
  return [...named, ...(of.includes(-1) ? [["others", -1]] : [])].map(([text, i]) => {
    const button = element("button", { type: "button", "aria-pressed": "false", "data-value": String(i) }, swatch((context) => {
      context.fillStyle = hue(i);
      context.fillRect(0, 0, 12, 12);
    }), text);
    return element("li", {}, button);
  });
}

function scaleOf({ low, high }) {
  const bar = swatch((context, { width, height }) => paintScale(context, width, height), 200);
  return element("li", { class: "scale" }, words(low), bar, words(high));
}

function swatch(paint, width = 12) {
  const canvas = element("canvas", { width, height: 12, "aria-hidden": "true" });
  canvas.paint = () => paint(canvas.getContext("2d"), canvas);
  canvas.paint();
  return canvas;
}

const nameOf = ({ titles, ids }, i) => String(titles[i] ?? ids[i]);

/** Format the value of the colouring field of an item: “topic: noun.food”; empty if its name says it. */
function valueOf({ data, field }, i) {
  if (!field) return "";
  const value = field.values ? field.values[field.of[i]] : field.of[i];
  return value === undefined || value === null || String(value) === nameOf(data, i) ? "" : `${field.name}: ${words(value)}`;
}

function nearest(map, canvas, at) {
  let best = { i: null, distance: REACH };
  map.data?.places.forEach((place, i) => {
    const [x, y] = onCanvas(map, place, canvas);
    const distance = Math.hypot(x - at.x, y - at.y);
    if (distance < best.distance) best = { i, distance };
  });
  return best.i;
}

function mark(map, canvas, i) {
  map.marked = i;
  const label = byId("map-hover");
  label.hidden = i === null;
  if (i === null) return;
  const value = valueOf(map, i);
  label.replaceChildren(nameOf(map.data, i), ...(value ? [element("span", {}, value)] : []));
  const [x, y] = onCanvas(map, map.data.places[i], canvas);
  label.style.left = `${Math.max(0, Math.min(x + 10, canvas.clientWidth - label.offsetWidth))}px`;
  label.style.top = `${y > canvas.clientHeight - 70 ? y - 12 - label.offsetHeight : y + 12}px`;
}

function wirePointer(canvas, map, { draw, zoom, moved, choose }) {
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  let from = null;
  let dragged = false;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    [from, dragged] = [at(event), false];
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = at(event);
    if (from && (dragged || Math.hypot(now.x - from.x, now.y - from.y) > 4)) {
      dragged = true;
      map.x += (now.x - from.x) / canvas.clientWidth;
      map.y += (now.y - from.y) / canvas.clientHeight;
      from = now;
      moved();
    } else if (!from) {
      mark(map, canvas, nearest(map, canvas, now));
      draw();
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    const meant = from && !dragged ? nearest(map, canvas, at(event)) : null;
    from = null;
    if (meant !== null) choose(map.data.ids[meant]);
  });
  for (const end of ["pointercancel", "pointerleave"]) {
    canvas.addEventListener(end, () => {
      from = null;
      moved();
    });
  }
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const { x, y } = at(event);
      zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, { x: x / canvas.clientWidth, y: y / canvas.clientHeight });
    },
    { passive: false },
  );
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function wireKeys(canvas, map, { draw, zoom, choose }) {
  canvas.addEventListener("keydown", (event) => {
    if (!map.data) return;
    if (event.key === "+") zoom(ZOOM);
    else if (event.key === "-") zoom(1 / ZOOM);
    else if (event.key === "Enter" && map.marked !== null) choose(map.data.ids[map.marked]);
    else if (event.key in ARROWS) {
      mark(map, canvas, next(map, ARROWS[event.key]));
      byId("map-said").textContent = [nameOf(map.data, map.marked), valueOf(map, map.marked)].filter(Boolean).join(", ");
      draw();
    } else return;
    event.preventDefault();
  });
}

/** Find the next item from the marked one in a direction; the first one is in the middle. */
function next({ data, marked, x, y, scale }, [dx, dy]) {
  const start = marked === null ? { x: (0.5 - x) / scale, y: (0.5 - y) / scale } : data.places[marked];
  let best = { i: marked ?? 0, cost: Infinity };
  data.places.forEach((place, i) => {
    const [along, across] = [(place.x - start.x) * dx + (place.y - start.y) * dy, (place.x - start.x) * dy - (place.y - start.y) * dx];
    const cost = marked === null ? Math.hypot(along, across) : along > 1e-9 ? along + 2 * Math.abs(across) : Infinity;
    if (cost < best.cost) best = { i, cost };
  });
  return best.i;
}
