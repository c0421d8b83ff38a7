// Colours of the map. Orange is that of shared bits and of hits, so the map has none near to it.

const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

// Hue, saturation, and the lightness on light and on dark; neighbours in the list differ most.
const HUES = [
  [217, 80, 52, 64], [152, 65, 36, 52], [282, 60, 54, 70], [186, 75, 40, 55], [328, 65, 52, 68], [74, 60, 36, 52],
  [247, 65, 62, 76], [120, 40, 50, 68], [305, 45, 40, 60], [200, 45, 62, 78], [96, 55, 28, 42], [232, 45, 38, 55],
];
const STOPS = [[70, 70], [165, 55], [230, 60], [285, 60]]; // hue and saturation from low to high

/** Return the colour of a value; values without one are grey. */
export function hue(i) {
  if (i < 0) return isDark() ? "#4a525d" : "#b9bfc9";
  const [degrees, saturation, onLight, onDark] = HUES[i % HUES.length];
  return `hsl(${degrees} ${saturation}% ${isDark() ? onDark : onLight}%)`;
}

/** Return the colour of a share from 0 to 1 on the scale of numbers. */
export function scaleColour(share) {
  const at = Math.min(0.9999, Math.max(0, share)) * (STOPS.length - 1);
  const [from, to] = [STOPS[Math.floor(at)], STOPS[Math.floor(at) + 1]];
  const mix = (k) => from[k] + (to[k] - from[k]) * (at % 1);
  return `hsl(${Math.round(mix(0))} ${Math.round(mix(1))}% ${Math.round(isDark() ? 74 - 20 * share : 64 - 26 * share)}%)`;
}

/** Paint the scale of numbers from left to right. */
export function paintScale(context, width, height) {
  for (let x = 0; x < width; x++) {
    context.fillStyle = scaleColour(x / width);
    context.fillRect(x, 0, 1, height);
  }
}
