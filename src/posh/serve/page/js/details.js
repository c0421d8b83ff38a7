// One hit in full: its payload, its score, and its code next to that of the query.

import { element, raster, strip } from "./pictures.js";
import { isOwn, listValues, nameOf } from "./payloads.js";
import { explainScores, formatScore, sharedBits } from "./scores.js";

const byId = (id) => document.getElementById(id);

/** Open the dialog for a hit. */
export function showDetails(hit, place, found) {
  const shared = new Set(found.code ?? []);
  byId("details-title").textContent = nameOf(hit, place);
  const bits = sharedBits(hit, shared);
  byId("details-body").replaceChildren(
    element("p", {}, `Item ${JSON.stringify(hit.id)}: ${formatScore(hit, found.kind)}${bits ? `, ${bits}` : ""}.`),
    element("p", { class: "hint" }, explainScores(found.kind)),
    ...elsewhere(hit, place),
    listValues(hit.payload ?? {}),
    ...(bits ? [element("h3", {}, "Set bits, shared ones first"), strip(hit.code, shared), codes(hit, place, found.code, shared)] : []),
  );
  byId("details").showModal();
}

function codes(hit, { collection }, code, shared) {
  const nBits = collection.hasher.n_bits;
  return element(
    "div",
    { class: "codes" },
    element("figure", {}, raster(code, nBits, new Set(hit.code)), element("figcaption", {}, "Code of the query")),
    element("figure", {}, raster(hit.code, nBits, shared), element("figcaption", {}, "Code of the item")),
  );
}

/** Return a link to a picture of another site, which this page does not load. */
function elsewhere({ payload }, { summary }) {
  const address = payload?.[summary?.image];
  if (typeof address !== "string" || !/^https?:/.test(address) || isOwn(address)) return [];
  const link = element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, "Picture at another site");
  return [element("p", {}, link)];
}
