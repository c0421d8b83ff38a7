"""From codes to rankings, and from rankings to measures.

All measures but that of the whole base come from one search: the first 100 of 1,000 results are those of a
search for 100, and the candidates of a refinement are the first results of a longer search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from posh import kernels, metrics
from posh.codes import Codes, PackedCodes
from posh.datasets import Dataset
from posh.hashers import Hasher, SparseHasher
from posh.index.codes.bitsliced import SlicedCodes
from posh.index.codes.refine import REFINERS, CandidateDocuments
from posh_reproduction.experiments.guard import check_ids

__all__ = ["Coded", "asymmetric", "full_map", "refined", "summary", "within"]

Values = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Coded:
    """A data set, a fitted hasher, and the codes that it gives the base and the queries."""

    data: Dataset
    hasher: Hasher[Any]
    base: Codes | PackedCodes
    queries: Codes | PackedCodes

    @classmethod
    def by(cls, hasher: Hasher[Any], data: Dataset) -> Coded:
        """Encode the data."""
        base, queries = (hasher.encode(X, n_threads=1) for X in (data.base, data.queries))
        return cls(data, hasher, base, queries)

    def ranked(self, k: int) -> Ids:
        """Ids (m, k) of the best documents of each query: most shared bits, then the lower id."""
        return check_ids(self.searcher()(k), len(self.base))

    def searcher(self) -> Callable[[int], Ids]:
        """Return the search for the k best documents of each query, on one thread."""
        base, queries = self.base, self.queries
        if isinstance(base, Codes) and isinstance(queries, Codes):
            segments, sparse = SlicedCodes(base.n_bits).with_codes(base), queries
            return lambda k: segments.search(sparse, k, n_threads=1)[0]
        assert isinstance(base, PackedCodes)
        assert isinstance(queries, PackedCodes)
        documents, dense = base, queries
        return lambda k: kernels.hamming_topk(documents.bits, dense.bits, documents.n_bits, k)[0]

    def labels(self, ids: Ids) -> npt.NDArray[np.int64]:
        """The labels of documents."""
        assert self.data.base_labels is not None
        return np.asarray(self.data.base_labels[ids])

    def query_labels(self, n: int | None = None) -> npt.NDArray[np.int64]:
        """The labels of the first n queries, or of all."""
        assert self.data.query_labels is not None
        return self.data.query_labels[:n]


def summary(values: Values) -> dict[str, float]:
    """Mean and standard deviation over queries, from which intervals follow.

    >>> summary(np.array([0.0, 1.0]))
    {'mean': 0.5, 'std': 0.7071067811865476, 'n_queries': 2}
    """
    return {"mean": float(values.mean()), "std": float(values.std(ddof=1)), "n_queries": len(values)}


def within(coded: Coded, ids: Ids) -> Mapping[str, Values]:
    """MAP@100, MAP@1000 and Precision@1000 of rankings (m, 1000), one value per query."""
    found, wanted = coded.labels(ids), coded.query_labels(len(ids))
    return {
        "map_100": metrics.average_precision(found, wanted, at=100),
        "map_1000": metrics.average_precision(found, wanted, at=1000),
        "precision_1000": metrics.precision(found, wanted, at=1000),
    }


def full_map(coded: Coded) -> Values:
    """Average precision of the ranking of the whole base, one value per query: ties to the lower id.

    A ranking by shared bits is a stable sort by a small integer, for which NumPy has a radix sort, and only
    the places of relevant documents count. This is several times faster than to name all documents in order
    and look each up.
    """
    labels, wanted = coded.labels(np.arange(len(coded.base))), coded.query_labels()
    values = np.zeros(len(wanted))
    for row, distances in enumerate(_distances(coded)):
        order = np.argsort(distances, kind="stable")
        places = np.flatnonzero(labels[order] == wanted[row]) + 1
        if len(places):
            values[row] = np.mean(np.arange(1, len(places) + 1) / places)
    return values


def _distances(coded: Coded) -> Iterator[npt.NDArray[Any]]:
    """For each query, half the Hamming distance (sparse codes) or all of it (dense codes), (n,)."""
    planes = np.ascontiguousarray(coded.base.to_dense().T)  # (n_bits, n): a bit of all documents in a row
    queries = coded.queries
    if isinstance(queries, Codes):
        dtype = np.min_scalar_type(queries.n_active)
        for active in queries.active:
            yield dtype.type(queries.n_active) - planes[active].sum(axis=0, dtype=dtype)
    else:
        dtype = np.min_scalar_type(queries.n_bits)
        for bits in queries.to_dense():
            yield (planes ^ bits[:, None]).sum(axis=0, dtype=dtype)


def asymmetric(coded: Coded, k: int, n_queries: int) -> Ids:
    """Ids (m, k) by the query's projection, summed over the set bits of a document, for the first queries."""
    assert isinstance(coded.base, Codes)
    tables = np.ascontiguousarray(coded.hasher.project(coded.data.queries[:n_queries]))
    ids, _ = kernels.table_topk(coded.base.active, tables, k, n_threads=1)
    return check_ids(ids, len(coded.base))


def refined(coded: Coded, ids: Ids, factors: tuple[int, ...], k: int, n_train: int) -> dict[int, Ids]:
    """For each factor, the k best of the first ``factor`` · k results by the distance to the decoded vector.

    The linear decoder learns from the first ``n_train`` vectors, those that the hasher learned from.
    """
    assert isinstance(coded.hasher, SparseHasher)
    assert isinstance(coded.base, Codes)
    refiner = REFINERS["decoder"](coded.hasher)
    refiner.fit(coded.base[:n_train], coded.data.base[:n_train])
    rows = refiner.make_rows(coded.base, coded.data.base)
    candidates = ids[:, : k * max(factors)]
    documents = CandidateDocuments(candidates, coded.base.active, rows)
    scores = refiner.scores(coded.data.queries, documents, 1)
    best = {}
    for factor in factors:
        first = slice(k * factor)
        best[factor], _ = kernels.best_candidates(candidates[:, first].copy(), scores[:, first].copy(), k)
    return best
