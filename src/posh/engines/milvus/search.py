"""The search: Milvus finds candidates, which are scored and ordered here as in the embedded engine.

Hits with equal scores come in the order of writing. If more items have the score of the last hit than fit,
the earliest written ones are hits, as in the embedded engine, unless there are more than :data:`TIES` of
them: then Milvus chooses.

Codes are sparse vectors in Milvus, whose inner products are the scores. A sparse code has a 1 at each of its
set bits, so the product of two codes is the number of shared bits. A dense code has two dimensions for each
bit and a 1 at that of its value, so the product is the number of equal bits. Milvus does not return documents
whose product with the query is 0. Therefore all documents have a 1 in one extra dimension, and a query that
must find all of them has a 1 there, too.

Filters become expressions of Milvus that select a superset of the matching items. Milvus compares JSON values
differently from :func:`posh.collection.filters.passes`, and its versions differ from each other: some treat
``true`` as 1, some lack ``not``. So the filter is applied again to the payloads that Milvus returns. A
condition without a reliable translation is left out: ``not``, ``exists``, ``null``, integers of more than 53
bits, names and strings with control characters. Strings become literals with escaped quotes and backslashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh.codes import Codes, PackedCodes
from posh.collection.filters import (
    All,
    AnyOf,
    Contains,
    Exists,
    Filter,
    Holds,
    Not,
    OneOf,
    Prefix,
    Range,
    Scalar,
    Tree,
    find_successor,
    passes,
)
from posh.engines.milvus.table import MAX_HITS, ItemTable, Ranked, Row, SparseVector, build_key_filter
from posh.hashers.base import Hasher, SparseHasher
from posh.index.codes.options import CodeOptions, CodeParams
from posh.index.codes.refine import REFINERS, CandidateDocuments, Refiner
from posh.index.codes.structures import encode
from posh.index.params import SearchParams
from posh.preprocess import Float32, normalize_rows

__all__ = [
    "NOTHING",
    "TIES",
    "CodeSearch",
    "ItemChangedError",
    "MetricSearch",
    "Scored",
    "build_document_vectors",
    "build_expression",
]

TIES = 1000  # hits beyond the requested ones that a search fetches to order equal scores
_SPARE = 50  # the same for the first request: enough for most searches
_KEY_BATCH = 500  # items that one request selects by their keys

_MIN_WEIGHT = 0.01  # of a projection, relative to the range of projections

NOTHING = 'id == ""'  # no key is empty
_MAX_TERMS = 200  # comparisons of one condition: more would slow down the parser
_MAX_DOTS = 3  # in the name of a field; each doubles the number of paths
_MAX_EXACT = 2**53
_MIN_NUMBER = 1e-30  # some parsers refuse much smaller numbers
_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}

Slots = npt.NDArray[np.int64]
Scorer = Callable[[Float32, Float32], npt.NDArray[Any]]


class ItemChangedError(Exception):
    """An item was written or deleted after Milvus found it and before its vector was read."""


class Scored(NamedTuple):
    """The hits of one query, best first: rows and scores."""

    rows: list[Row]
    scores: list[float]


@dataclass(frozen=True)
class Candidates:
    """The part of a search that asks Milvus: the table, the parameters and the filter."""

    table: ItemTable
    params: SearchParams
    where: Filter | None

    def _rank(self, queries: Sequence[Any], n: int) -> list[list[Ranked]]:
        """Return the n best matching items of each query, by score and then in the order of writing."""
        results: list[list[Ranked]] = [[] for _ in queries]
        expression = "" if self.where is None else build_expression(self.where.tree)
        fields = () if self.where is None else ("payload",)
        pending, limit = list(range(len(queries))), min(n + _SPARE, MAX_HITS)
        while pending:
            responses = self.table.search([queries[i] for i in pending], limit, expression, *fields)
            incomplete = []
            for i, response in zip(pending, responses, strict=True):
                results[i] = self._filter_and_sort(response)[:n]
                if len(response) == limit and self._may_miss(results[i], response[-1].score, n, limit):
                    incomplete.append(i)
            if limit == MAX_HITS:
                short = [i for i in incomplete if len(results[i]) < n]
                self._rank_matching(queries, short, n, expression, results)
                incomplete = []
            pending, limit = incomplete, min(4 * limit, MAX_HITS)
        return results

    @staticmethod
    def _may_miss(hits: list[Ranked], lowest: float, n: int, limit: int) -> bool:
        """Return whether an item that Milvus did not return may be among the n best."""
        if len(hits) < n:
            return True
        return hits[-1].score <= lowest and limit < n + TIES

    def _rank_matching(
        self, queries: Sequence[Any], short: list[int], n: int, expression: str, results: list[list[Ranked]]
    ) -> None:
        """Rank all matching items by their keys, for queries whose best hits in Milvus rarely match."""
        if not short or self.where is None:
            return
        rows = self.table.scan(expression, "payload")
        keys = [row.key for row in rows if passes(self.where.tree, row.payload or {})]
        for i in short:
            results[i] = []
        for start in range(0, len(keys), _KEY_BATCH):
            selected = build_key_filter(keys[start : start + _KEY_BATCH])
            responses = self.table.search([queries[i] for i in short], _KEY_BATCH, selected, "payload")
            for i, response in zip(short, responses, strict=True):
                results[i] = self._filter_and_sort([*results[i], *response])[:n]

    def _filter_and_sort(self, hits: list[Ranked]) -> list[Ranked]:
        where = self.where
        matching = [hit for hit in hits if where is None or passes(where.tree, hit.row.payload or {})]
        return sorted(matching, key=lambda hit: (-hit.score, hit.row.seq))

    def _read_candidates(self, candidates: list[list[Ranked]]) -> tuple[list[Row], Slots]:
        """Read the vectors of all candidates.

        Returns the distinct rows in the order of writing, and for each query the numbers (m, n) of its
        candidates among them, filled up with -1. Raises ItemChangedError if a candidate has changed.
        """
        known = {hit.row.key: hit.row for hits in candidates for hit in hits}
        read = self.table.get(list(known), "vector")
        for key, row in known.items():
            if key not in read or read[key].seq != row.seq:
                raise ItemChangedError(key)
        rows = sorted(read.values(), key=lambda row: row.seq)
        slot = {row.key: i for i, row in enumerate(rows)}
        slots = np.full((len(candidates), max(map(len, candidates), default=0) or 1), -1, np.int64)
        for i, hits in enumerate(candidates):
            slots[i, : len(hits)] = [slot[hit.row.key] for hit in hits]
        return rows, slots

    def _select_best(self, rows: list[Row], slots: Slots, scores: Float32) -> list[Scored]:
        best, best_scores = kernels.best_candidates(slots, scores, min(self.params.k, slots.shape[1]))
        return [
            Scored([rows[j] for j in query_slots[query_slots >= 0]], values[query_slots >= 0].tolist())
            for query_slots, values in zip(best, best_scores, strict=True)
        ]


@dataclass(frozen=True)
class MetricSearch(Candidates):
    """One search by a metric."""

    metric: str

    def run(self, X: Float32) -> list[Scored]:
        """Return the k best items of each of the vectors (m, d)."""
        candidates = self._rank(list(self.table.pad_vectors(X)), self.params.k + _SPARE)
        rows, slots = self._read_candidates(candidates)
        vectors = _stack_vectors(rows, X.shape[1])
        scores = np.full(slots.shape, -np.inf, np.float32)
        for i, query_slots in enumerate(slots):
            is_filled = query_slots >= 0
            scores[i, is_filled] = _compute_metric_scores(self.metric, X[i], vectors[query_slots[is_filled]])
        return self._select_best(rows, slots, scores)


@dataclass(frozen=True)
class CodeSearch(Candidates):
    """One search by codes; the parameters are complete."""

    params: CodeParams
    hasher: Hasher[Any]
    options: CodeOptions

    def run(self, X: Float32) -> list[Scored]:
        """Return the k best items of each of the vectors (m, d)."""
        k, refine = self.params.k, self.options.refine
        if refine is not None:
            n = self.params.n_candidates(MAX_HITS)
            return self._refine(X, self._rank_by_codes(X, n), REFINERS[refine](self.hasher))
        if self.params.scoring == "asymmetric":
            return self._score_asymmetrically(X)
        return [
            Scored([hit.row for hit in hits], [hit.score for hit in hits])
            for hits in self._rank_by_codes(X, k)
        ]

    def _rank_by_codes(self, X: Float32, n: int) -> list[list[Ranked]]:
        """Return the n items that share most bits with each query; items that share none come last."""
        queries = _build_code_vectors(self.hasher, X, self.options.query_active)
        results = self._rank(queries, n)
        short = [i for i, hits in enumerate(results) if len(hits) < n]
        if short:
            extended = _add_extra_dimension([queries[i] for i in short], self.hasher)
            for i, hits in zip(short, self._rank(extended, n), strict=True):
                results[i] = [Ranked(row, score - 1.0) for row, score in hits]
        return results

    def _score_asymmetrically(self, X: Float32) -> list[Scored]:
        hasher = self.hasher
        assert isinstance(hasher, SparseHasher)
        candidates = self._rank(_build_projection_queries(hasher, X), self.params.k + _SPARE)
        rows, slots = self._read_candidates(candidates)
        codes = encode(hasher, _stack_vectors(rows, hasher.n_features_in_), self.options.document_active)
        tables = np.ascontiguousarray(hasher.project(X), np.float32)
        return self._select_best(rows, slots, kernels.table_scores(codes.active, tables, slots))

    def _refine(self, X: Float32, candidates: list[list[Ranked]], refiner: Refiner) -> list[Scored]:
        rows, slots = self._read_candidates(candidates)
        vectors = _stack_vectors(rows, self.hasher.n_features_in_)
        no_codes = Codes(np.zeros((0, 1), np.uint16), self.hasher.n_bits)
        documents = CandidateDocuments(slots, no_codes.active, refiner.make_rows(no_codes, vectors))
        scores = refiner.scores(X, documents, self.params.threads)
        return self._select_best(rows, slots, refiner.restore_scores(slots, scores))


def _stack_vectors(rows: list[Row], n_features: int) -> Float32:
    return np.array([row.vector for row in rows], np.float32).reshape(len(rows), n_features)


def _compute_metric_scores(metric: str, query: Float32, vectors: Float32) -> npt.NDArray[np.float64]:
    """Return the scores (n,) of vectors (n, d) for one query (d,)."""
    if metric == "cosine":
        query, vectors = normalize_rows(query[None])[0], normalize_rows(vectors)
    q, V = query.astype(np.float64), vectors.astype(np.float64)
    if metric == "euclidean":
        return np.asarray(-np.einsum("nd,nd->n", V - q, V - q))
    return np.asarray(V @ q)


# Codes as sparse vectors -------------------------------------------------------------------------------


def build_document_vectors(hasher: Hasher[Any], X: Float32, n_active: int | None) -> list[SparseVector]:
    """Return the codes of documents (n, d) as sparse vectors with the extra dimension."""
    return _add_extra_dimension(_build_code_vectors(hasher, X, n_active), hasher)


def _build_code_vectors(hasher: Hasher[Any], X: Float32, n_active: int | None) -> list[SparseVector]:
    """Return the codes of vectors (n, d) as sparse vectors without the extra dimension.

    >>> import numpy as np, posh
    >>> hasher = posh.LSH(3, random_state=0).fit(np.eye(2))
    >>> _build_code_vectors(hasher, np.float32([[1, 2]]), None) == [
    ...     {2 * i + int(bit): 1.0 for i, bit in enumerate(hasher.encode([[1, 2]]).to_dense()[0])}
    ... ]
    True
    """
    return [dict.fromkeys(row, 1.0) for row in _list_dimensions(encode(hasher, X, n_active)).tolist()]


def _list_dimensions(codes: Codes | PackedCodes) -> npt.NDArray[np.int64]:
    """Return the dimensions in which each code has a 1, (n, number of ones)."""
    if isinstance(codes, Codes):
        return codes.active.astype(np.int64)
    return np.asarray(2 * np.arange(codes.n_bits) + codes.to_dense(np.int64))


def _add_extra_dimension(vectors: list[SparseVector], hasher: Hasher[Any]) -> list[SparseVector]:
    dimension = hasher.n_bits * (1 if isinstance(hasher, SparseHasher) else 2)
    return [vector | {dimension: 1.0} for vector in vectors]


def _build_projection_queries(hasher: SparseHasher, X: Float32) -> list[SparseVector]:
    """Return queries that rank documents by their asymmetric scores.

    Milvus accepts no negative weights. All documents have the same number of set bits, so adding a constant
    to all weights or multiplying them by a positive factor keeps the order of documents. All weights are
    positive, so all documents are found.
    """
    projected = np.asarray(hasher.project(X), np.float64)
    low = projected.min(axis=1, keepdims=True)
    span = projected.max(axis=1, keepdims=True) - low
    weights = (projected - low) / np.where(span > 0, span, 1.0) + _MIN_WEIGHT
    return [dict(enumerate(row)) for row in weights.tolist()]


# Filters as expressions --------------------------------------------------------------------------------


def build_expression(tree: Tree) -> str:
    """Return an expression that selects at least the items that pass a filter; "" selects all items.

    >>> from posh.collection.filters import parse
    >>> print(build_expression(parse({"label": {"in": [3, "it's"]}, "not": {"sold": True}}).tree))
    payload["label"] == 3 or payload["label"] == "it's"
    >>> print(build_expression(parse({"size.width": {"gte": 10}}).tree))
    payload["size.width"] >= 10 or payload["size"]["width"] >= 10
    """
    return _translate(tree) or ""


def _translate(tree: Tree) -> str | None:
    """Return the expression, or None if it would have to select everything."""
    match tree:
        case All(parts):
            return _join("and", [part for part in map(_translate, parts) if part is not None])
        case AnyOf(parts):
            return _join_alternatives([_translate(part) for part in parts])
        case Not() | Exists():
            return None
        case OneOf(field, values):
            return _join_alternatives([_compare(field, "==", _format_literal(value)) for value in values])
        case Contains(field, value):
            return _format_contains(field, _format_literal(value))
        case Holds(field, values):
            return _translate(AnyOf((OneOf(field, values), *(Contains(field, value) for value in values))))
        case Prefix(field, start):
            bounds = {"gte": start, "lt": find_successor(start)}
            return _translate(
                All(tuple(Range(field, name, bound) for name, bound in bounds.items() if bound is not None))
            )
        case Range(field, operator, bound):
            return _compare(field, _OPERATORS[operator], _format_literal(bound))


def _join_alternatives(parts: Sequence[str | None]) -> str | None:
    translated = [part for part in parts if part is not None]
    if len(translated) < len(parts) or len(translated) > _MAX_TERMS:
        return None
    return _join("or", translated) or NOTHING


def _join(word: str, parts: Sequence[str]) -> str | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    if word == "or" and not any(" and " in part for part in parts):
        return " or ".join(parts)
    return f" {word} ".join(f"({part})" for part in parts)


def _compare(field: str, operator: str, literal: str | None) -> str | None:
    if literal is None or not _is_translatable(field):
        return None
    return " or ".join(f"{path} {operator} {literal}" for path in _iterate_paths(field))


def _format_contains(field: str, literal: str | None) -> str | None:
    if literal is None or not _is_translatable(field):
        return None
    return " or ".join(f"json_contains({path}, {literal})" for path in _iterate_paths(field))


def _iterate_paths(field: str) -> Iterator[str]:
    """Yield all paths that a name with dots may mean, see :func:`posh.collection.filters.find_values`."""
    yield f"payload[{_quote(field)}]"
    start = field.find(".")
    while start >= 0:
        outer = f"payload[{_quote(field[:start])}]"
        yield from (outer + inner.removeprefix("payload") for inner in _iterate_paths(field[start + 1 :]))
        start = field.find(".", start + 1)


def _format_literal(value: Scalar) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case str():
            return _quote(value) if value == "" or value.isprintable() else None
        case int():
            return str(value) if abs(value) <= _MAX_EXACT else None
        case float():
            if value.is_integer() and abs(value) <= _MAX_EXACT:
                return str(int(value))
            return repr(float(value)) if _MIN_NUMBER < abs(value) < _MAX_EXACT else None


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _is_translatable(field: str) -> bool:
    """Return whether every version of Milvus finds a field by this name."""
    parts = field.split(".")
    return len(parts) <= _MAX_DOTS + 1 and all(
        part and part.replace("-", "_").replace(" ", "_").isidentifier() for part in parts
    )
