"""Measure the recall of searches on the documents of an index, and choose the effort that a recall needs.

A true neighbour is found if its list is visited (:mod:`posh.index.reach`) and codes and 8-bit numbers do not
lose it on the way. The two are measured separately, and their shares are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh._progress import progress
from posh.index.code_index import SlotScores
from posh.index.reach import Among, Reach, ReachTable
from posh.index.sliced import Slots
from posh.index.space import Space
from posh.model_files import Arrays, expect
from posh.preprocess import Float32

if TYPE_CHECKING:
    from posh.index.options import IndexOptions
    from posh.index.params import SearchParams

__all__ = [
    "KS",
    "Effort",
    "KnownNeighbours",
    "Measured",
    "Search",
    "Tuning",
    "effort_of",
    "recalls_of",
    "tune",
]

KS = (1, 10, 100, 1000)
"""Numbers of results for which codes are measured."""

_SLACK = 1.25  # if neither slack nor recall are given
_SLACKS = (0.75, 1.0, 1.5, 2.0, 3.0)
_FEW_COLUMNS, _NO_SKIPPING = 8, (100.0,)  # the codes of so few columns say little: they skip nothing
_OVERSAMPLES = (1.4, 3.0, 8.0, 32.0)
_RESULTS = 30_000  # results of the queries that measure codes
_LEAST_QUERIES = 100
_ROUTED = 0.98  # recall of routing while codes are measured
_ENOUGH = 0.9985  # recall of codes: more careful searches are not tried
_GAIN = 0.001  # recall that more candidates must add at least
_ROUNDING = 1e-12  # of scores in float64, relative

Doubles = npt.NDArray[np.float64]
Search = Callable[[Float32, int, "Effort"], SlotScores]


class Effort(NamedTuple):
    """The parameters of a search.

    ``n_probe`` lists are visited, or if it is 0, those whose lift reaches a bound. ``slack`` says how
    carefully codes skip documents, ``oversample`` how many vectors are compared per result.
    """

    n_probe: int
    reach: Reach
    slack: float
    oversample: float


class Measured(NamedTuple):
    """The share of the true k nearest that searches found, its standard error, and the number of queries."""

    k: int
    recall: float
    error: float
    n_queries: int


class KnownNeighbours(NamedTuple):
    """Prepared queries (m, d) that are documents, their slots (m,), and their true neighbours (m, depth).

    Neighbours are best first, without the query itself. ``lists`` (m, depth) are their lists, ``vectors``
    (n_slots, d) those of all documents.
    """

    queries: Float32
    own_slots: Slots
    true: SlotScores
    lists: npt.NDArray[np.int32]
    vectors: npt.NDArray[Any]
    is_distance: bool

    def first(self, n: int) -> KnownNeighbours:
        """Return the first n queries."""
        true = SlotScores(self.true.slots[:n], self.true.scores[:n])
        return self._replace(
            queries=self.queries[:n], own_slots=self.own_slots[:n], true=true, lists=self.lists[:n]
        )

    def shares(self, found: Slots, k: int) -> Doubles:
        """Return the share of its k nearest that each query found, from slots (m, k).

        A document counts that is one of them, or whose score equals that of the k-th. Scores are compared in
        float64: those of neighbours may differ by less than the rounding errors of float32.
        """
        true = self.true.slots[:, :k]
        first = np.arange(len(true))[:, None] * len(self.vectors)
        is_true = np.isin(found + first, true + first)
        rows, columns = np.nonzero(~is_true & (found >= 0))
        last = self._scores(np.arange(len(true)), true[:, -1])
        own = self._scores(rows, found[rows, columns])
        is_true[rows, columns] = own >= last[rows] - _ROUNDING * np.abs(last[rows])
        return np.asarray((is_true & (found >= 0)).mean(axis=1))

    def _scores(self, rows: Slots, slots: Slots) -> Doubles:
        queries, vectors = self.queries[rows].astype(np.float64), self.vectors[slots].astype(np.float64)
        if self.is_distance:
            return np.asarray(-((queries - vectors) ** 2).sum(axis=1))
        return np.asarray((queries * vectors).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Tuning:
    """The measurements of ``n_docs`` documents, with ``n_queries`` of them as queries.

    ``codes`` (n, 4) are k, slack, oversample, and the share of neighbours in visited lists that was found.
    ``measured`` (n, 4) are rows of :class:`Measured` for the recall of the index. ``trained_share`` is the
    share of documents that a search visited when the lists were trained.
    """

    n_docs: int
    n_queries: int
    reach: ReachTable
    codes: Doubles
    measured: Doubles
    trained_share: float

    def effort(
        self, space: Space, recall: float, k: int, rank: float, among: Among = Among.ALL
    ) -> Effort | None:
        """Return the cheapest effort that finds this share; None if only comparing all vectors does.

        ``rank`` is that of the k-th result among all documents, see :class:`~posh.index.reach.ReachTable`.
        """
        if recall >= 1.0:  # a measurement with some queries cannot promise that for all
            return None
        efforts = [
            Effort(0, self.reach.choose(rank, recall / found, among), slack, oversample)
            for slack, oversample, found in self._codes_for(k)
            if found > recall
        ]
        return min(efforts, key=lambda effort: _cost(effort, k, space), default=None)

    def _codes_for(self, k: int) -> Iterator[tuple[float, float, float]]:
        """Yield slack, oversample and the share that codes find, the lower one of the two nearest k."""
        ks = np.unique(self.codes[:, 0])
        above = min(int(np.searchsorted(ks, k)), len(ks) - 1)
        near = {float(ks[above]), float(ks[above if ks[above] == k else max(0, above - 1)])}
        tables = [self.codes[self.codes[:, 0] == own] for own in near]
        for slack, oversample in np.unique(np.concatenate(tables)[:, 1:3], axis=0).tolist():
            # A search that is more careful than one that was measured finds at least as much.
            found = [table[(table[:, 1:3] <= (slack, oversample)).all(axis=1), 3] for table in tables]
            yield slack, oversample, float(min(own.max(initial=0.0) for own in found))

    def rows(self) -> list[Measured]:
        """Return the recalls that were measured, by k."""
        return [Measured(int(k), recall, error, int(n)) for k, recall, error, n in self.measured.tolist()]

    def to_arrays(self) -> Arrays:
        """Return the arrays of a file."""
        return self.reach.to_arrays() | {
            "tuned_with": np.array([self.n_docs, self.n_queries]),
            "tuned_share": np.array(self.trained_share),
            "tuned_codes": self.codes,
            "tuned_recall": self.measured,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Tuning:
        """Return the tuning of :meth:`to_arrays`; raise ValueError or KeyError if it is wrong."""
        n_docs, n_queries = expect(arrays, "tuned_with", np.int64, (2,), low=1).tolist()
        share = float(expect(arrays, "tuned_share", np.float64, ()))
        codes = expect(arrays, "tuned_codes", np.float64, (None, 4))
        measured = expect(arrays, "tuned_recall", np.float64, (None, 4))
        least, most = (1, 0, 1, 0), (2**31, 1e6, 1e6, 1)
        if not len(codes) or (codes < least).any() or (codes > most).any():
            raise ValueError("expected a table of measured searches, found other numbers")
        return cls(n_docs, n_queries, ReachTable.from_arrays(arrays), codes, measured, share)


def effort_of(params: SearchParams, options: IndexOptions) -> Effort | None:
    """Return the effort that a search asks for by its parameters; None if its recall decides."""
    given = (params.n_probe, params.slack, params.oversample)
    if params.recall is not None and given == (None, None, None):
        return None
    return Effort(
        options.n_probe if params.n_probe is None else params.n_probe,
        Reach(1, 0.0, 0.0),
        _SLACK if params.slack is None else params.slack,
        options.oversample if params.oversample is None else params.oversample,
    )


def _cost(effort: Effort, k: int, space: Space) -> float:
    """Return a number roughly proportional to the time of a search; the same on every machine.

    Visiting a list takes longer if more of its documents pass. Candidates are compared column by column.
    """
    visits = effort.reach.share * space.n_lists * (1 + effort.slack)
    return visits + k * effort.oversample * space.n_features / 500


def tune(
    search: Search,
    known: KnownNeighbours,
    reach: ReachTable,
    visited: Callable[[Reach, int], Doubles],
    groups: list[npt.NDArray[np.int64]],
) -> Doubles:
    """Measure the share of neighbours in visited lists that codes find, as rows of ``Tuning.codes``.

    ``search`` returns the slots and scores of k + 1 documents: a document finds itself, too. ``visited``
    returns for each query the share of its k nearest that is in the lists of a reach. The share is that of
    the group of queries that finds the least.
    """
    depth = known.true.slots.shape[1]
    rows: list[tuple[float, ...]] = []
    for k in progress([k for k in KS if k < depth] + [min(depth, KS[-1])], "measuring recall", "k"):
        chosen = reach.choose(k, _ROUTED)
        some = known.first(max(_LEAST_QUERIES, _RESULTS // k))
        routed = visited(chosen, k)
        parts = [group[group < len(some.queries)] for group in groups]

        def find(
            slack: float,
            oversample: float,
            k: int = k,
            chosen: Reach = chosen,
            some: KnownNeighbours = some,
            routed: Doubles = routed,
            parts: list[npt.NDArray[np.int64]] = parts,
        ) -> float:
            found = recalls_of(search, some, k, Effort(0, chosen, slack, oversample))
            shares = [found[part].mean() / max(routed[part].mean(), 1e-9) for part in parts if len(part)]
            return min(1.0, float(min(shares)))

        slacks = _SLACKS if known.queries.shape[1] >= _FEW_COLUMNS else _NO_SKIPPING
        rows += [(k, *row) for row in _measure_codes(find, slacks)]
    return np.array(rows)


def _measure_codes(
    find: Callable[[float, float], float], slacks: tuple[float, ...]
) -> Iterator[tuple[float, float, float]]:
    """Yield slack, oversample and recall for more and more careful searches, as long as these find more."""
    best = 0.0
    for oversample in _OVERSAMPLES:
        before = best
        for slack in slacks:
            found = find(slack, oversample)
            best = max(best, found)
            yield slack, oversample, found
            if found >= _ENOUGH:
                break
        if best >= _ENOUGH or (before and best < before + _GAIN):
            return


def recalls_of(search: Search, known: KnownNeighbours, k: int, effort: Effort) -> Doubles:
    """Return the share of its k nearest that each query finds."""
    return known.shares(without_own(search(known.queries, k, effort), known.own_slots, k).slots, k)


def without_own(found: SlotScores, own_slots: Slots, k: int) -> SlotScores:
    """Return the k best (m, k) of more, without the query's own slot."""
    order = np.argsort(found.slots == own_slots[:, None], axis=1, kind="stable")[:, :k]
    return SlotScores(
        np.take_along_axis(found.slots, order, axis=1), np.take_along_axis(found.scores, order, axis=1)
    )
