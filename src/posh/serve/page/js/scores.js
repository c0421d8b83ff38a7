// Scores, formatted by their metric.

const EXPLAINED = {
  overlap: "Scores are shared bits.",
  "equal-bits": "Scores are equal bits.",
  asymmetric: "Scores are the query's projection, summed over the set bits of an item.",
  decoder: "Distances are to the items as decoded from their codes.",
  sbiht: "Distances are to the items as decoded from their codes.",
  euclidean: "Distances are between vectors.",
  cosine: "Cosines are of the angle between vectors.",
  dot: "Products are inner products of vectors.",
  bm25: "Scores are bm25: words that few items have count more.",
};
const DISTANCES = ["decoder", "sbiht", "euclidean"];

/** Format a score: “cosine 0.83”. */
export function formatScore({ score }, kind) {
  if (score === null) return "no score";
  if (kind === "overlap") return `${score} shared bits`;
  if (kind === "equal-bits") return `${score} equal bits`;
  if (kind === "cosine") return `cosine ${score.toFixed(2)}`;
  if (kind === "bm25") return `bm25 ${short(score)}`;
  if (kind === "dot") return `product ${short(score)}`;
  if (DISTANCES.includes(kind)) return `distance ${short(Math.sqrt(Math.max(0, -score)))}`;
  return `score ${short(score)}`;
}

/** Explain the scores of a kind. */
export const explainScores = (kind) => EXPLAINED[kind] ?? `Scores: ${kind}.`;

/** Format “28 of 32 bits shared”; null without codes. */
export function sharedBits(hit, shared) {
  if (!hit.code || !shared.size) return null;
  return `${hit.code.filter((bit) => shared.has(bit)).length} of ${hit.code.length} bits shared`;
}

/** Format a number with four significant digits. */
export function short(value) {
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}

/** Format a time in milliseconds. */
export function milliseconds(seconds) {
  const value = 1000 * seconds;
  return `${value < 10 ? value.toPrecision(2) : Math.round(value)} ms`;
}
