"""The contract of collections, and the validation of their arguments.

:class:`BaseCollection` has the methods that users call. They validate the arguments and call the methods with
an underscore, which an engine implements: embedded, remote, or of another distribution.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from posh import _validate
from posh._validate import (
    find_non_finite,
    validate_ids,
    validate_integer,
    validate_queries,
    validate_storable,
)
from posh.collection.filters import Filter, parse, scalar_type
from posh.collection.text import NO_TEXT, Fusion, TextOptions, TextQuery, parse_fusion, parse_texts
from posh.errors import FilterWarning
from posh.hashers.base import Hasher
from posh.index.codes.options import CodeParams, require_scoring
from posh.index.hits import HitRows, Hits, RadiusHits
from posh.index.nearest.duplicates import Duplicates, collect_duplicates
from posh.index.nearest.options import NearestParams, RadiusParams
from posh.index.nearest.report import IndexReport
from posh.index.params import SearchParams
from posh.preprocess import Float32

__all__ = [
    "BaseCollection",
    "CollectionContract",
    "Id",
    "Include",
    "Item",
    "Payload",
    "has_no_hits",
    "validate_fitted_hasher",
    "validate_hasher",
    "validate_ids",
    "validate_json_object",
    "validate_payloads",
    "validate_vectors",
]

Id = int | str
Payload = dict[str, Any]


class Item(NamedTuple):
    """One item of a collection: its id, its vector (d,), float32, and its payload."""

    id: Id
    vector: Float32
    payload: Payload


class Include(NamedTuple):
    """Fields to return with each hit.

    ``charge``, if it is not None, is called with the bytes of the items while an engine reads them, as far as
    it reads them in parts. It may raise, to stop a search whose hits are too large.
    """

    payloads: bool = False
    vectors: bool = False
    charge: Callable[[int], None] | None = None

    @property
    def has_fields(self) -> bool:
        """Whether hits have more than ids and scores."""
        return self.payloads or self.vectors


class CollectionContract(ABC):
    """The methods that an engine implements; :class:`~posh.BaseCollection` has checked their arguments."""

    has_items: ClassVar[bool] = True
    """Whether there are payloads and vectors to read; otherwise hits are ids and scores."""

    @property
    @abstractmethod
    def n_features(self) -> int | None:
        """The number of columns of all vectors; None until the first vectors or a hasher decide it."""

    @property
    @abstractmethod
    def hasher(self) -> Hasher[Any] | None:
        """The hasher whose codes are searched; None until there is one."""

    @property
    @abstractmethod
    def metadata(self) -> Payload:
        """A copy of the small JSON object that belongs to the collection."""

    @property
    @abstractmethod
    def index_options(self) -> dict[str, Any]:
        """The options of the index, as far as the engine knows them."""

    @abstractmethod
    def memory_usage(self) -> int | None:
        """Return the bytes of memory that the index takes; None if the engine does not know."""

    @abstractmethod
    def _set_metadata(self, metadata: Payload) -> None: ...

    @abstractmethod
    def _upsert(self, ids: list[Id], vectors: Float32, payloads: list[Payload]) -> None: ...

    @abstractmethod
    def _delete(self, ids: list[Id]) -> int: ...

    @abstractmethod
    def _delete_where(self, where: Filter, limit: int | None) -> int: ...

    @abstractmethod
    def _update_payload(self, ids: list[Id], payloads: list[Payload], *, replace: bool) -> None: ...

    @abstractmethod
    def _get(self, ids: list[Id]) -> list[Item | None]: ...

    @abstractmethod
    def _search(self, vectors: Float32, params: SearchParams, where: Filter | None, include: Include) -> Hits:
        """Search for valid vectors (m, d); None in ``params`` stands for the default of the collection."""

    def _search_text(
        self,
        texts: list[TextQuery],
        vectors: Float32 | None,
        params: SearchParams,
        fusion: Fusion,
        where: Filter | None,
        include: Include,
    ) -> Hits:
        """Search by m texts, or by texts and vectors (m, d); an engine without text refuses."""
        raise ValueError(NO_TEXT)

    @property
    def text(self) -> TextOptions | None:
        """The fields and the tokenizer of the text index; None without one."""
        return None

    def _index_text(self, options: TextOptions | None) -> None:
        """Build the text index again, with other options unless they are None."""
        raise ValueError(
            "expected a collection in a folder for a text index, got one of an engine without: "
            "copy the items to one"
        )

    def _search_radius(
        self, vectors: Float32, params: RadiusParams, where: Filter | None, include: Include
    ) -> RadiusHits:
        """Find all items within a radius of valid vectors (m, d); engines need not have it."""
        raise ValueError(
            "expected a collection in a folder or of a service for a range search, got a "
            f"{type(self).__name__}: copy it to a folder with 'posh copy', or use search with min_score"
        )

    @abstractmethod
    def _count(self, where: Filter | None) -> int: ...

    def _explain_nothing(self, where: Filter) -> str | None:
        """Return why no item can pass a filter; None if some can, or if the engine does not know."""
        return None

    @abstractmethod
    def _items(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]: ...

    @abstractmethod
    def _sample(self, n: int) -> Float32:
        """Return up to n stored vectors, see :meth:`sample`."""

    @abstractmethod
    def _reindex(self, hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def _calibrate(self, queries: Float32 | None) -> None: ...

    @abstractmethod
    def _report(self) -> IndexReport: ...

    @abstractmethod
    def compact(self) -> Self:
        """Release the space of deleted and replaced items."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections; a second call does nothing.

        All other calls of a closed collection are errors.
        """


MAX_DEPTH = 32


def validate_vectors(values: Any, n_features: int | None) -> Float32:
    """Return vectors (n, d) as contiguous float32; a value that is too large for float32 is a ValueError."""
    array = _validate.validate_vectors(
        values, n_features, min_rows=0, model="this collection", name="vectors"
    )
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, np.float32)
    error = None if array.dtype == np.float32 else find_non_finite(converted, "vectors as float32")
    if error is not None:
        raise error
    return converted


def validate_hasher(value: Any) -> Hasher[Any]:
    """Return a hasher, fitted or not."""
    if not isinstance(value, Hasher):
        raise TypeError(f"expected a hasher such as posh.POSH(), got {value!r:.80}")
    return value


def validate_fitted_hasher(value: Any, n_features: int | None) -> Hasher[Any]:
    """Return a fitted hasher of vectors with ``n_features`` columns, if that is known."""
    check_is_fitted(validate_hasher(value), "weights_")
    if n_features not in (None, value.n_features_in_):
        raise ValueError(
            f"expected a hasher of vectors with {n_features} columns, as this collection has, "
            f"got one fitted on {value.n_features_in_}: fit it on vectors of this collection"
        )
    return validate_hasher(value)


def validate_payloads(values: Any, n: int, others: str = "vectors") -> list[dict[str, Any]]:
    """Return copies of ``n`` payloads; None gives empty ones."""
    if values is None:
        return [{} for _ in range(n)]
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence):
        raise ValueError(f"expected payloads as a list of dictionaries, got {values!r:.80}")
    if len(values) != n:
        raise ValueError(f"expected as many payloads as {others} ({n}), got {len(values)}")
    return [validate_json_object(value, f"payloads[{i}]") for i, value in enumerate(values)]


def validate_json_object(value: Any, where: str) -> dict[str, Any]:
    """Return a copy of a dictionary that JSON can hold."""
    if not isinstance(value, Mapping):
        raise ValueError(f"expected {where} to be a dictionary, got {value!r:.80}")
    copied = _copy_json(value, where, 1)
    assert isinstance(copied, dict)
    return copied


def _copy_json(value: Any, where: str, depth: int) -> Any:
    """Return a copy; raise ValueError for NaN, too deep nesting and types that JSON lacks."""
    if depth > MAX_DEPTH:
        raise ValueError(f"expected {where.split('.')[0]} nested at most {MAX_DEPTH} deep, got more")
    if isinstance(value, np.generic):
        value = value.item()
    if scalar_type(value) is not None:
        validate_storable(value, where)
        return value
    if isinstance(value, list | tuple):
        return [_copy_json(part, f"{where}[{i}]", depth + 1) for i, part in enumerate(value)]
    if isinstance(value, Mapping):
        return {
            _validate_key(key, where): _copy_json(part, f"{where}.{key}", depth + 1)
            for key, part in value.items()
        }
    raise ValueError(
        f"expected {where} to contain only types of JSON, got {type(value).__name__}: convert it first"
    )


def _validate_key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"expected the fields of {where} to be strings, got {key!r:.80}")
    validate_storable(key, f"a field of {where}")
    return key


def has_no_hits(found: HitRows) -> bool:
    """Return whether no query has a hit."""
    return not (found.scores > -np.inf).any()


NO_HASHER = "expected a collection with a hasher or a metric, got neither: call fit or reindex first"
SAMPLE = 20_000  # stored vectors that fit uses
DUPLICATES = 100  # of one item


def make_search_params(k: int, hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> SearchParams:
    """Return the parameters of a search by the codes of a hasher, or without one by a metric."""
    kind: type[SearchParams] = NearestParams if hasher is None else CodeParams
    for name, value in options.items():
        if name not in kind.__dataclass_fields__:
            needed, present = ("a metric", "a hasher") if hasher is not None else ("a hasher", "a metric")
            raise ValueError(
                f"{name}={value!r} needs a collection with {needed}, got one with {present}: leave it out"
            )
    try:
        params = _PARAMS[kind](k, **options)
    except TypeError:  # a value that cannot be hashed is a wrong one
        params = kind(k, **options)
    if hasher is not None and isinstance(params, CodeParams):
        require_scoring(params.scoring, hasher)
    return params


# Constructors that validate values once if they come repeatedly.
_PARAMS: dict[type[SearchParams], Callable[..., SearchParams]] = {
    kind: lru_cache(maxsize=1024, typed=True)(kind) for kind in (NearestParams, CodeParams)
}


class BaseCollection(CollectionContract):
    """Items that an engine stores and searches: vectors with ids and payloads.

    Ids are int (64 bits) or str; ``1`` and ``"1"`` are two ids, and a ``uuid.UUID`` becomes its string.
    Vectors are arrays, lists of lists, or columns of pandas, Polars or pyarrow; ids may be such columns, too.
    Payloads are JSON objects. Any number of threads may call the methods. Each search sees one
    snapshot. A call that fails changes nothing.
    """

    def set_metadata(self, metadata: Mapping[str, Any]) -> Self:
        """Replace the metadata."""
        self._set_metadata(validate_json_object(metadata, "metadata"))
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
        array = validate_vectors(vectors, self.n_features)
        checked_ids = validate_ids(ids, len(array))
        checked_payloads = validate_payloads(payloads, len(array))
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

        Each field of ``payloads[i]`` replaces the field with this name, and other fields are kept, as in
        ``dict.update``. With ``replace``, no field of the old payload is kept. An id without an item raises
        ``KeyError``. This counts as a new write: :meth:`items` then yields these items last.
        """
        checked_ids = validate_ids(ids)
        checked = validate_payloads(payloads, len(checked_ids), "ids")
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
            most = None if limit is None else validate_integer("limit", limit, 1)
            where = parse(filter)
            n_deleted = self._delete_where(where, most)
            self._warn_of_filter(where, is_empty=not n_deleted)
            return n_deleted
        if limit is not None:
            raise ValueError(f"limit={limit!r} is for a filter: leave it out with ids")
        return self._delete(validate_ids(ids))

    def get(self, ids: Sequence[Id] | npt.NDArray[Any]) -> list[Item | None]:
        """Return the items with these ids, in this order; None for an id without an item."""
        return self._get(validate_ids(ids, distinct=False))

    def search(
        self,
        queries: npt.ArrayLike | None = None,
        k: int = 10,
        *,
        text: str | Mapping[str, str] | Sequence[str | Mapping[str, str]] | None = None,
        fusion: Mapping[str, float] | None = None,
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
        and an id without an item raises ``KeyError``. ``payloads`` and ``vectors`` return those of the hits,
        from the searched snapshot. ``min_score`` leaves out hits with lower scores: see
        :class:`posh.Hits` for the meaning of scores. :mod:`posh.collection.filters` explains filters. The
        other options are as in :meth:`posh.Index.search`; their defaults are those of the collection.

        ``text`` searches the fields that ``posh.create(path, text=[…])`` has named: plain words such as
        ``'red "merino wool" scar*'``, or an expression of FTS5 as ``{"fts5": "title : wool NOT cotton"}``.
        For m queries it is a list of m. Alone it ranks by bm25; with ``queries`` both rankings are fused by
        reciprocal ranks: an item at place r of a ranking gets ``weight / (constant + r)``. ``fusion`` may
        have other values of ``{"constant": 60, "vectors": 1, "text": 1, "depth": 100}``, that is the
        weights, and the number of items that each ranking contributes (at least k). ``filter`` applies to
        both rankings, ``min_score`` to the resulting scores.

        >>> import posh, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, posh.create(folder, metric="cosine") as shop:
        ...     _ = shop.upsert(["a", "b"], [[1.0, 0.0], [1.0, 1.0]], [{"price": 3}, {"price": 5}])
        ...     hits = shop.search([[1.0, 0.1]], k=2, payloads=True)
        >>> [(hit.id, round(hit.score, 2), hit.payload) for hit in hits[0]]
        [('a', 1.0, {'price': 3}), ('b', 0.77, {'price': 5})]
        """
        options = {
            "scoring": scoring,
            "oversample": oversample,
            "n_probe": n_probe,
            "n_threads": n_threads,
            "slack": slack,
            "exact": exact,
            "recall": recall,
        }
        where, include = None if filter is None else parse(filter), Include(payloads, vectors)
        if text is not None:
            if ids is not None:
                raise ValueError("expected text with queries or alone, got it with ids: leave ids out")
            hits = self._search_by_text(text, queries, k, fusion, options, min_score, where, include)
            self._warn_of_filter(where, is_empty=has_no_hits(hits))
            return hits
        if fusion is not None:
            raise ValueError(f"fusion={fusion!r:.80} is for a search by queries and text: leave it out")
        params = self._make_params(k, min_score=min_score, **options)
        if (queries is None) == (ids is None):
            raise ValueError("expected either queries or ids to search for, got both or neither")
        if ids is not None:
            hits = self._search_like(validate_ids(ids, distinct=False), params, where, include)
        else:
            array = validate_vectors(validate_queries(queries, "vectors"), self.n_features)
            hits = self._search(array, params, where, include)
        if where is not None:
            self._warn_of_filter(where, is_empty=has_no_hits(hits))
        return hits

    def _warn_of_filter(self, where: Filter | None, *, is_empty: bool) -> None:
        """Warn if a filter was found to pass nothing and cannot pass anything; call it in a public method."""
        problem = self._explain_nothing(where) if where is not None and is_empty else None
        if problem is not None:
            warnings.warn(problem, FilterWarning, stacklevel=3)

    def _search_by_text(
        self,
        text: Any,
        queries: npt.ArrayLike | None,
        k: int,
        fusion: Any,
        options: Mapping[str, Any],
        min_score: float | None,
        where: Filter | None,
        include: Include,
    ) -> Hits:
        """Validate the arguments of a search by text, or by vectors and text."""
        texts, weights = parse_texts(text), parse_fusion(fusion)
        if queries is not None:
            params = self._make_params(k, min_score=min_score, **options)
            array = validate_vectors(validate_queries(queries, "vectors"), self.n_features)
            if len(array) != len(texts):
                raise ValueError(f"expected a text for each of {len(array)} queries, got {len(texts)}")
            return self._search_text(texts, array, params, weights, where, include)
        given = [name for name, value in {**options, "fusion": fusion}.items() if value not in (None, False)]
        if given:
            raise ValueError(
                f"expected {', '.join(given)} with queries, got text alone: leave {given[0]} out"
            )
        params = SearchParams(k, min_score=min_score)
        return self._search_text(texts, None, params, weights, where, include)

    def search_radius(
        self,
        queries: npt.ArrayLike,
        *,
        min_score: float,
        limit: int | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002  # the word that users expect
        payloads: bool = False,
        vectors: bool = False,
        recall: float | None = None,
        exact: bool = False,
        n_threads: int | None = None,
    ) -> RadiusHits:
        """Find all items whose score reaches a bound, for one vector (d,) or many (m, d).

        The options are those of :meth:`posh.Index.search_radius` and, for filters and fields of the hits,
        those of :meth:`search`. It needs a collection with a metric, in a folder or of a service. A service
        returns no more hits than its limits allow, so ``hits.is_cut`` may be set without a ``limit``.

        >>> import posh, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, posh.create(folder, metric="cosine") as shop:
        ...     _ = shop.upsert(["a", "b"], [[1.0, 0.0], [1.0, 1.0]], [{"price": 3}, {"price": 5}])
        ...     hits = shop.search_radius([[1.0, 0.1]], min_score=0.9, payloads=True)
        >>> [(hit.id, round(hit.score, 2), hit.payload) for hit in hits[0]]
        [('a', 1.0, {'price': 3})]
        """
        params = RadiusParams(min_score, limit, recall, exact, n_threads)
        self.require_metric()
        where = None if filter is None else parse(filter)
        array = validate_vectors(validate_queries(queries, "vectors"), self.n_features)
        found = self._search_radius(array, params, where, Include(payloads, vectors))
        self._warn_of_filter(where, is_empty=has_no_hits(found))
        return found

    def duplicates(
        self,
        *,
        min_score: float,
        limit: int = DUPLICATES,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        recall: float | None = None,
        exact: bool = False,
        n_threads: int | None = None,
    ) -> Duplicates:
        """Find all pairs of items whose score reaches a bound, among those that pass the filter.

        See :func:`posh.duplicates` for the parameters and the result. Items that are written concurrently
        may be missing.

        >>> import posh, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, posh.create(folder, metric="cosine") as shop:
        ...     _ = shop.upsert(["a", "b", "c"], [[1.0, 0.0], [0.0, 1.0], [1.0, 0.01]])
        ...     shop.duplicates(min_score=0.99).groups
        [['a', 'c']]
        """
        most = validate_integer("limit", limit, 1)
        params = RadiusParams(min_score, most, recall, exact, n_threads)
        self.require_metric()
        where = None if filter is None else parse(filter)

        def read() -> Iterator[tuple[list[Id], Float32]]:
            items = self._items(where, None, None)
            while batch := list(islice(items, self._duplicates_at_once(most))):
                yield [item.id for item in batch], np.array([item.vector for item in batch], np.float32)

        return collect_duplicates(
            read(), lambda rows, wanted: self._search_radius(rows, wanted, where, Include()), params
        )

    def _duplicates_at_once(self, limit: int) -> int:
        """Return the number of items that :meth:`duplicates` searches for together."""
        return 8192

    def require_metric(self) -> None:
        """Raise ValueError if searches use codes, whose scores have no radius."""
        if self.index_options.get("metric") is None:
            kind = "neither" if self.hasher is None else "one with a hasher"
            raise ValueError(
                f"expected a collection with a metric for a range search, got {kind}: "
                "call reindex(metric='cosine') first"
            )

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
        where = None if filter is None else parse(filter)
        n_items = self._count(where)
        self._warn_of_filter(where, is_empty=not n_items)
        return n_items

    def items(
        self,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        after: Id | None = None,
        limit: int | None = None,
    ) -> Iterator[Item]:
        """Yield items in the order of writing: those after the item with the id ``after``, up to ``limit``.

        All items come from one snapshot, which is taken with the first item. An ``after`` without an item
        then raises ``KeyError``.
        """
        start = None if after is None else validate_ids([after])[0]
        most = None if limit is None else validate_integer("limit", limit, 0)
        where = None if filter is None else parse(filter)
        items = self._items(where, start, most)
        return items if where is None or start is not None else self._warn_without_items(items, where)

    def _warn_without_items(self, items: Iterator[Item], where: Filter) -> Iterator[Item]:
        is_empty = True
        for item in items:
            is_empty = False
            yield item
        self._warn_of_filter(where, is_empty=is_empty)

    def sample(self, n: int) -> Float32:
        """Return up to n stored vectors (m, d), drawn at random; the same ones for the same items."""
        return self._sample(validate_integer("n", n, 1))

    def sample_items(self, n: int) -> Iterator[Item]:
        """Yield up to n items, drawn at random, in the order of writing; the same ones for the same items.

        They are the items of the vectors of :meth:`sample`.
        """
        return self._sample_items(validate_integer("n", n, 1))

    def _sample_items(self, n: int) -> Iterator[Item]:
        """Read all items; engines should override this if they can read fewer."""
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
            X = validate_vectors(vectors, self.n_features)
        return self.reindex(clone(validate_hasher(hasher)).fit(X), **options)

    def reindex(self, hasher: Hasher[Any] | None = None, **options: Any) -> Self:
        """Rebuild the index, while searches and writes continue.

        With a fitted hasher, search by its codes from then on; ``options`` are those of
        :class:`posh.CodeIndex`. With ``metric=`` and options of :class:`posh.Index`, search by the metric.
        With neither, the index keeps its kind and is trained and measured on the present items. Options that
        are left out keep their values unless the kind changes.
        """
        own = None if hasher is None else validate_fitted_hasher(hasher, self.n_features)
        self._reindex(own, options)
        return self

    def index_text(self, fields: str | Sequence[str] | None = None, *, tokenizer: str | None = None) -> Self:
        """Index fields of payloads as text for :meth:`search`, in place of the present ones; writes wait.

        Without arguments the text index is built again from the payloads, as after damage. ``tokenizer`` is
        one of SQLite's FTS5, by default ``"unicode61 remove_diacritics 2"``.

        >>> import posh, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, posh.create(folder, metric="cosine") as shop:
        ...     _ = shop.upsert(["a", "b"], [[1.0, 0.0], [0.0, 1.0]], [{"title": "Scarf"}, {"title": "Hat"}])
        ...     shop.index_text(["title"]).search(text="hat").ids[0, 0]
        'b'
        """
        self._index_text(TextOptions.validate(fields, tokenizer))
        return self

    def calibrate(self, queries: npt.ArrayLike | None) -> Self:
        """Calibrate and tune searches by a metric with a sample of your queries (m, d).

        The recall then holds for queries like these, see :meth:`posh.Index.calibrate`; searches and writes
        continue. The collection keeps the sample for later measurements and for :meth:`reindex`. None returns
        to held-out items and drops the sample.
        """
        self._calibrate(None if queries is None else validate_vectors(queries, self.n_features))
        return self

    def report(self) -> IndexReport:
        """Summarise the index: structure, measured recall, time per query; see :meth:`posh.Index.report`."""
        return self._report()

    def compares_all(self, params: NearestParams) -> bool:
        """Return whether a search compares the vectors of all items, as far as the engine knows."""
        return params.exact

    def _make_params(self, k: int, **options: Any) -> SearchParams:
        """Return validated parameters of a search; raise ValueError if the kind of index forbids one."""
        given = {name: value for name, value in options.items() if value is not None and value is not False}
        hasher = self.hasher
        if hasher is None and self.index_options.get("metric") is None:
            raise ValueError(NO_HASHER)
        return make_search_params(k, hasher, given)

    def __len__(self) -> int:
        return self.count()

    def __contains__(self, item_id: Id) -> bool:
        return self.get([item_id])[0] is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
