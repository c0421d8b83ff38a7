// Items and codes as pictures.

/** Create an element with attributes and children; null children are omitted. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Draw a vector as a grey image; return null if the vectors of this collection are not images. */
export function image(vector, metadata, description) {
  if (!metadata.image || !vector) return null;
  const { width, height, low = 0, high = 255 } = metadata.image;
  const canvas = element("canvas", { width, height, role: "img", "aria-label": description });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(width, height);
  vector.slice(0, width * height).forEach((value, i) => {
    pixels.data.fill((255 * (value - low)) / (high - low), 4 * i, 4 * i + 3);
    pixels.data[4 * i + 3] = 255;
  });
  context.putImageData(pixels, 0, 0);
  return canvas;
}

const CELL = 8;
const STRIP = 16; // cells in a row of a strip
const MOST = 64; // cells of a strip: more of them are counted, not drawn

/** Draw all bits of a code as a square, those shared with the query in another colour. */
export function raster(code, nBits, shared = new Set()) {
  const columns = Math.ceil(Math.sqrt(nBits));
  const rows = Math.ceil(nBits / columns);
  const words = `${code.length} of ${nBits} bits set, ${code.filter((bit) => shared.has(bit)).length} shared with the query`;
  return paintCanvas(CELL * columns, CELL * rows, words, "raster", (context, colour) => {
    context.fillStyle = colour("--empty");
    context.fillRect(0, 0, CELL * columns, CELL * rows);
    for (const bit of code) {
      context.fillStyle = colour(shared.has(bit) ? "--shared" : "--bit");
      context.fillRect(CELL * (bit % columns), CELL * Math.floor(bit / columns), CELL - 1, CELL - 1);
    }
  });
}

/** Draw the set bits of a code as a strip, large enough to count: those shared with the query come first. */
export function strip(code, shared) {
  const common = code.filter((bit) => shared.has(bit)).length;
  const step = Math.max(1, code.length / MOST);
  const [full, cells] = [Math.round(common / step), Math.round(code.length / step)];
  const rows = Math.max(1, Math.ceil(cells / STRIP));
  const words = `${common} of ${code.length} set bits shared with the query`;
  return paintCanvas(CELL * STRIP, CELL * rows, words, "strip", (context, colour) => {
    for (let i = 0; i < cells; i++) {
      context.fillStyle = colour(i < full ? "--shared" : "--bit");
      context.globalAlpha = i < full ? 1 : 0.45;
      context.fillRect(CELL * (i % STRIP), CELL * Math.floor(i / STRIP), CELL - 1, CELL - 1);
    }
  });
}

/** Create a canvas that is repainted when the theme changes. */
function paintCanvas(width, height, words, kind, paint) {
  const canvas = element("canvas", { width, height, role: "img", "aria-label": words, title: words, class: kind });
  canvas.paint = () => {
    const colours = getComputedStyle(document.documentElement);
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    paint(context, (name) => colours.getPropertyValue(name));
  };
  canvas.paint();
  return canvas;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const canvas of document.querySelectorAll("canvas")) canvas.paint?.();
});
