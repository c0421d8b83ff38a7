// Items and codes as pictures.

/** An element with attributes and children. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** What an item is called: its name if the collection has names, else its label, else its id. */
export function nameOf(item, metadata) {
  const field = metadata.name ?? metadata.label?.field;
  return String(item.payload?.[field] ?? item.id ?? "your query");
}

/** A vector as a grey image, or nothing if the vectors of this collection are no images. */
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

const CELL = 4;

/** A code as a square of bits, those that the query shares in another colour. */
export function raster(code, nBits, shared = new Set()) {
  const columns = Math.ceil(Math.sqrt(nBits));
  const size = CELL * columns;
  const common = code.filter((bit) => shared.has(bit)).length;
  const words = shared.size ? `${common} of ${code.length} set bits shared with the query` : `${code.length} of ${nBits} bits set`;
  const canvas = element("canvas", { width: size, height: size, role: "img", "aria-label": words, title: words });
  canvas.paint = () => {
    const colours = getComputedStyle(document.documentElement);
    const context = canvas.getContext("2d");
    context.fillStyle = colours.getPropertyValue("--empty");
    context.fillRect(0, 0, size, size);
    for (const bit of code) {
      context.fillStyle = colours.getPropertyValue(shared.has(bit) ? "--shared" : "--bit");
      context.fillRect(CELL * (bit % columns), CELL * Math.floor(bit / columns), CELL - 1, CELL - 1);
    }
  };
  canvas.paint();
  return canvas;
}

// Colours are read when a raster is painted: a change of the theme paints it again.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const canvas of document.querySelectorAll("canvas")) canvas.paint?.();
});
