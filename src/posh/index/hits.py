"""The results of a search, of an index and of a collection alike."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh.errors import MissingExtraError
from posh.index.arrays import Slots

__all__ = ["Hit", "HitRows", "Hits", "RadiusHits", "SlotHits", "SlotScores", "pad_results"]

_NO_ID = np.array(None, object)


class Hit(NamedTuple):
    """One hit: its id, its score, and its payload and vector (d,) if the search was asked for them.

    A search by vector and text also gives the scores in the two rankings; None in a ranking without the item.
    """

    id: Any
    score: float
    payload: dict[str, Any] | None = None
    vector: npt.NDArray[np.float32] | None = None
    vector_score: float | None = None
    text_score: float | None = None


class SlotScores(NamedTuple):
    """Slots, int64 (m, k), and scores, float32 (m, k), best first; -1 and -inf where fewer were found."""

    slots: Slots
    scores: npt.NDArray[np.float32]

    @classmethod
    def allocate(cls, n_queries: int, k: int) -> SlotScores:
        """Return uninitialised arrays (n_queries, k) for a kernel to write to."""
        return cls(np.empty((n_queries, k), np.int64), np.empty((n_queries, k), np.float32))

    @classmethod
    def from_counts(cls, slots: Slots, counts: npt.NDArray[np.int32]) -> SlotScores:
        """Convert the results of the kernels that count bits."""
        scores = counts.astype(np.float32)
        if slots.size and slots[:, -1].min() < 0:  # missing results are at the end
            scores[slots < 0] = -np.inf
        return cls(slots, scores)


class SlotHits(NamedTuple):
    """The best slots and their scores, both (m, k), and the kind of score, as in :class:`Hits`."""

    slots: Slots
    scores: npt.NDArray[np.float32]
    kind: str


def pad_results(
    slots: npt.NDArray[Any], scores: npt.NDArray[np.float32], k: int
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    """Return slots or ids and scores with k columns: -1 (None among objects) and -inf in the new ones."""
    missing = k - slots.shape[1]
    if missing == 0:
        return slots, scores
    filler = None if slots.dtype == object else -1
    all_slots = np.full((len(slots), k), filler, slots.dtype)
    all_scores = np.full((len(slots), k), -np.inf, np.float32)
    all_slots[:, :-missing], all_scores[:, :-missing] = slots, scores
    return all_slots, all_scores


class HitRows(ABC):
    """Hits of each query, best first, as lists and as a table."""

    __slots__ = ()

    ids: npt.NDArray[Any]
    scores: npt.NDArray[Any]
    kind: str
    payloads: Sequence[Any] | None
    vectors: Sequence[Any] | None
    vector_scores: npt.NDArray[Any] | None = None
    text_scores: npt.NDArray[Any] | None = None

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of queries."""

    @abstractmethod
    def __getitem__(self, query: int) -> list[Hit]:
        """Return the hits of a query, best first."""

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row for each hit; needs pandas.

        Its columns are ``query``, the number of the query, ``id`` and ``score``. If the search was asked for
        them, the fields of payloads follow, and ``vector``. A field of a payload with one of these names
        becomes ``payload.id`` and so on. A search by vector and text adds ``vector_score`` and
        ``text_score``.

        >>> Hits(np.array([[3, 5]]), np.array([[7.0, 6.0]]), "overlap").to_pandas()
           query  id  score
        0      0   3    7.0
        1      0   5    6.0
        """
        return _to_pandas(self._list_columns())

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with the columns of :meth:`to_pandas`; needs pyarrow.

        A column whose values have several types is JSON text.

        >>> Hits(np.array([[3, 5]]), np.array([[7.0, 6.0]]), "overlap").to_arrow().column_names
        ['query', 'id', 'score']
        """
        return _to_arrow(self._list_columns())

    def _list_columns(self) -> dict[str, list[Any]]:
        rows = [(i, hit) for i in range(len(self)) for hit in self[i]]
        columns: dict[str, list[Any]] = {
            "query": [i for i, _ in rows],
            "id": [hit.id for _, hit in rows],
            "score": [hit.score for _, hit in rows],
        }
        if self.vector_scores is not None:
            columns["vector_score"] = [hit.vector_score for _, hit in rows]
            columns["text_score"] = [hit.text_score for _, hit in rows]
        reserved = {*columns, "vector"}
        if self.payloads is not None:
            for name in {name: None for _, hit in rows for name in hit.payload or {}}:
                key = f"payload.{name}" if name in reserved else name
                columns[key] = [(hit.payload or {}).get(name) for _, hit in rows]
        if self.vectors is not None:
            columns["vector"] = [hit.vector for _, hit in rows]
        return columns


