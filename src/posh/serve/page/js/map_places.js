// Where a vector belongs on the map: an item of the sample at its place, another vector among the items near to it.

import { fromBase64 } from "./bytes.js";

const NEAREST = 5;

/** Return a function from an id and a vector to a place on the map; null if there is no vector. */
export function makePlacer({ ids, by_direction: byDirection, mean, axes, coordinates }, places) {
  const rows = new Map(ids.map((id, i) => [JSON.stringify(id), i]));
  const [m, d] = axes.shape;
  const weights = new Float32Array(fromBase64(axes.float32).buffer);
  const known = new Int8Array(fromBase64(coordinates.int8).buffer);

  return (id, vector) => {
    const row = id === undefined ? undefined : rows.get(JSON.stringify(id));
    if (row !== undefined) return places[row];
    if (!vector) return null;
    const length = byDirection ? Math.hypot(...vector) || 1 : 1;
    const centred = vector.map((value, i) => value / length - mean[i]);
    const target = Array.from({ length: m }, (_, axis) => centred.reduce((sum, value, i) => sum + value * weights[axis * d + i], 0) / coordinates.scale);
    return middle(findNearest(known, target, m), places);
  };
}

function findNearest(known, target, m) {
  const best = [];
  for (let i = 0; i * m < known.length; i++) {
    let distance = 0;
    for (let axis = 0; axis < m; axis++) distance += (known[i * m + axis] - target[axis]) ** 2;
    if (best.length === NEAREST && distance >= best.at(-1).distance) continue;
    best.splice(best.findIndex((one) => one.distance > distance) >>> 0, 0, { i, distance });
    best.length = Math.min(best.length, NEAREST);
  }
  return best;
}

/** Return the place of the item that is nearest to the others: the mean of two groups would be in neither. */
function middle(found, places) {
  const cost = ({ i }) => found.reduce((sum, other) => sum + Math.hypot(places[i].x - places[other.i].x, places[i].y - places[other.i].y), 0);
  return places[found.reduce((one, other) => (cost(other) < cost(one) ? other : one)).i];
}
