"""How a search runs: encode, scan, refine, name the documents."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh.codes import Codes
from posh.hashers.base import Hasher, SparseHasher
from posh.index.ivf import Lists
from posh.index.refine import Candidates, Refiner
from posh.index.segments import Mask, Slots, bitmap
from posh.index.state import State
from posh.preprocess import Float32

__all__ = ["Found", "Plan", "allowed_slots", "padded", "run", "scan_kind"]

_QUERIES = 4096  # with tables at once: bounds their memory
_VALUES = 1 << 24  # numbers gathered at once by a refiner

Found = tuple[Slots, Float32]


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    k: int
    oversample: float
    n_probe: int
    n_threads: int
    scoring: str
    query_active: int | None


def run(
    plan: Plan,
    state: State,
    hasher: Hasher[Any],
    refiner: Refiner | None,
    X: npt.NDArray[Any],
    allowed: Mask | None,
) -> Found:
    """Slots and scores of the best documents for X (m, d); ``allowed`` is a mask over slots.

    Both are (m, k), or (m, n) if there are only n documents: see :func:`padded`.
    """
    plan = replace(plan, k=min(plan.k, state.n_live))
    if plan.k == 0:
        return np.empty((len(X), 0), np.int64), np.empty((len(X), 0), np.float32)
    step = _at_once(plan, state, refiner, len(X))
    if len(X) <= step:
        return _search(plan, state, hasher, refiner, X, allowed)
    slots, scores = np.empty((len(X), plan.k), np.int64), np.empty((len(X), plan.k), np.float32)
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        slots[rows], scores[rows] = _search(plan, state, hasher, refiner, X[rows], allowed)
    return slots, scores


def padded(slots: Slots, scores: Float32, k: int) -> Found:
    """Slots or ids and scores with k columns: -1 and -inf where none are left."""
    missing = k - slots.shape[1]
    if missing == 0:
        return slots, scores
    all_slots, all_scores = np.full((len(slots), k), -1), np.full((len(slots), k), -np.inf, np.float32)
    all_slots[:, :-missing], all_scores[:, :-missing] = slots, scores
    return all_slots, all_scores


def _oversampled(k: int, plan: Plan, state: State) -> int:
    """Number of candidates for k results."""
    return math.ceil(min(k * plan.oversample, state.n_live))


def _at_once(plan: Plan, state: State, refiner: Refiner | None, n_queries: int) -> int:
    """Number of queries whose intermediate results are small enough."""
    if refiner:
        candidates = _oversampled(plan.k, plan, state)
        return max(1, min(_QUERIES, _VALUES // (candidates * max(1, refiner.n_kept()))))
    return _QUERIES if plan.scoring == "asymmetric" else max(1, n_queries)


def scan_kind(plan: Plan, hasher: Hasher[Any]) -> str:
    """What the scores are unless they are refined."""
    if plan.scoring == "asymmetric":
        return "asymmetric"
    return "overlap" if isinstance(hasher, SparseHasher) else "equal-bits"


def _search(
    plan: Plan,
    state: State,
    hasher: Hasher[Any],
    refiner: Refiner | None,
    X: npt.NDArray[Any],
    allowed: Mask | None,
) -> Found:
    n_candidates = _oversampled(plan.k, plan, state) if refiner else plan.k
    slots, scores = _scan(plan, state, hasher, X, n_candidates, allowed)
    if refiner:
        candidates = Candidates(slots, state.codes.rows, state.kept.rows)
        scores = refiner.scores(X, candidates, plan.n_threads)
        slots, scores = kernels.best_candidates(slots, scores, plan.k, n_threads=plan.n_threads)
        return slots, refiner.given_back(slots, scores)
    return slots, scores


def _scan(
    plan: Plan, state: State, hasher: Hasher[Any], X: npt.NDArray[Any], k: int, allowed: Mask | None
) -> Found:
    """The k best documents by the plan's scoring."""
    structure, threads = state.structure, plan.n_threads
    if structure is None:
        queries = hasher.encode(X, n_threads=threads)
        passing = _passing(state, allowed)
        return _as_floats(
            *kernels.hamming_topk(
                state.codes.rows, queries.bits, hasher.n_bits, k, passing=passing, n_threads=threads
            )
        )
    if plan.scoring == "overlap":
        assert isinstance(hasher, SparseHasher)
        queries = hasher.encode(X, n_active=plan.query_active, n_threads=threads)
        return _overlap(plan, structure, hasher, queries, X, k, allowed)
    tables = np.ascontiguousarray(hasher.project(X))
    if not isinstance(structure, Lists):
        passing = _passing(state, allowed)
        return kernels.table_topk(state.codes.rows, tables, k, passing=passing, n_threads=threads)
    queries = Codes(kernels.winners(tables, plan.query_active or 1), hasher.n_bits)
    slots, _ = _overlap(plan, structure, hasher, queries, X, _oversampled(k, plan, state), allowed)
    scores = kernels.table_scores(state.codes.rows, tables, slots, n_threads=threads)
    return kernels.best_candidates(slots, scores, k, n_threads=threads)


def _overlap(
    plan: Plan,
    structure: Any,
    hasher: Hasher[Any],
    queries: Codes,
    X: npt.NDArray[Any],
    k: int,
    allowed: Mask | None,
) -> Found:
    if isinstance(structure, Lists):
        probes = structure.probe(X, hasher.preprocess_, plan.n_probe, n_threads=plan.n_threads)
        return _as_floats(*structure.search(queries, k, probes, n_threads=plan.n_threads, allowed=allowed))
    return _as_floats(*structure.search(queries, k, n_threads=plan.n_threads, allowed=allowed))


def _as_floats(slots: Slots, scores: npt.NDArray[np.int32]) -> Found:
    floats = scores.astype(np.float32)
    if slots.size and slots[:, -1].min() < 0:  # what is missing is at the end
        floats[slots < 0] = -np.inf
    return slots, floats


def _passing(state: State, allowed: Mask | None) -> npt.NDArray[np.uint64] | None:
    if allowed is None and state.n_live == state.ids.n:
        return None
    return bitmap(state.live.rows if allowed is None else state.live.rows & allowed)


def allowed_slots(wanted: npt.ArrayLike, state: State) -> Mask:
    """The mask over slots that a filter means."""
    array = np.asarray(wanted)
    ids = state.ids.rows
    if array.ndim != 1 or array.dtype.kind not in "bui":
        raise ValueError(
            "expected filter to be a boolean mask by id or a 1-D array of ids, "
            f"got {array.dtype} {array.shape}"
        )
    if array.dtype.kind != "b":
        return np.isin(ids, array)
    if len(array) > ids.max(initial=-1):
        return np.asarray(array[ids])
    largest = ids[state.live.rows].max(initial=-1)
    if len(array) <= largest:
        raise ValueError(
            f"expected a mask longer than the largest id ({largest}), got length {len(array)}: "
            "give one entry per id, or an array of ids"
        )
    covering = np.append(array, False)  # ids beyond the mask are of removed documents
    return np.asarray(covering[np.minimum(ids, len(array))])
