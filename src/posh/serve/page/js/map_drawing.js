// Drawing of the map.

import { hue, scaleColour } from "./colours.js";
import { words } from "./payloads.js";

const FAINT = 0.14; // opacity of items that are not the chosen ones
const BEHIND = 0.4; // of all items, behind hits

/** Convert a place on the map to pixels of the canvas; the map is a square in its middle. */
export function onCanvas({ x: left, y: top, scale }, { x, y }, { clientWidth: width, clientHeight: height }) {
  const side = Math.min(width, height);
  return [left * width + scale * ((width - side) / 2 + x * side), top * height + scale * ((height - side) / 2 + y * side)];
}

/** Draw the sample, then the query and its neighbours. */
export function drawMap(canvas, map) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width) return;
  const density = devicePixelRatio;
  [canvas.width, canvas.height] = [Math.round(width * density), Math.round(height * density)];
  if (!map.data) return;
  const context = canvas.getContext("2d");
  context.scale(density, density);
  const colours = getComputedStyle(document.documentElement);
  const colour = (name) => colours.getPropertyValue(name);
  const { data } = map;
  const crowd = data.ids.length < 300 ? 2 : data.ids.length < 2000 ? 1.3 : 1;
  const radius = Math.min(7, 1.5 * crowd * Math.sqrt(map.scale) * Math.sqrt(Math.min(width, height) / 400));
  drawItems(context, map, canvas, radius, colour);
  if (!map.hits.length) labels(context, map, canvas, colour);
  light(context, map, canvas, colour);
  if (map.marked !== null) ring(context, onCanvas(map, data.places[map.marked], canvas), radius + 3, colour("--ink"));
}

function drawItems(context, map, canvas, radius, colour) {
  const opacity = map.hits.length ? BEHIND : 0.85;
  const paint = colouring(map.field);
  map.data.places.forEach((place, i) => {
    const is = map.only === null || map.field.of[i] === map.only;
    context.globalAlpha = is ? opacity : FAINT;
    context.fillStyle = paint(i);
    dot(context, onCanvas(map, place, canvas), radius);
  });
  context.globalAlpha = 1;
}

/** Return a function from the number of an item to its colour. */
function colouring(field) {
  if (!field) return () => hue(0);
  if (field.values) {
    const painted = field.values.map((_, i) => hue(i));
    const others = hue(-1);
    return (i) => painted[field.of[i]] ?? others;
  }
  const none = hue(-1);
  return (i) => (typeof field.of[i] === "number" ? scaleColour((field.of[i] - field.low) / (field.high - field.low)) : none);
}

/** Write each value where the most of its items are, unless it would cover another one. */
function labels(context, map, canvas, colour) {
  const { field, data } = map;
  if (!field?.values) return;
  context.font = "600 13px Inter, system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineWidth = 4;
  context.lineJoin = "round";
  const taken = [];
  const groups = field.values.map((value, k) => ({ value, k, members: data.places.filter((_, i) => field.of[i] === k) }));
  for (const { value, k, members } of groups.sort((one, other) => other.members.length - one.members.length)) {
    if (!members.length || (map.only !== null && map.only !== k)) continue;
    const [x, y] = onCanvas(map, densest(members), canvas);
    const half = context.measureText(words(value)).width / 2 + 4;
    if (taken.some((one) => Math.abs(one.x - x) < one.half + half && Math.abs(one.y - y) < 18)) continue;
    taken.push({ x, y, half });
    context.strokeStyle = colour("--card");
    context.strokeText(words(value), x, y);
    context.fillStyle = colour("--ink");
    context.fillText(words(value), x, y);
  }
}

const CELLS = 12; // of the grid in which items are counted, per side

/** Return the middle of the items in the fullest part of the map. */
function densest(members) {
  const cells = new Map();
  for (const place of members) {
    const key = Math.floor(place.x * CELLS) * CELLS + Math.floor(place.y * CELLS);
    cells.set(key, [...(cells.get(key) ?? []), place]);
  }
  const around = (key) => [-1, 0, 1].flatMap((dx) => [-1, 0, 1].flatMap((dy) => cells.get(key + dx * CELLS + dy) ?? []));
  const fullest = [...cells.keys()].map(around).reduce((one, other) => (other.length > one.length ? other : one));
  const mean = (axis) => fullest.reduce((sum, place) => sum + place[axis], 0) / fullest.length;
  return { x: mean("x"), y: mean("y") };
}

function light(context, map, canvas, colour) {
  const centre = map.query && map.data.placeOf(map.query.id, map.query.vector);
  const from = centre && onCanvas(map, centre, canvas);
  const places = map.hits.map((hit) => map.data.placeOf(hit.id, hit.vector)).filter(Boolean).map((place) => onCanvas(map, place, canvas));
  if (from) for (const to of places) line(context, from, to, colour("--shared"));
  for (const to of places) {
    context.fillStyle = colour("--shared");
    dot(context, to, 5);
    ring(context, to, 5, colour("--card"));
  }
  if (!from) return;
  context.fillStyle = colour("--ink");
  dot(context, from, 7);
  ring(context, from, 7, colour("--card"));
}

function dot(context, [x, y], radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

function ring(context, [x, y], radius, colour) {
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.stroke();
}

function line(context, from, to, colour) {
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.globalAlpha = 0.5;
  context.beginPath();
  context.moveTo(...from);
  context.lineTo(...to);
  context.stroke();
  context.globalAlpha = 1;
}
