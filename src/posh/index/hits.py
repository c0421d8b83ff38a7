"""What a search returns: of an index and of a collection alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh.index import hits_tables

__all__ = ["Hit", "Hits", "SlotHits"]

_NOBODY = np.array(None, object)


class Hit(NamedTuple):
    """One hit: its id, its score, and its payload and vector (d,) if the search was asked for them."""

    id: Any
    score: float
    payload: dict[str, Any] | None = None
    vector: npt.NDArray[np.float32] | None = None


class SlotHits(NamedTuple):
    """The best slots and their scores, both (m, k), and what the scores are."""

    slots: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    kind: str


class Hits:
    """Results of a search for m queries, best first: ``ids, scores = hits``, both (m, k).

    ``hits[i]`` is the list of the hits of query i, see :class:`Hit`, and ``len(hits)`` is the number of
    queries. :meth:`to_pandas` and :meth:`to_arrow` give a table.

    Higher scores are better; equal scores are in order of addition. The ids of an index are int64. Where
    fewer than k documents were found the id is -1 and the score -inf. The ids of a collection, and of an
    index that was given strings as ids, are objects, int or str; where fewer than k were found the id is
    None. ``payloads`` and ``vectors`` are None, or one list for each query, as long as ``hits[i]``. ``kind``
    says what the scores are:

    ============  ==============================================================================
    overlap       shared set bits of two sparse codes
    equal-bits    equal bits of two dense codes
    asymmetric    the query's projection summed over the set bits of the item
    decoder       minus the squared distance between the query and the decoded item
    sbiht         the same, decoded by SBIHT
    euclidean     minus the squared distance between the vectors
    cosine        cosine of the vectors
    dot           product of the vectors
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

    __slots__ = ("ids", "kind", "payloads", "scores", "vectors")

    def __init__(
        self,
        ids: npt.NDArray[Any],
        scores: npt.NDArray[Any],
        kind: str,
        payloads: Sequence[Sequence[dict[str, Any]]] | None = None,
        vectors: Sequence[Sequence[npt.NDArray[np.float32]]] | None = None,
    ) -> None:
        self.ids, self.scores, self.kind = ids, scores, kind
        self.payloads, self.vectors = payloads, vectors

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        """Give ids and scores, for ``ids, scores = hits``."""
        return iter((self.ids, self.scores))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, query: int) -> list[Hit]:
        found = self.found[query]
        ids, scores = self.ids[query][found].tolist(), self.scores[query][found].tolist()
        payloads = [None] * len(ids) if self.payloads is None else self.payloads[query]
        vectors = [None] * len(ids) if self.vectors is None else self.vectors[query]
        return list(map(Hit, ids, scores, payloads, vectors))

    def __repr__(self) -> str:
        more = "".join(f", {name}=…" for name in ("payloads", "vectors") if getattr(self, name) is not None)
        return f"Hits(ids={self.ids!r}, scores={self.scores!r}, kind={self.kind!r}{more})"

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        """Which places hold a hit, (m, k)."""
        if self.ids.dtype == object:
            return np.asarray(self.ids != _NOBODY, bool)
        return np.asarray(self.ids >= 0)

    def completed(
        self, items: Callable[[list[Any]], Mapping[Any, Any]], payloads: bool, vectors: bool
    ) -> Hits:
        """Return the same with payloads and vectors; ``items`` gives the items of distinct ids, by id."""
        rows = [row[mask].tolist() for row, mask in zip(self.ids, self.found, strict=True)]
        by_id = items(list({item_id: None for row in rows for item_id in row}))
        return Hits(
            self.ids,
            self.scores,
            self.kind,
            [[by_id[item_id].payload for item_id in row] for row in rows] if payloads else None,
            [[by_id[item_id].vector for item_id in row] for row in rows] if vectors else None,
        )

    def without(self, own: Sequence[Any]) -> Hits:
        """Return the same with one hit less per query: ``own[i]`` if query i has found it, else the last."""
        itself = np.empty((len(own), 1), object)
        itself[:, 0] = own
        places = np.argsort(self.ids == itself, axis=1, kind="stable")[:, :-1]

        def kept(rows: Sequence[Sequence[Any]] | None) -> list[list[Any]] | None:
            if rows is None:
                return None
            return [[row[i] for i in some if i < len(row)] for row, some in zip(rows, places, strict=True)]

        return Hits(
            np.take_along_axis(self.ids, places, axis=1),
            np.take_along_axis(self.scores, places, axis=1),
            self.kind,
            kept(self.payloads),
            kept(self.vectors),
        )

    def above(self, min_score: float | None) -> Hits:
        """Return the same without hits that have lower scores; hits come without payloads and vectors."""
        low = None if min_score is None else self.scores < min_score
        if low is None or not low.any():
            return self
        nobody = _NOBODY if self.ids.dtype == object else np.int64(-1)
        return Hits(np.where(low, nobody, self.ids), np.where(low, -np.inf, self.scores), self.kind)

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row for each hit; needs pandas.

        Its columns are ``query``, the number of the query, ``id`` and ``score``. If the search was asked for
        them, the fields of payloads follow, and ``vector``. A field of a payload with one of these names
        becomes ``payload.id`` and so on.

        >>> Hits(np.array([[3, 5]]), np.array([[7.0, 6.0]]), "overlap").to_pandas()
           query  id  score
        0      0   3    7.0
        1      0   5    6.0
        """
        return hits_tables.to_pandas(self._columns())

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with the columns of :meth:`to_pandas`; needs pyarrow.

        A column whose values have several types is JSON text.

        >>> Hits(np.array([[3, 5]]), np.array([[7.0, 6.0]]), "overlap").to_arrow().column_names
        ['query', 'id', 'score']
        """
        return hits_tables.to_arrow(self._columns())

    def _columns(self) -> dict[str, list[Any]]:
        rows = [(i, hit) for i in range(len(self)) for hit in self[i]]
        columns: dict[str, list[Any]] = {
            "query": [i for i, _ in rows],
            "id": [hit.id for _, hit in rows],
            "score": [hit.score for _, hit in rows],
        }
        own = {*columns, "vector"}
        if self.payloads is not None:
            for name in {name: None for _, hit in rows for name in hit.payload or {}}:
                key = f"payload.{name}" if name in own else name
                columns[key] = [(hit.payload or {}).get(name) for _, hit in rows]
        if self.vectors is not None:
            columns["vector"] = [hit.vector for _, hit in rows]
        return columns
