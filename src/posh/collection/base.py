"""Collections as users call them: :class:`BaseCollection` checks all arguments.

Then it calls the methods with an underscore, which an engine implements: see :mod:`posh.collection.contract`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from posh import _validate
from posh.collection import arguments
from posh.collection.contract import CollectionContract
from posh.collection.filters import Filter, parse
from posh.collection.types import Id, Include, Item, Payload
from posh.hashers.base import Hasher
from posh.index.hits import Hits
from posh.index.params import SearchParams, require_scoring, search_params
from posh.index.report import IndexReport
from posh.preprocess import Float32

__all__ = ["BaseCollection", "Id", "Include", "Item", "Payload"]

NO_HASHER = "expected a collection with a hasher or a metric, got neither: call fit or reindex first"
SAMPLE = 20_000  # stored vectors that fit uses


class BaseCollection(CollectionContract):
    """Items that an engine stores and searches: vectors with ids and payloads.

    Ids are int (64 bits) or str; ``1`` and ``"1"`` are two ids, and a ``uuid.UUID`` becomes its string.
    Vectors are arrays, lists of lists, or columns of pandas, Polars or pyarrow; ids may be such columns, too.
    Payloads are JSON objects. Any number of threads may call the methods. Each search sees one
    snapshot. A call that fails changes nothing.
    """

    def set_metadata(self, metadata: Mapping[str, Any]) -> Self:
        """Replace the metadata."""
        self._set_metadata(arguments.json_object(metadata, "metadata"))
        return self

    def upsert(
        self,
        ids: Sequence[Id] | npt.NDArray[Any],
        vectors: npt.ArrayLike,
        payloads: Sequence[Mapping[str, Any]] | None = None,
    ) -> Self:
        """Write items, all or none, in place of those with the same ids; return when they are durable.

        ``vectors`` are (n, d); ``payloads`` are n dictionaries, by default empty ones.
        """
        array = arguments.vectors(vectors, self.n_features)
        checked_ids = arguments.ids(ids, len(array))
        checked_payloads = arguments.payloads(payloads, len(array))
        if checked_ids:
            self._upsert(checked_ids, array, checked_payloads)
        return self

    def update_payload(
        self,
        ids: Sequence[Id] | npt.NDArray[Any],
        payloads: Sequence[Mapping[str, Any]],
        *,
        replace: bool = False,
    ) -> Self:
        """Change the payloads of items, all or none, and keep their vectors.

        Each field of ``payloads[i]`` takes the place of the field with this name, and other fields stay, as
        in ``dict.update``. With ``replace`` nothing of the old payload stays. An id without an item is a
        ``KeyError``. This counts as a new write: the items are the last ones of :meth:`items` then.
        """
        checked_ids = arguments.ids(ids)
        checked = arguments.payloads(payloads, len(checked_ids), "ids")
        if checked_ids:
            self._update_payload(checked_ids, checked, replace=replace)
        return self

    def delete(
        self,
        ids: Sequence[Id] | npt.NDArray[Any] | None = None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        limit: int | None = None,
    ) -> int:
        """Delete items by their ids or by a filter, all or none, and return their number.

        Ids without an item are ignored. With a filter, ``limit`` bounds the number: those that were written
        first are deleted. The filter ``{}`` deletes everything.
        """
        if (ids is None) == (filter is None):
            raise ValueError("expected either ids or a filter of items to delete, got both or neither")
        if filter is not None:
            most = None if limit is None else _validate.integer("limit", limit, 1)
            return self._delete_where(parse(filter), most)
        if limit is not None:
            raise ValueError(f"limit={limit!r} is for a filter: leave it out with ids")
        return self._delete(arguments.ids(ids))

    def get(self, ids: Sequence[Id] | npt.NDArray[Any]) -> list[Item | None]:
        """Return the items with these ids, in this order; None for an id without an item."""
        return self._get(arguments.ids(ids, distinct=False))

    def search(
        self,
        queries: npt.ArrayLike | None = None,
        k: int = 10,
        *,
        ids: Sequence[Id] | npt.NDArray[Any] | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002  # the word that users expect
        payloads: bool = False,
        vectors: bool = False,
        scoring: str | None = None,
        oversample: float | None = None,
        n_probe: int | None = None,
        n_threads: int | None = None,
        slack: float | None = None,
        exact: bool = False,
        recall: float | None = None,
        min_score: float | None = None,
    ) -> Hits:
        """Find the k nearest items of one vector (d,) or of many (m, d) among those that pass the filter.

        With ``ids`` in place of ``queries``, find the neighbours of stored items: an item is not its own hit,
        and an id without an item is a ``KeyError``. ``payloads`` and ``vectors`` ask for those of the hits,
        in the state that was searched. ``min_score`` leaves out hits with lower scores: see
        :class:`posh.Hits` for what scores are. :mod:`posh.collection.filters` explains filters. The other
        options are as in :meth:`posh.Index.search`, by default what the collection was made with.

        >>> import posh, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, posh.create(folder, metric="cosine") as shop:
        ...     _ = shop.upsert(["a", "b"], [[1.0, 0.0], [1.0, 1.0]], [{"price": 3}, {"price": 5}])
        ...     hits = shop.search([[1.0, 0.1]], k=2, payloads=True)
        >>> [(hit.id, round(hit.score, 2), hit.payload) for hit in hits[0]]
        [('a', 1.0, {'price': 3}), ('b', 0.77, {'price': 5})]
        """
        params = search_params(k, scoring, oversample, n_probe, n_threads, slack, exact, recall, min_score)
        self._require_searchable(params)
        where, include = None if filter is None else parse(filter), Include(payloads, vectors)
        if (queries is None) == (ids is None):
            raise ValueError("expected either queries or ids to search for, got both or neither")
        if ids is not None:
            return self._search_like(arguments.ids(ids, distinct=False), params, where, include)
        array = arguments.vectors(_validate.queries(queries, "vectors"), self.n_features)
        return self._search(array, params, where, include)

    def _search_like(
        self, ids: list[Id], params: SearchParams, where: Filter | None, include: Include
    ) -> Hits:
        """Search for the neighbours of stored items, without the items themselves."""
        items = self._get(ids)
        for item_id, item in zip(ids, items, strict=True):
            if item is None:
                raise KeyError(f"expected ids of stored items, got {item_id!r:.80}, which is not there")
        vectors = np.array([item.vector for item in items if item is not None], np.float32)
        array = vectors.reshape(len(ids), self.n_features or 1)
        found = self._search(array, params.with_k(params.k + 1), where, include)
        return found.without(ids)

    def count(self, filter: Mapping[str, Any] | None = None) -> int:  # noqa: A002
        """Return the number of items, or of those that pass the filter."""
        return self._count(None if filter is None else parse(filter))

    def items(
        self,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        after: Id | None = None,
        limit: int | None = None,
    ) -> Iterator[Item]:
        """Yield items in the order of writing: those after the item with the id ``after``, up to ``limit``.

        All items are of one snapshot, which is taken with the first of them. An ``after`` without an item is
        a ``KeyError`` then.
        """
        start = None if after is None else arguments.ids([after])[0]
        most = None if limit is None else _validate.integer("limit", limit, 0)
        return self._items(None if filter is None else parse(filter), start, most)

    def sample(self, n: int) -> Float32:
        """Return up to n stored vectors (m, d), drawn at random; the same ones for the same items."""
        return self._sample(_validate.integer("n", n, 1))

    def sample_items(self, n: int) -> Iterator[Item]:
        """Yield up to n items, drawn at random, in the order of writing; the same ones for the same items.

        They are the items of the vectors of :meth:`sample`.
        """
        return self._sample_items(_validate.integer("n", n, 1))

    def _sample_items(self, n: int) -> Iterator[Item]:
        """Read all items; an engine that can do with less should."""
        count = self._count(None)
        chosen = set(np.random.default_rng(0).permutation(count)[:n].tolist())
        return (item for i, item in enumerate(self._items(None, None, count)) if i in chosen)

    def fit(self, hasher: Hasher[Any], vectors: npt.ArrayLike | None = None, **options: Any) -> Self:
        """Fit a copy of ``hasher`` on vectors (n, d), then search by its codes as :meth:`reindex` does.

        Without vectors it is fitted on a sample of up to 20,000 stored vectors.
        """
        if vectors is None:
            X = self.sample(SAMPLE)
            if not len(X):
                raise ValueError(
                    "expected vectors to fit on, got an empty collection: give vectors or write items first"
                )
        else:
            X = arguments.vectors(vectors, self.n_features)
        return self.reindex(clone(arguments.hasher(hasher)).fit(X), **options)

    def reindex(self, hasher: Hasher[Any] | None = None, **options: Any) -> Self:
        """Search by the codes of another fitted hasher from now on; searches and writes go on meanwhile.

        ``options`` are those of :class:`posh.Index`; options that are left out keep their values. Without a
        hasher the index is made again, trained and measured on the items that there are now. It keeps its
        hasher, unless options bring a metric, or change the metric or its structure.
        """
        own = None if hasher is None else arguments.fitted_hasher(hasher, self.n_features)
        self._reindex(own, options)
        return self

    def report(self) -> IndexReport:
        """What the index is, what its searches find, and what they cost: see :meth:`posh.Index.report`."""
        return self._report()

    def compares_all(self, params: SearchParams) -> bool:
        """Whether a search compares the vectors of all items, as far as the engine knows: that takes long."""
        return params.exact

    def _require_searchable(self, params: SearchParams) -> None:
        """Raise if there is neither a hasher nor a metric, or if the codes do not allow the scoring."""
        hasher = self.hasher
        if hasher is not None:
            require_scoring(params.scoring, hasher)
        elif self.index_options.get("metric") is None:
            raise ValueError(NO_HASHER)

    def __len__(self) -> int:
        return self.count()

    def __contains__(self, item_id: Id) -> bool:
        return self.get([item_id])[0] is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
