// One hit in full: its payload, its score, and its code next to that of the query.

import { element, image, raster, strip } from "./pictures.js";
import { isOwn, listValues, nameOf, picture } from "./payloads.js";
import { explainScores, formatScore, sharedBits } from "./scores.js";

const byId = (id) => document.getElementById(id);

/** Open the dialog for a hit; `choose(hit)` searches for its neighbours. */
export function showDetails(hit, place, found, choose) {
  const shared = new Set(found.code ?? []);
  byId("details-title").textContent = nameOf(hit, place);
  const bits = sharedBits(hit, shared);
  const button = element("button", { class: "primary", type: "button" }, "Find its neighbours");
  button.addEventListener("click", () => {
    byId("details").close();
    choose(hit);
  });
  const shown = [
    image(hit.vector, place.metadata, `Item ${hit.id}`) ?? picture(hit.payload?.[place.summary?.image], nameOf(hit, place)),
    element("p", {}, `Item ${JSON.stringify(hit.id)}: ${formatScore(hit, found.kind)}${bits ? `, ${bits}` : ""}.`),
    element("p", { class: "hint" }, explainScores(found.kind)),
    element("p", { class: "buttons" }, button),
    ...elsewhere(hit, place),
    listValues(hit.payload ?? {}),
    ...(bits ? [element("h3", {}, "Set bits, shared ones first"), strip(hit.code, shared), codes(hit, place, found.code, shared)] : []),
  ];
  byId("details-body").replaceChildren(...shown.filter(Boolean));
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
