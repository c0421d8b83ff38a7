// A map of the collection: a sample of items in a plane, with the query and its neighbours on it.

import * as api from "./api.js";
import { drawMap, hue, onCanvas } from "./map_drawing.js";
import { element } from "./pictures.js";
import { words } from "./payloads.js";

const byId = (id) => document.getElementById(id);
const REACH = 14; // pixels around a point in which it is meant
const ZOOM = 1.5;
const FARTHEST = 60;

/** Turn the canvas into a map; `choose(id)` is called for an item that is clicked. */
export function makeMap(canvas, choose) {
  const map = { data: null, place: null, query: null, hits: [], marked: null, scale: 1, x: 0, y: 0 };
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
  byId("zoom-in").addEventListener("click", () => zoom(ZOOM));
  byId("zoom-out").addEventListener("click", () => zoom(1 / ZOOM));
  byId("zoom-all").addEventListener("click", () => zoom(0));
  new ResizeObserver(draw).observe(canvas);
  canvas.paint = draw;

  return {
    /** Show the map of a collection as soon as it is loaded. */
    async show(place) {
      if (!place || map.place === place) return;
      [map.place, map.data, map.scale, map.x, map.y] = [place, null, 1, 0, 0];
      byId("map-section").hidden = true;
      if (!place.collection.has_items) return;
      const data = await api.map(place.collection.name).catch(() => null); // the page is complete without a map
      if (!data || map.place !== place || data.ids.length < 3) return;
      map.data = prepare(data);
      byId("map-section").hidden = false;
      explain(data);
      draw();
    },
    /** Highlight a query and its neighbours. */
    light(query, hits) {
      [map.query, map.hits, map.marked] = [query?.vector ?? null, hits, null];
      draw();
    },
  };
}

/** Scale points to [0, 1], y downwards; return them and the scaling. */
function prepare(data) {
  const [xs, ys] = [0, 1].map((axis) => data.points.map((point) => point[axis]));
  const [left, right, low, high] = [min(xs), max(xs), min(ys), max(ys)];
  const size = Math.max(right - left, high - low) * 1.08 || 1;
  const [cx, cy] = [(left + right) / 2, (low + high) / 2];
  const placed = ([x, y]) => ({ x: 0.5 + (x - cx) / size, y: 0.5 - (y - cy) / size });
  return { ...data, placed, places: data.points.map(placed) };
}

const min = (values) => values.reduce((one, other) => Math.min(one, other));
const max = (values) => values.reduce((one, other) => Math.max(one, other));

function explain({ ids, count, group, groups }) {
  const what = ids.length < count ? `${ids.length.toLocaleString("en")} of ${count.toLocaleString("en")} items` : `All ${ids.length} items`;
  byId("map-about").textContent =
    `${what}, by the two directions in which their vectors differ most${group ? `, coloured by ${group}` : ""}. ` +
    "Scroll or + and − zoom, dragging moves. Arrow keys mark an item, Enter finds its neighbours.";
  const rows = groups.map((value, i) => {
    const dot = element("canvas", { width: 12, height: 12, "aria-hidden": "true" });
    dot.paint = () => {
      const context = dot.getContext("2d");
      context.fillStyle = hue(i, groups.length);
      context.fillRect(0, 0, 12, 12);
    };
    dot.paint();
    return element("li", {}, dot, ` ${words(value)}`);
  });
  byId("map-legend").replaceChildren(...rows);
}

const nameOf = ({ titles, ids, group, groups, group_of: of }, i) =>
  `${titles[i] ?? ids[i]}${group && of[i] >= 0 && titles[i] !== groups[of[i]] ? ` (${group} ${words(groups[of[i]])})` : ""}`;

function nearest(map, canvas, at) {
  let best = { i: null, distance: REACH };
  map.data?.places.forEach((place, i) => {
    const [x, y] = onCanvas(map, place, canvas.clientWidth);
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
  label.textContent = nameOf(map.data, i);
  const [x, y] = onCanvas(map, map.data.places[i], canvas.clientWidth);
  label.style.left = `${Math.max(0, Math.min(x + 10, canvas.clientWidth - label.offsetWidth))}px`;
  label.style.top = `${y > canvas.clientHeight - 50 ? y - 36 : y + 12}px`;
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
      map.y += (now.y - from.y) / canvas.clientWidth;
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
      zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, { x: x / canvas.clientWidth, y: y / canvas.clientWidth });
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
      byId("map-said").textContent = nameOf(map.data, map.marked);
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
