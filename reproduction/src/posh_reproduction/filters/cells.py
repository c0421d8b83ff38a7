"""The cells of the comparison: filters of given shares of the documents, alike or unlike the queries.

Documents have a column of numbers from 0 to n - 1 for each of :data:`N_CENTRES` centres: their order by
distance from it. The documents whose number is below a bound are a ball of exactly this many around the
centre. Another column has the numbers in random order. So every filter is a mask, and also a condition of a
database: ``column < bound``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from posh import metrics
from posh._runtime import resolve_threads
from posh.index.brute_force import measure_distances, measure_true_distances
from posh.index.kmeans import train_lists
from posh_reproduction.ann.cases import Prepared

__all__ = ["DEPTHS", "N_CENTRES", "RELATIONS", "SHARES", "Cell", "Filter", "FilteredData"]

RELATIONS = ("independent", "correlated", "anti-correlated")
"""Random documents; those nearest to the centre that is nearest to the query; the same for the farthest."""

SHARES = (0.5, 0.1, 0.04, 0.01, 0.001, 0.0001)
"""Shares of the documents that pass."""

DEPTHS = (10, 100)
"""Results per query."""

N_CENTRES = 16
_RANDOM = "random"

Numbers = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]


class Cell(NamedTuple):
    """How a filter relates to the query, the share of the documents that pass, and the results per query."""

    relation: str
    share: float
    k: int


@dataclass(frozen=True, eq=False)
class Filter:
    """The documents whose number in a column is below a bound; ``mask`` (n,) has the same ones."""

    column: str
    bound: int
    mask: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class FilteredData:
    """The vectors of a case, the columns of its documents, and the first ``n_queries`` of each half."""

    prepared: Prepared
    n_queries: int

    @property
    def base(self) -> npt.NDArray[np.float32]:
        """The documents (n, d)."""
        return self.prepared.base

    def queries(self, half: str) -> npt.NDArray[np.float32]:
        """Return the queries (m, d) of a half."""
        return self.prepared.queries[half][: self.n_queries]

    @cached_property
    def centres(self) -> npt.NDArray[np.float32]:
        """Centroids (c, d) of the documents."""
        rng, n = np.random.default_rng(0), min(N_CENTRES, len(self.base))
        return train_lists(self.base, n, metric="euclidean", rng=rng, n_threads=resolve_threads())

    @cached_property
    def columns(self) -> dict[str, Numbers]:
        """The numbers (n,) of the documents in each column."""
        n = len(self.base)
        halves = 0.5 * np.einsum("ij,ij->i", self.base, self.base)
        orders = {_RANDOM: np.random.default_rng(0).permutation(n)}
        for place, centre in enumerate(self.centres):
            orders[_name(place)] = np.argsort(halves - self.base @ centre, kind="stable")
        return {name: np.argsort(order, kind="stable").astype(np.int32) for name, order in orders.items()}

    def filters(self, relation: str, share: float, half: str = "report") -> list[Filter]:
        """Return the filter of each query; queries with the same one share the object."""
        bound = max(1, round(share * len(self.base)))
        made: dict[str, Filter] = {}
        for name in self._columns_of(relation, half):
            if name not in made:
                made[name] = Filter(name, bound, self.columns[name] < bound)
        return [made[name] for name in self._columns_of(relation, half)]

    def recall(self, cell: Cell, found: Ids, half: str = "report") -> npt.NDArray[np.float64]:
        """Return the share of the k nearest that pass among ids (m, k), by query.

        If fewer than k pass, all of these count. An id that does not pass counts as not found.
        """
        chosen = self.filters(cell.relation, cell.share, half)
        passes = [own.mask[np.maximum(row, 0)] for own, row in zip(chosen, found, strict=True)]
        found = np.where(passes, found, -1)
        return self._shares(found, self._true(cell.relation, cell.share, half)[:, : cell.k], half)

    def unfiltered_recall(self, k: int, found: Ids, half: str) -> float:
        """Return the mean recall of ids (m, k) without a filter."""
        return float(self._shares(found, self.prepared.true[half][: self.n_queries, :k], half).mean())

    def _shares(self, found: Ids, true: npt.NDArray[np.float64], half: str) -> npt.NDArray[np.float64]:
        order = np.sort(found, axis=1)
        order[:, 1:][order[:, 1:] == order[:, :-1]] = -1  # an id that comes twice counts once
        distances = measure_distances(self.base, self.queries(half), order, "euclidean")
        return metrics.recall_by_distance(distances, true)

    @lru_cache(maxsize=len(RELATIONS) * len(SHARES))  # noqa: B019  # as long-lived as the comparison
    def _true(self, relation: str, share: float, half: str) -> npt.NDArray[np.float64]:
        """Distances (m, most) of the nearest documents that pass, nearest first."""
        filters, queries = self.filters(relation, share, half), self.queries(half)
        most = min(max(DEPTHS), int(filters[0].mask.sum()))
        result = np.empty((len(queries), most))
        for chosen in dict.fromkeys(filters):
            rows = [row for row, own in enumerate(filters) if own is chosen]
            result[rows] = measure_true_distances(self.base[chosen.mask], queries[rows], most, "euclidean")
        return result

    def _columns_of(self, relation: str, half: str) -> list[str]:
        """The column of each query's filter."""
        queries, centres = self.queries(half), self.centres
        if relation == "independent":
            return [_RANDOM] * len(queries)
        nearness = queries @ centres.T - 0.5 * np.einsum("ij,ij->i", centres, centres)
        places = nearness.argmax(axis=1) if relation == "correlated" else nearness.argmin(axis=1)
        return [_name(place) for place in places.tolist()]


def _name(place: int) -> str:
    return f"centre{place}"
