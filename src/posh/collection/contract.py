"""What an engine of collections supplies: embedded, remote, or of another distribution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from posh.collection.filters import Filter
from posh.collection.types import Id, Include, Item, Payload
from posh.hashers.base import Hasher
from posh.index.hits import Hits
from posh.index.params import SearchParams
from posh.index.report import IndexReport
from posh.preprocess import Float32

__all__ = ["CollectionContract"]


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
        """The options of :class:`posh.Index`, as far as the engine knows them."""

    @abstractmethod
    def memory_usage(self) -> int | None:
        """Bytes of memory that the index takes; None if the engine does not know."""

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
        """Search for checked vectors (m, d); None in ``params`` stands for the default of the collection."""

    @abstractmethod
    def _count(self, where: Filter | None) -> int: ...

    @abstractmethod
    def _items(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]: ...

    @abstractmethod
    def _sample(self, n: int) -> Float32:
        """Return up to n stored vectors, see :meth:`sample`."""

    @abstractmethod
    def _reindex(self, hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def _report(self) -> IndexReport: ...

    @abstractmethod
    def compact(self) -> Self:
        """Give back the room of deleted and replaced items."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections; a second call does nothing.

        All other calls of a closed collection are errors.
        """
