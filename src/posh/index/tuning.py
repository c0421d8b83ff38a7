"""How much a search finds and what that costs, measured on the documents of an index themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from posh._progress import progress
from posh.index.code_index import SlotScores
from posh.index.sliced import Slots
from posh.model_files import Arrays, expect
from posh.preprocess import Float32

__all__ = ["N_QUERIES", "Effort", "Tuning", "effort_of", "largest_k", "tune"]

N_QUERIES = 1000
"""Documents that are searched for, each among all others."""

_SLACK = 1.25  # if neither slack nor recall are given
_KS = (10, 100)
_SLACKS = (0.75, 1.0, 1.5, 2.0, 3.0)
_OVERSAMPLES = (1.4, 3.0, 8.0)
_RATIO = 1.5  # of one number of lists to the next
_USEFUL, _ENOUGH = 0.6, 0.998  # recalls that somebody may want
_LEAST, _MOST = (1, 1, 0, 1, 0, 0), (2**31, 65_536, 1e6, 1e6, 1, 1)  # what a row may hold
_GAIN = 0.001  # recall that twice as many lists must add at least

if TYPE_CHECKING:
    from posh.index.options import IndexOptions
    from posh.index.params import SearchParams

Search = Callable[[Float32, int, "Effort"], SlotScores]


class Effort(NamedTuple):
    """The parameters of a search: lists to visit, how carefully codes skip, candidates per result."""

    n_probe: int
    slack: float
    oversample: float


@dataclass(frozen=True, eq=False)
class Tuning:
    """What was measured with ``n_docs`` documents.

    ``rows`` (n, 6) are k, n_probe, slack, oversample, recall, and the standard error of the recall. The
    search for k neighbours of ``n_queries`` documents among all others found this share of them.
    """

    n_docs: int
    n_queries: int
    rows: npt.NDArray[np.float64]

    def effort(self, recall: float, k: int, n_features: int) -> Effort | None:
        """The cheapest parameters that find this share of the k nearest; None if only comparing all does.

        The recall must be reached with one standard error to spare: the best of many measurements looks
        better than it is.
        """
        if recall >= 1.0:  # a measurement with some queries cannot promise that for all
            return None
        own = self.rows_of(k)
        able = own[own[:, 4] - own[:, 5] >= recall]
        if not len(able):
            return None
        efforts = (Effort(int(row[1]), float(row[2]), float(row[3])) for row in able)
        return min(efforts, key=lambda effort: cost(effort, k, n_features))

    def row_of(self, effort: Effort, k: int) -> npt.NDArray[np.float64] | None:
        """What was measured with these parameters, if anything was."""
        own = self.rows_of(k)
        same = own[(own[:, 1:4] == effort).all(axis=1)]
        return same[0] if len(same) else None

    def rows_of(self, k: int) -> npt.NDArray[np.float64]:
        """The rows that tell about searches for k: those of the next larger k that was measured."""
        ks = np.unique(self.rows[:, 0])
        measured = ks[min(int(np.searchsorted(ks, k)), len(ks) - 1)]
        return np.asarray(self.rows[self.rows[:, 0] == measured])

    def to_arrays(self) -> Arrays:
        """For files."""
        return {"tuning": self.rows, "tuned_with": np.array([self.n_docs, self.n_queries])}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Tuning:
        """From the arrays of :meth:`to_arrays`; a ValueError or KeyError if they are wrong."""
        n_docs, n_queries = expect(arrays, "tuned_with", np.int64, (2,), low=1).tolist()
        rows = expect(arrays, "tuning", np.float64, (None, 6))
        if not len(rows) or (rows < _LEAST).any() or (rows > _MOST).any():
            raise ValueError("expected a table of measured searches, found other numbers")
        return cls(n_docs, n_queries, rows)


def effort_of(
    params: SearchParams, options: IndexOptions, tuning: Tuning | None, n_features: int
) -> Effort | None:
    """What the parameters of a search say, or else what its recall needs; None if only comparing all does.

    Nothing is measured with few documents: then only comparing all is sure to reach a recall.
    """
    given = (params.n_probe, params.slack, params.oversample)
    if params.recall is not None and given == (None, None, None):
        return None if tuning is None else tuning.effort(params.recall, params.k, n_features)
    return Effort(
        options.n_probe if params.n_probe is None else params.n_probe,
        _SLACK if params.slack is None else params.slack,
        options.oversample if params.oversample is None else params.oversample,
    )


def cost(effort: Effort, k: int, n_features: int) -> float:
    """Roughly proportional to the time of a search; the same on every machine, so that choices are.

    Visiting a list takes longer if more of its documents pass. Candidates are compared column by column.
    """
    return effort.n_probe * (1 + effort.slack) + k * effort.oversample * n_features / 500


def tune(
    search: Search, queries: Float32, own_slots: Slots, true: SlotScores, n_docs: int, n_lists: int
) -> Tuning:
    """Measure with documents as queries (m, d), whose slots are ``own_slots`` (m,).

    ``search`` finds the slots and scores of k + 1 documents: a document finds itself, too. ``true`` are the
    nearest documents of each query, best first, also one more than the largest k that is to be measured.
    """
    rows: list[tuple[float, ...]] = []
    most = true.slots.shape[1] - 1
    for k in [k for k in _KS if k < most] + [most]:
        best = without_own(true, own_slots, k)

        def measured(effort: Effort, k: int = k, best: SlotScores = best) -> tuple[float, ...]:
            found = shares(best.scores, without_own(search(queries, k, effort), own_slots, k).scores)
            return (k, *effort, float(found.mean()), float(found.std()) / math.sqrt(len(found)))

        rows += _ladder(measured, n_lists, f"measuring recall, k={k}")
    return Tuning(n_docs, len(queries), np.array(rows))


def _ladder(
    measured: Callable[[Effort], tuple[float, ...]], n_lists: int, title: str
) -> list[tuple[float, ...]]:
    """Rows for more and more careful searches, as long as these find more."""
    rows: list[tuple[float, ...]] = []
    first = max(1, n_lists // 200)  # lists: fewer find too little
    lines = [(oversample, slack) for oversample in _OVERSAMPLES for slack in _SLACKS]
    for oversample, slack in progress(lines, title, "line"):
        if rows and oversample > rows[-1][3]:
            best = max(rows, key=lambda row: row[4])
            if best[4] >= _ENOUGH:
                break
            # Where the most careful search finds nothing more among more candidates, no other one does.
            if measured(Effort(int(best[1]), best[2], oversample))[4] < best[4] + _GAIN:
                break
        own: list[tuple[float, ...]] = []
        for n_probe in _probes(first, n_lists):
            own.append(measured(Effort(n_probe, slack, oversample)))
            if own[-1][4] >= _ENOUGH or (len(own) > 2 and own[-1][4] < own[-3][4] + _GAIN):
                break
        useful = [row for row in own if row[4] >= _USEFUL] or own[-1:]
        first = max(first, int(useful[0][1] / _RATIO))
        rows += useful
    return rows


def _probes(first: int, n_lists: int) -> Iterator[int]:
    """Numbers of lists, up to all."""
    n = min(first, n_lists)
    while n < n_lists:
        yield n
        n = min(n_lists, math.ceil(n * _RATIO))
    yield n_lists


def largest_k(n_docs: int) -> int:
    """The largest k that is measured among so many documents."""
    return max(1, min(_KS[-1], n_docs - 1))


def without_own(found: SlotScores, own_slots: Slots, k: int) -> SlotScores:
    """The k best (m, k) of more, without the query's own slot."""
    order = np.argsort(found.slots == own_slots[:, None], axis=1, kind="stable")[:, :k]
    return SlotScores(
        np.take_along_axis(found.slots, order, axis=1), np.take_along_axis(found.scores, order, axis=1)
    )


def shares(true: Float32, found: Float32) -> npt.NDArray[np.float64]:
    """The share of the k nearest that each query has found, from the scores (m, k) of both, best first.

    A document counts if its score is as good as that of the k-th nearest, up to rounding: equal ones may
    take each other's places.

    >>> import numpy as np
    >>> shares(np.float32([[0.9, 0.8]]), np.float32([[0.9, 0.7]]))
    array([0.5])
    """
    rounding = 4e-6 * np.abs(true).max(axis=1, keepdims=True).astype(np.float64)
    return np.asarray((found >= true[:, -1:] - rounding).mean(axis=1))
