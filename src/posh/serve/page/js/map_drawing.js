// Drawing of the map.

const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

/** Return the colour of a group. */
export function hue(i, n) {
  const lightness = (isDark() ? 66 : 44) + (i % 2 ? 8 : 0);
  return i < 0 ? "gray" : `hsl(${Math.round((360 * i) / Math.max(1, n) + 15)} 65% ${lightness}%)`;
}

/** Convert a place on the map to pixels of the canvas. */
export const onCanvas = (map, { x, y }, side) => [(map.x + x * map.scale) * side, (map.y + y * map.scale) * side];

/** Draw the sample, then the query and its neighbours. */
export function drawMap(canvas, map) {
  const side = canvas.clientWidth;
  if (!map.data || !side) return;
  const density = devicePixelRatio;
  canvas.width = canvas.height = Math.round(side * density);
  const context = canvas.getContext("2d");
  context.scale(density, density);
  const colours = getComputedStyle(document.documentElement);
  const colour = (name) => colours.getPropertyValue(name);
  const { data } = map;
  const radius = Math.min(6, 2.2 * Math.sqrt(map.scale) * (data.ids.length < 300 ? 1.5 : 1));
  context.globalAlpha = map.hits.length ? 0.45 : 0.8;
  data.places.forEach((place, i) => {
    context.fillStyle = data.group ? hue(data.group_of[i], data.groups.length) : colour("--bit");
    dot(context, onCanvas(map, place, side), radius);
  });
  context.globalAlpha = 1;
  light(context, map, side, colour);
  if (map.marked !== null) ring(context, onCanvas(map, data.places[map.marked], side), radius + 3, colour("--ink"));
}

function light(context, map, side, colour) {
  const centre = map.query && where(map.data, map.query);
  const from = centre && onCanvas(map, centre, side);
  for (const hit of map.hits) {
    if (!hit.vector) continue;
    const to = onCanvas(map, where(map.data, hit.vector), side);
    if (from) line(context, from, to, colour("--shared"));
    context.fillStyle = colour("--shared");
    dot(context, to, 5);
    ring(context, to, 5, colour("--card"));
  }
  if (!from) return;
  context.fillStyle = colour("--accent");
  dot(context, from, 7);
  ring(context, from, 7, colour("--card"));
}

/** Project a vector to the plane of the map, which the service has computed. */
function where({ mean, axes, by_direction: byDirection, placed }, vector) {
  const length = byDirection ? Math.hypot(...vector) || 1 : 1;
  return placed(axes.map((axis) => axis.reduce((sum, weight, i) => sum + weight * (vector[i] / length - mean[i]), 0)));
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