class Hits(HitRows):
    """Results of a search for m queries, best first: ``ids, scores = hits``, both (m, k).

    ``hits[i]`` is the list of the hits of query i, see :class:`Hit`, and ``len(hits)`` is the number of
    queries. :meth:`to_pandas` and :meth:`to_arrow` give a table.

    Higher scores are better; equal scores are in order of addition. The ids of an index are int64. Where
    fewer than k documents were found the id is -1 and the score -inf. The ids of a collection, and of an
    index that was given strings as ids, are objects, int or str; where fewer than k were found the id is
    None. ``payloads`` and ``vectors`` are None, or one list for each query, as long as ``hits[i]``. ``kind``
    names the kind of score:

    ============  ==============================================================================
    overlap       shared set bits of two sparse codes
    equal-bits    equal bits of two dense codes
    asymmetric    the query's projection summed over the set bits of the item
    decoder       minus the squared distance between the query and the decoded item
    sbiht         the same, decoded by SBIHT
    euclidean     minus the squared distance between the vectors
    cosine        cosine of the vectors
    dot           product of the vectors
    bm25          relevance of the words, see :meth:`posh.Collection.search`
    rrf           sum of the reciprocal ranks by vector and by text; ``vector_scores`` and
                  ``text_scores``, (m, k), have the scores in the two rankings, NaN without one
    ============  ==============================================================================

    Where a squared distance does not fit into float32, the score is the nearest number that does: the order
    is right nevertheless.

    >>> hits = Hits(np.array([[3, -1]]), np.array([[7.0, -np.inf]]), "overlap")
    >>> ids, scores = hits
    >>> for hit in hits[0]:
    ...     print(hit.id, hit.score)
    3 7.0
    >>> hits.kind
    'overlap'
    """

    __slots__ = ("ids", "kind", "payloads", "scores", "text_scores", "vector_scores", "vectors")

    def __init__(
        self,
        ids: npt.NDArray[Any],
        scores: npt.NDArray[Any],
        kind: str,
        payloads: Sequence[Sequence[dict[str, Any]]] | None = None,
        vectors: Sequence[Sequence[npt.NDArray[np.float32]]] | None = None,
        vector_scores: npt.NDArray[Any] | None = None,
        text_scores: npt.NDArray[Any] | None = None,
    ) -> None:
        self.ids, self.scores, self.kind = ids, scores, kind
        self.payloads, self.vectors = payloads, vectors
        self.vector_scores, self.text_scores = vector_scores, text_scores

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        """Yield ids and scores, for ``ids, scores = hits``."""
        return iter((self.ids, self.scores))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, query: int) -> list[Hit]:
        found = _mark_found(self.ids[query])
        ids, scores = self.ids[query][found].tolist(), self.scores[query][found].tolist()
        payloads = [None] * len(ids) if self.payloads is None else self.payloads[query]
        vectors = [None] * len(ids) if self.vectors is None else self.vectors[query]
        if self.vector_scores is None or self.text_scores is None:
            return list(map(Hit, ids, scores, payloads, vectors))
        parts = [_list_scores(column[query][found]) for column in (self.vector_scores, self.text_scores)]
        return list(map(Hit, ids, scores, payloads, vectors, *parts))

    def __repr__(self) -> str:
        more = "".join(f", {name}=…" for name in ("payloads", "vectors") if getattr(self, name) is not None)
        return f"Hits(ids={self.ids!r}, scores={self.scores!r}, kind={self.kind!r}{more})"

    @property
    def is_hit(self) -> npt.NDArray[np.bool_]:
        """Mask of the places that hold a hit, (m, k)."""
        return _mark_found(self.ids)

    def with_items(
        self, items: Callable[[list[Any]], Mapping[Any, Any]], payloads: bool, vectors: bool
    ) -> Hits:
        """Return the same with payloads and vectors; ``items`` gives the items of distinct ids, by id."""
        rows = [row[mask].tolist() for row, mask in zip(self.ids, self.is_hit, strict=True)]
        by_id = items(list({item_id: None for row in rows for item_id in row}))
        return Hits(
            self.ids,
            self.scores,
            self.kind,
            [[by_id[item_id].payload for item_id in row] for row in rows] if payloads else None,
            [[by_id[item_id].vector for item_id in row] for row in rows] if vectors else None,
            self.vector_scores,
            self.text_scores,
        )

    def without(self, own: Sequence[Any]) -> Hits:
        """Return the same with one hit less per query: ``own[i]`` if query i has found it, else the last."""
        itself = np.empty((len(own), 1), object)
        itself[:, 0] = own
        places = np.argsort(self.ids == itself, axis=1, kind="stable")[:, :-1]

        def select(rows: Sequence[Sequence[Any]] | None) -> list[list[Any]] | None:
            if rows is None:
                return None
            return [[row[i] for i in some if i < len(row)] for row, some in zip(rows, places, strict=True)]

        return Hits(
            np.take_along_axis(self.ids, places, axis=1),
            np.take_along_axis(self.scores, places, axis=1),
            self.kind,
            select(self.payloads),
            select(self.vectors),
        )

    def above(self, min_score: float | None) -> Hits:
        """Return the same without hits that have lower scores; hits come without payloads and vectors."""
        low = None if min_score is None else self.scores < min_score
        if low is None or not low.any():
            return self
        no_id = _NO_ID if self.ids.dtype == object else np.int64(-1)
        parts = [
            None if column is None else np.where(low, np.nan, column)
            for column in (self.vector_scores, self.text_scores)
        ]
        ids, scores = np.where(low, no_id, self.ids), np.where(low, -np.inf, self.scores)
        return Hits(ids, scores, self.kind, None, None, *parts)


