"""How a search runs: the structure finds candidates, the refiner puts them in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh.index import string_ids
from posh.index.code_index import Queries, SlotScores
from posh.index.documents import Documents
from posh.index.params import SearchParams
from posh.index.refine import CandidateDocuments, Refiner
from posh.index.sliced import Mask
from posh.index.string_ids import IdsLike

__all__ = ["Searched", "allowed_slots", "find", "padded"]

_QUERIES = 4096  # with tables at once: bounds their memory
_VALUES = 1 << 24  # numbers gathered at once by a refiner


class Searched(NamedTuple):
    """What is searched: documents, their refiner, and which slots may be found (None: all)."""

    documents: Documents
    refiner: Refiner | None
    allowed: Mask | None


def find(searched: Searched, queries: Queries, params: SearchParams) -> SlotScores:
    """The best documents of queries (m, d): (m, k), or (m, n) if there are only n; see :func:`padded`."""
    m, k = len(queries.vectors), min(params.k, searched.documents.n_live)
    if k == 0:
        return SlotScores.none(m)
    params = params.with_k(k)
    step = _at_once(searched, params, m)
    if m <= step:
        return _find(searched, queries, params)
    slots, scores = np.empty((m, k), np.int64), np.empty((m, k), np.float32)
    for start in range(0, m, step):
        rows = slice(start, start + step)
        some = queries._replace(vectors=queries.vectors[rows])
        slots[rows], scores[rows] = _find(searched, some, params)
    return SlotScores(slots, scores)


def padded(slots: npt.NDArray[Any], scores: npt.NDArray[Any], k: int) -> SlotScores:
    """Slots or ids and scores with k columns: -1 (None among objects) and -inf where none are left."""
    missing = k - slots.shape[1]
    if missing == 0:
        return SlotScores(slots, scores)
    nobody = None if slots.dtype == object else -1
    all_slots = np.full((len(slots), k), nobody, slots.dtype)
    all_scores = np.full((len(slots), k), -np.inf, np.float32)
    all_slots[:, :-missing], all_scores[:, :-missing] = slots, scores
    return SlotScores(all_slots, all_scores)


def _at_once(searched: Searched, params: SearchParams, n_queries: int) -> int:
    """Number of queries whose intermediate results are small enough."""
    if searched.refiner:
        n_candidates = params.oversampled(searched.documents.n_live).k
        return max(1, min(_QUERIES, _VALUES // (n_candidates * max(1, searched.refiner.row_width()))))
    return _QUERIES if params.scoring == "asymmetric" else max(1, n_queries)


def _find(searched: Searched, queries: Queries, params: SearchParams) -> SlotScores:
    documents, refiner = searched.documents, searched.refiner
    if refiner is None:
        return documents.structure.candidates(queries, params, searched.allowed)
    wider = params.oversampled(documents.n_live)
    slots, _ = documents.structure.candidates(queries, wider, searched.allowed)
    candidates = CandidateDocuments(slots, documents.structure.codes.rows, documents.refiner_rows.rows)
    scores = refiner.scores(queries.vectors, candidates, queries.n_threads)
    slots, scores = kernels.best_candidates(slots, scores, params.k, n_threads=queries.n_threads)
    return SlotScores(slots, refiner.given_back(slots, scores))


def allowed_slots(wanted: IdsLike, documents: Documents) -> Mask:
    """The mask over slots that a filter means."""
    ids = documents.ids.rows
    if ids.dtype == object:
        return string_ids.mask_of(wanted, ids)
    array = np.asarray(wanted)
    if array.shape == (0,) and array.dtype.kind == "f":  # an empty list
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "bui":
        raise ValueError(
            "expected filter to be a boolean mask by id or a 1-D array of ids, "
            f"got {array.dtype} {array.shape}"
        )
    if array.dtype.kind != "b":
        return np.isin(ids, array)
    if len(array) > ids.max(initial=-1):
        return np.asarray(array[ids])
    largest = ids[documents.live].max(initial=-1)
    if len(array) <= largest:
        raise ValueError(
            f"expected a mask longer than the largest id ({largest}), got length {len(array)}: "
            "give one entry per id, or an array of ids"
        )
    covering = np.append(array, False)  # ids beyond the mask are of deleted documents
    return np.asarray(covering[np.minimum(ids, len(array))])
