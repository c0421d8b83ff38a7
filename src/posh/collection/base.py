"""The contract of a collection, which the embedded one, the service's client and other engines keep.

:class:`BaseCollection` checks every argument, in one wording, and asks the engine for the rest through the
methods that begin with an underscore.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from posh import _validate
from posh.collection import _arguments
from posh.collection.filters import Filter, parse
from posh.hashers.base import Hasher
from posh.index.params import SearchParams, require_scoring
from posh.preprocess import Float32

__all__ = ["BaseCollection", "Id", "Item", "Matches", "Payload"]

Id = int | str
Payload = dict[str, Any]

NO_HASHER = "expected a collection with a hasher, got none: call fit or reindex first"
SAMPLE = 20_000  # stored vectors that a hasher is fitted on


class Item(NamedTuple):
    """One item of a collection: its id, its vector (d,), float32, and its payload."""

    id: Id
    vector: Float32
    payload: Payload


class _Pair(NamedTuple):
    ids: npt.NDArray[Any]
    scores: npt.NDArray[np.float32]


class Matches(_Pair):
    """Results of a search, best first: ``ids, scores = matches``, both (m, k).

    Higher scores are better; of equal scores, what was written earlier comes first. ``ids`` is an array of
    objects, int or str. Where fewer than k items were found the id is None and the score -inf. ``kind`` says
    what the scores are, see :class:`posh.Hits`.
    """

    kind: str

    def __new__(cls, ids: npt.NDArray[Any], scores: npt.NDArray[np.float32], kind: str) -> Matches:
        """Make matches of arrays (m, k)."""
        matches = super().__new__(cls, ids, scores)
        matches.kind = kind
        return matches

    def __repr__(self) -> str:
        return f"Matches(ids={self.ids!r}, scores={self.scores!r}, kind={self.kind!r})"


class BaseCollection(ABC):
    """Vectors with ids and payloads, kept by an engine.

    Ids are int (64 bits) or str; ``1`` and ``"1"`` are two ids. Payloads are what JSON objects can hold.
    Methods may be called from any number of threads; each search sees one moment, and a call that fails
    changes nothing.
    """

    # What an engine supplies -----------------------------------------------------------------------

    @property
    @abstractmethod
    def n_features(self) -> int | None:
        """The number of columns of all vectors; None until the first vectors or a hasher decide it."""

    @property
    @abstractmethod
    def hasher(self) -> Hasher[Any] | None:
        """The hasher whose codes are searched."""

    @property
    @abstractmethod
    def metadata(self) -> Payload:
        """A small JSON object that is kept with the collection, as a copy."""

    @abstractmethod
    def _set_metadata(self, metadata: Payload) -> None: ...

    @abstractmethod
    def _upsert(self, ids: list[Id], vectors: Float32, payloads: list[Payload]) -> None: ...

    @abstractmethod
    def _delete(self, ids: list[Id]) -> int: ...

    @abstractmethod
    def _get(self, ids: list[Id]) -> list[Item | None]: ...

    @abstractmethod
    def _search(self, vectors: Float32, params: SearchParams, tree: Filter | None) -> Matches:
        """Search for checked vectors (m, d); None in ``params`` is what the collection does by default."""

    @abstractmethod
    def _count(self, tree: Filter | None) -> int: ...

    @abstractmethod
    def _items(self, tree: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]: ...

    @abstractmethod
    def _sample(self, n: int) -> Float32:
        """Up to n stored vectors, drawn at random, but alike for the same items."""

    @abstractmethod
    def _reindex(self, hasher: Hasher[Any], options: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def compact(self) -> Self:
        """Give back the room of what was deleted or replaced."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections; closing twice is allowed, using a closed collection is not."""

    # What users call -------------------------------------------------------------------------------

    def set_metadata(self, metadata: Mapping[str, Any]) -> Self:
        """Replace the metadata."""
        self._set_metadata(_arguments.json_object(metadata, "metadata"))
        return self

    def upsert(
        self,
        ids: Sequence[Id] | npt.NDArray[Any],
        vectors: npt.ArrayLike,
        payloads: Sequence[Mapping[str, Any]] | None = None,
    ) -> Self:
        """Write items, all or none, replacing those whose ids are present; returns when they are safe.

        ``vectors`` are (n, d); ``payloads`` are n dictionaries, by default empty ones.
        """
        array = _arguments.vectors(vectors, self.n_features)
        numbers = _arguments.ids(ids, len(array))
        contents = _arguments.payloads(payloads, len(array))
        if numbers:
            self._upsert(numbers, array, contents)
        return self

    def delete(self, ids: Sequence[Id] | npt.NDArray[Any]) -> int:
        """Delete items, all or none; ids that are not there are ignored. Returns how many there were."""
        return self._delete(_arguments.ids(ids))

    def get(self, ids: Sequence[Id] | npt.NDArray[Any]) -> list[Item | None]:
        """Items by id, in this order; None for an id that is not there."""
        return self._get(_arguments.ids(ids, distinct=False))

    def search(
        self,
        vectors: npt.ArrayLike,
        k: int = 10,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002  # the word that users expect
        scoring: str | None = None,
        oversample: float | None = None,
        n_probe: int | None = None,
        n_threads: int | None = None,
    ) -> Matches:
        """Find the k nearest items of one vector (d,) or of many (m, d) among those that pass the filter.

        ``scoring``, ``oversample`` and ``n_probe`` are as in :class:`posh.Index`, by default what the
        collection was made with; see :mod:`posh.collection.filters` for filters.
        """
        params = SearchParams(k, scoring, oversample, n_probe, n_threads)
        self._require_searchable(params)
        array = _arguments.vectors(np.atleast_2d(np.asarray(vectors)), self.n_features)
        return self._search(array, params, None if filter is None else parse(filter))

    def count(self, filter: Mapping[str, Any] | None = None) -> int:  # noqa: A002
        """How many items there are, or pass the filter."""
        return self._count(None if filter is None else parse(filter))

    def items(
        self,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        after: Id | None = None,
        limit: int | None = None,
    ) -> Iterator[Item]:
        """Items in the order of writing, those after the item with the id ``after``, at most ``limit``.

        They are those of the moment at which the first is taken; an ``after`` that is not there is then a
        ``KeyError``.
        """
        start = None if after is None else _arguments.ids([after])[0]
        most = None if limit is None else _validate.integer("limit", limit, 0)
        return self._items(None if filter is None else parse(filter), start, most)

    def fit(self, hasher: Hasher[Any], vectors: npt.ArrayLike | None = None, **options: Any) -> Self:
        """Fit a copy of ``hasher`` on vectors (n, d), then search by its codes as :meth:`reindex` does.

        Without vectors it is fitted on a random sample of up to 20,000 of those stored.
        """
        if vectors is None:
            X = self._sample(SAMPLE)
            if not len(X):
                raise ValueError(
                    "expected vectors to fit on, got an empty collection: give vectors or write items first"
                )
        else:
            X = _arguments.vectors(vectors, self.n_features)
        return self.reindex(clone(_arguments.hasher(hasher)).fit(X), **options)

    def reindex(self, hasher: Hasher[Any], **options: Any) -> Self:
        """Search by the codes of another fitted hasher from now on; searches and writes go on meanwhile.

        ``options`` are those of :class:`posh.Index`; what is not given keeps its value.
        """
        self._reindex(_arguments.fitted_hasher(hasher, self.n_features), options)
        return self

    def _require_searchable(self, params: SearchParams) -> None:
        """Raise if there is no hasher, or if its codes do not allow the scoring."""
        hasher = self.hasher
        if hasher is None:
            raise ValueError(NO_HASHER)
        require_scoring(params.scoring, hasher)

    def __len__(self) -> int:
        return self.count()

    def __contains__(self, number: Id) -> bool:
        return self.get([number])[0] is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