class RadiusHits(HitRows):
    """All hits of m queries within a radius, best first: ``offsets, ids, scores = hits``.

    The hits of query i are ``ids[offsets[i]:offsets[i + 1]]`` and the ``scores`` at the same places: higher
    scores first, of equal ones the document that was added first. ``hits[i]`` is the list of them, see
    :class:`Hit`, and ``len(hits)`` is the number of queries. :meth:`to_pandas` and :meth:`to_arrow` give a
    table.

    Attributes
    ----------
    offsets : int64 (m + 1,)
        Where the hits of each query begin.
    ids : (n,), int64 or objects
        The ids of all hits, query after query.
    scores : float32 (n,)
        Their scores; :class:`Hits` says what ``kind`` means.
    is_cut : bool (m,)
        Whether a query had more hits than the ``limit`` of the search.
    payloads, vectors : list of n, or None
        Payloads and vectors of the hits, if the search was asked for them.

    >>> hits = RadiusHits(np.array([0, 2, 2]), np.array([3, 5]), np.array([0.9, 0.8]), "cosine")
    >>> hits.counts, hits[0], hits[1]
    (array([2, 0]), [Hit(id=3, score=0.9, payload=None, vector=None, vector_score=None, text_score=None), \
Hit(id=5, score=0.8, payload=None, vector=None, vector_score=None, text_score=None)], [])

    """

    __slots__ = ("ids", "is_cut", "kind", "offsets", "payloads", "scores", "vectors")

    def __init__(
        self,
        offsets: npt.NDArray[np.int64],
        ids: npt.NDArray[Any],
        scores: npt.NDArray[Any],
        kind: str,
        is_cut: npt.NDArray[np.bool_] | None = None,
        payloads: Sequence[dict[str, Any]] | None = None,
        vectors: Sequence[npt.NDArray[np.float32]] | None = None,
    ) -> None:
        self.offsets, self.ids, self.scores, self.kind = offsets, ids, scores, kind
        self.is_cut = np.zeros(len(offsets) - 1, bool) if is_cut is None else is_cut
        self.payloads, self.vectors = payloads, vectors

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        """Yield offsets, ids and scores, for ``offsets, ids, scores = hits``."""
        return iter((self.offsets, self.ids, self.scores))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, query: int) -> list[Hit]:
        query = range(len(self))[query]
        rows = slice(int(self.offsets[query]), int(self.offsets[query + 1]))
        ids, scores = self.ids[rows].tolist(), self.scores[rows].tolist()
        payloads = [None] * len(ids) if self.payloads is None else self.payloads[rows]
        vectors = [None] * len(ids) if self.vectors is None else self.vectors[rows]
        return list(map(Hit, ids, scores, payloads, vectors))

    def __repr__(self) -> str:
        cut = f", {int(self.is_cut.sum())} cut" if self.is_cut.any() else ""
        return f"RadiusHits({len(self)} queries, {len(self.ids):,} hits{cut}, kind={self.kind!r})"

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The number of hits of each query, (m,)."""
        return np.diff(self.offsets)

    @property
    def queries(self) -> npt.NDArray[np.int64]:
        """The number of the query of each hit, (n,)."""
        return np.repeat(np.arange(len(self)), self.counts)

    def with_items(
        self, items: Callable[[list[Any]], Mapping[Any, Any]], payloads: bool, vectors: bool
    ) -> RadiusHits:
        """Return the same with payloads and vectors; ``items`` gives the items of distinct ids, by id."""
        ids = self.ids.tolist()
        by_id = items(list(dict.fromkeys(ids)))
        return RadiusHits(
            self.offsets,
            self.ids,
            self.scores,
            self.kind,
            self.is_cut,
            [by_id[item_id].payload for item_id in ids] if payloads else None,
            [by_id[item_id].vector for item_id in ids] if vectors else None,
        )

    def select(self, chosen: npt.NDArray[np.bool_]) -> RadiusHits:
        """Return the hits of a mask (n,)."""
        places = np.flatnonzero(chosen).tolist()
        return RadiusHits(
            np.concatenate([[0], np.cumsum(chosen)])[self.offsets],
            self.ids[chosen],
            self.scores[chosen],
            self.kind,
            self.is_cut,
            None if self.payloads is None else [self.payloads[i] for i in places],
            None if self.vectors is None else [self.vectors[i] for i in places],
        )


def _list_scores(scores: npt.NDArray[Any]) -> list[float | None]:
    return [None if score != score else score for score in scores.tolist()]


def _mark_found(ids: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.asarray(ids != _NO_ID, bool) if ids.dtype == object else np.asarray(ids >= 0)


def _to_pandas(columns: Mapping[str, list[Any]]) -> Any:
    """Return a DataFrame with these columns."""
    pandas = _import_extra("pandas", "pandas", "to_pandas()")
    return pandas.DataFrame({name: pandas.Series(values) for name, values in columns.items()})


def _to_arrow(columns: Mapping[str, list[Any]]) -> Any:
    """Return a pyarrow Table with these columns."""
    pyarrow = _import_extra("pyarrow", "data", "to_arrow()")
    return pyarrow.table({name: _build_arrow_column(pyarrow, values) for name, values in columns.items()})


def _build_arrow_column(pyarrow: Any, values: list[Any]) -> Any:
    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):  # values of several types
        return pyarrow.array([None if value is None else json.dumps(value) for value in values])


def _import_extra(module: str, extra: str, purpose: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(module, extra, purpose) from error
