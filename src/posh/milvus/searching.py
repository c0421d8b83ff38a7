"""The search: Milvus finds candidates, we put them in our order and score them as the options ask.

The scores are those of the embedded engine. Hits with equal scores come in the order of writing. If more
items have the score of the last hit than there is room for, those that were written first are hits, as in the
embedded engine, unless there are more than :data:`TIES` of them: then Milvus chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh.codes import Codes
from posh.collection.filters import Filter, passes
from posh.hashers._units import directions
from posh.hashers.base import Hasher, SparseHasher
from posh.index.code_index import encode
from posh.index.options import IndexOptions
from posh.index.params import SearchParams
from posh.index.refine import REFINERS, CandidateDocuments, Refiner
from posh.milvus import sparse
from posh.milvus.expressions import sieve
from posh.milvus.keys import among
from posh.milvus.table import MAX_HITS, ItemTable, Ranked, Row
from posh.preprocess import Float32

__all__ = ["TIES", "ItemChangedError", "Scored", "Search", "kind_of"]

TIES = 1000  # hits beyond those asked for that a search fetches to put equal scores in order
_SPARE = 50  # the same, at first: most searches need no more
_FEW = 500  # items that are looked for by their keys at once

Scores = Callable[[Float32, Float32], npt.NDArray[Any]]


class ItemChangedError(Exception):
    """An item was written or deleted after Milvus found it and before its vector was read."""


class Scored(NamedTuple):
    """The hits of one query, best first: rows and scores."""

    rows: list[Row]
    scores: list[float]


def kind_of(options: IndexOptions, hasher: Hasher[Any], scoring: str | None) -> str:
    """What the scores are, see :class:`posh.Hits`."""
    if options.metric is not None:
        return options.metric
    if options.refine is not None:
        return REFINERS[options.refine].kind
    if scoring == "asymmetric":
        return scoring
    return "overlap" if isinstance(hasher, SparseHasher) else "equal-bits"


@dataclass(frozen=True)
class Search:
    """One search: the table, what is asked for, and which items may be found."""

    table: ItemTable
    hasher: Hasher[Any]
    options: IndexOptions
    params: SearchParams
    where: Filter | None

    def run(self, X: Float32) -> list[Scored]:
        """The k best items of vectors (m, d)."""
        k, metric, refine = self.params.k, self.options.metric, self.options.refine
        if metric is not None:
            candidates = self._ranked(list(self.table.widened(X)), k + _SPARE)
            return self._scored_again(X, candidates, lambda Q, V: _metric_scores(metric, Q, V))
        if refine is not None:
            n = self.params.n_candidates(MAX_HITS)
            return self._refined(X, self._by_codes(X, n), REFINERS[refine](self.hasher))
        if self.params.scoring == "asymmetric":
            return self._asymmetric(X)
        return [_scored(ranked, k) for ranked in self._by_codes(X, k)]

    # Candidates ----------------------------------------------------------------------------------------

    def _by_codes(self, X: Float32, n: int) -> list[list[Ranked]]:
        """The n items of each query that share most bits with it; items that share none come last."""
        queries = sparse.code_vectors(self.hasher, X, self.options.query_active)
        found = self._ranked(queries, n)
        short = [i for i, ranked in enumerate(found) if len(ranked) < n]
        if short:
            last = sparse.last_dimension(self.hasher)
            everything = self._ranked(sparse.with_last([queries[i] for i in short], last), n)
            for i, ranked in zip(short, everything, strict=True):
                found[i] = [Ranked(row, score - 1.0) for row, score in ranked]
        return found

    def _ranked(self, queries: Sequence[Any], n: int) -> list[list[Ranked]]:
        """The n best items of each query that pass the filter, by score and then in the order of writing."""
        found: list[list[Ranked]] = [[] for _ in queries]
        expression = "" if self.where is None else sieve(self.where.tree)
        fields = () if self.where is None else ("payload",)
        waiting, limit = list(range(len(queries))), min(n + _SPARE, MAX_HITS)
        while waiting:
            answers = self.table.search([queries[i] for i in waiting], limit, expression, *fields)
            still = []
            for i, answer in zip(waiting, answers, strict=True):
                found[i] = self._in_order(answer)[:n]
                if len(answer) == limit and self._may_lack(found[i], answer[-1].score, n, limit):
                    still.append(i)
            if limit == MAX_HITS:
                self._by_keys(queries, [i for i in still if len(found[i]) < n], n, expression, found)
                still = []
            waiting, limit = still, min(4 * limit, MAX_HITS)
        return found

    @staticmethod
    def _may_lack(found: list[Ranked], lowest: float, n: int, limit: int) -> bool:
        """Whether an item that Milvus did not return may be among the n best."""
        if len(found) < n:
            return True
        return found[-1].score <= lowest and limit < n + TIES

    def _by_keys(
        self, queries: Sequence[Any], short: list[int], n: int, expression: str, found: list[list[Ranked]]
    ) -> None:
        """Find the items of queries for which too few of Milvus's best hits pass: ask for those that pass."""
        if not short or self.where is None:
            return
        rows = self.table.scan(expression, "payload")
        keys = [row.key for row in rows if passes(self.where.tree, row.payload or {})]
        for i in short:
            found[i] = []
        for start in range(0, len(keys), _FEW):
            part = among(keys[start : start + _FEW])
            answers = self.table.search([queries[i] for i in short], _FEW, part, "payload")
            for i, answer in zip(short, answers, strict=True):
                found[i] = self._in_order([*found[i], *answer])[:n]

    def _in_order(self, answer: list[Ranked]) -> list[Ranked]:
        where = self.where
        passing = [
            ranked for ranked in answer if where is None or passes(where.tree, ranked.row.payload or {})
        ]
        return sorted(passing, key=lambda ranked: (-ranked.score, ranked.row.seq))

    # Scores --------------------------------------------------------------------------------------------

    def _asymmetric(self, X: Float32) -> list[Scored]:
        hasher = self.hasher
        assert isinstance(hasher, SparseHasher)
        candidates = self._ranked(sparse.projection_queries(hasher, X), self.params.k + _SPARE)
        rows, slots = self._slots(candidates)
        codes = encode(hasher, _vectors(rows, hasher.n_features_in_), self.options.document_active)
        tables = np.ascontiguousarray(hasher.project(X), np.float32)
        return self._best(rows, slots, kernels.table_scores(codes.active, tables, slots))

    def _refined(self, X: Float32, candidates: list[list[Ranked]], refiner: Refiner) -> list[Scored]:
        rows, slots = self._slots(candidates)
        vectors = _vectors(rows, self.hasher.n_features_in_)
        no_codes = Codes(np.zeros((0, 1), np.uint16), self.hasher.n_bits)
        documents = CandidateDocuments(slots, no_codes.active, refiner.rows_of(no_codes, vectors))
        scores = refiner.scores(X, documents, self.params.threads)
        return self._best(rows, slots, refiner.given_back(slots, scores))

    def _scored_again(self, X: Float32, candidates: list[list[Ranked]], scores: Scores) -> list[Scored]:
        rows, slots = self._slots(candidates)
        vectors = _vectors(rows, X.shape[1])
        found = np.full(slots.shape, -np.inf, np.float32)
        for i, some in enumerate(slots):
            found[i, some >= 0] = scores(X[i], vectors[some[some >= 0]])
        return self._best(rows, slots, found)

    def _slots(self, candidates: list[list[Ranked]]) -> tuple[list[Row], npt.NDArray[np.int64]]:
        """The distinct rows of candidates with their vectors, in the order of writing, and who has which."""
        known = {ranked.row.key: ranked.row for some in candidates for ranked in some}
        read = self.table.get(list(known), "vector")
        for key, row in known.items():
            if key not in read or read[key].seq != row.seq:
                raise ItemChangedError(key)
        rows = sorted(read.values(), key=lambda row: row.seq)
        slot = {row.key: i for i, row in enumerate(rows)}
        slots = np.full((len(candidates), max(map(len, candidates), default=0) or 1), -1, np.int64)
        for i, some in enumerate(candidates):
            slots[i, : len(some)] = [slot[ranked.row.key] for ranked in some]
        return rows, slots

    def _best(self, rows: list[Row], slots: npt.NDArray[np.int64], scores: Float32) -> list[Scored]:
        best, values = kernels.best_candidates(slots, scores, min(self.params.k, slots.shape[1]))
        return [
            Scored([rows[j] for j in some[some >= 0]], own[some >= 0].tolist())
            for some, own in zip(best, values, strict=True)
        ]


def _scored(ranked: list[Ranked], k: int) -> Scored:
    return Scored([one.row for one in ranked[:k]], [one.score for one in ranked[:k]])


def _vectors(rows: list[Row], n_features: int) -> Float32:
    return np.array([row.vector for row in rows], np.float32).reshape(len(rows), n_features)


def _metric_scores(metric: str, query: Float32, vectors: Float32) -> npt.NDArray[np.float64]:
    """Scores (n,) of vectors (n, d) for one query (d,)."""
    if metric == "cosine":
        query, vectors = directions(query[None])[0], directions(vectors)
    q, V = query.astype(np.float64), vectors.astype(np.float64)
    if metric == "euclidean":
        return np.asarray(-np.einsum("nd,nd->n", V - q, V - q))
    return np.asarray(V @ q)
