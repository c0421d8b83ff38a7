// A pad to draw on, and the drawing as grey values like those of MNIST.

const PEN = 15; // pens side by side are as wide as the pad
const STEP = 28; // steps of the keyboard across the pad

/** Turn the canvas into a pad; `changed` is called after each stroke. */
export function makePad(canvas, changed) {
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const pen = { x: 0, y: 0, down: false };
  const byId = (id) => document.getElementById(id);
  const isEmpty = () => bounds(canvas).width <= 0;
  const label = (empty) => {
    byId("pad-hint").hidden = !empty;
    byId("clear").hidden = empty;
  };
  const clear = () => {
    context.fillStyle = "#000";
    context.fillRect(0, 0, canvas.width, canvas.height);
    [pen.x, pen.y, pen.down] = [canvas.width / 2, canvas.height / 2, false];
    label(true);
  };
  const line = (from, to) => {
    label(false);
    context.strokeStyle = "#fff";
    context.lineWidth = Math.min(canvas.width, canvas.height) / PEN;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y);
    context.stroke();
  };
  wirePen(canvas, line, changed);
  canvas.addEventListener("keydown", (event) => keyed(event, canvas, pen, line, clear, changed));
  new ResizeObserver(() => resize(canvas, context, clear, label)).observe(canvas);
  clear();
  return {
    clear,
    isEmpty,
    greys: (shape) => centred(canvas, shape),
    show: (greys, shape) => {
      draw(canvas, context, greys, shape);
      label(false);
    },
  };
}

function wirePen(canvas, line, changed) {
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: ((event.clientX - box.left) * canvas.width) / box.width, y: ((event.clientY - box.top) * canvas.height) / box.height };
  };
  let last = null;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = at(event);
    line(last, last);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!last) return;
    const next = at(event);
    line(last, next);
    last = next;
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, () => {
      if (last) changed();
      last = null;
    });
  }
}

/** Give the pad as many pixels as it has on the screen, and keep the drawing, in the middle. */
function resize(canvas, context, clear, label) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width || !height || (width === canvas.width && height === canvas.height)) return;
  const box = bounds(canvas);
  const before = box.width > 0 ? context.getImageData(box.left, box.top, box.width, box.height) : null;
  [canvas.width, canvas.height] = [width, height];
  clear();
  if (!before) return;
  context.putImageData(before, Math.round((width - before.width) / 2), Math.round((height - before.height) / 2));
  label(false);
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function keyed(event, canvas, pen, line, clear, changed) {
  if (event.key === " ") pen.down = !pen.down;
  else if (event.key === "Delete") clear();
  else if (event.key in ARROWS) {
    const [dx, dy] = ARROWS[event.key];
    const from = { x: pen.x, y: pen.y };
    const step = Math.min(canvas.width, canvas.height) / STEP;
    pen.x = Math.min(canvas.width, Math.max(0, pen.x + step * dx));
    pen.y = Math.min(canvas.height, Math.max(0, pen.y + step * dy));
    if (pen.down) line(from, pen);
  } else return;
  event.preventDefault();
  if (pen.down || event.key === "Delete") changed();
}

/** Convert grey values from 0 to 255 to a vector in the range of the collection. */
export const vectorOf = (greys, { low = 0, high = 255 }) => greys.map((grey) => low + (grey / 255) * (high - low));

/** Draw grey values, for instance those of a link. */
function draw(canvas, context, greys, { width, height }) {
  const small = document.createElement("canvas");
  [small.width, small.height] = [width, height];
  const pixels = new ImageData(width, height);
  greys.forEach((grey, i) => pixels.data.set([grey, grey, grey, 255], 4 * i));
  small.getContext("2d").putImageData(pixels, 0, 0);
  const side = Math.min(canvas.width, canvas.height);
  context.drawImage(small, (canvas.width - side) / 2, (canvas.height - side) / 2, side, side);
}

/** Scale the drawing as MNIST does: `box` pixels large, its centre of mass in the middle. */
function centred(canvas, { width, height, box: size = Math.min(width, height) }) {
  const box = bounds(canvas);
  const scale = size / Math.max(box.width, box.height);
  const first = scaled(canvas, box, scale, width, height, 0, 0);
  const mass = centre(first, width, height);
  return scaled(canvas, box, scale, width, height, width / 2 - mass.x, height / 2 - mass.y);
}

function bounds(canvas) {
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  let [left, top, right, bottom] = [width, height, 0, 0];
  for (let i = 0; i < width * height; i++) {
    if (!data[4 * i]) continue;
    left = Math.min(left, i % width);
    right = Math.max(right, (i % width) + 1);
    top = Math.min(top, Math.floor(i / width));
    bottom = Math.max(bottom, Math.floor(i / width) + 1);
  }
  return { left, top, width: right - left, height: bottom - top };
}

function scaled(canvas, box, scale, width, height, dx, dy) {
  const small = document.createElement("canvas");
  [small.width, small.height] = [width, height];
  const context = small.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  const [w, h] = [box.width * scale, box.height * scale];
  context.drawImage(canvas, box.left, box.top, box.width, box.height, (width - w) / 2 + dx, (height - h) / 2 + dy, w, h);
  const { data } = context.getImageData(0, 0, width, height);
  return Array.from({ length: width * height }, (_, i) => data[4 * i]);
}

function centre(grey, width, height) {
  let [sum, x, y] = [0, 0, 0];
  grey.forEach((value, i) => {
    sum += value;
    x += value * ((i % width) + 0.5);
    y += value * (Math.floor(i / width) + 0.5);
  });
  return sum ? { x: x / sum, y: y / sum } : { x: width / 2, y: height / 2 };
}
