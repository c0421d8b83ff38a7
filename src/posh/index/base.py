"""The shared part of both kinds of index: the newest snapshot, a lock, and a table of ids.

Every change makes a new immutable snapshot that shares unchanged parts, and replaces the old one in one
assignment. A search takes the snapshot once and needs no lock; a change that fails changes nothing.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from posh import _runtime, _validate
from posh._durable import MappedFile
from posh._model_files import Arrays
from posh.index.arrays import Mask, Slots
from posh.index.hits import Hits, SlotHits
from posh.index.ids import IdColumn, Ids, IdsLike, IdTable, validate_ids
from posh.index.params import SearchParams

__all__ = ["BaseIndex", "IndexSnapshot"]


class IndexSnapshot(ABC):
    """An immutable state of an index.

    It can be searched for any length of time, unaffected by changes of the index. Of snapshots made from one
    another only the newest may be changed again, or one that was detached.

    Attributes
    ----------
    options : the parameters of the index.
    id_column : the ids of all slots. Slots of deleted documents are not used again until :meth:`compact`.
    mapped : the files that arrays may be mapped from.

    """

    options: Any
    id_column: IdColumn
    mapped: tuple[MappedFile, ...]

    # Searching -------------------------------------------------------------------------------------

    @abstractmethod
    def make_params(self, k: int, **options: Any) -> SearchParams:
        """Return validated parameters of a search."""

    def search(self, X: npt.ArrayLike, k: int = 10, *, filter: IdsLike | None = None, **options: Any) -> Hits:  # noqa: A002
        """Find the k nearest documents; takes the arguments of the ``search`` of the index."""
        return self.search_ids(X, self.make_params(k, **options), filter)

    @abstractmethod
    def search_ids(self, X: npt.ArrayLike, params: SearchParams, filter: IdsLike | None) -> Hits:  # noqa: A002
        """Validate vectors, (d,) or (m, d), and search; ``filter`` is as in the ``search`` of the index."""

    @abstractmethod
    def search_slots(
        self, X: npt.NDArray[Any], params: SearchParams, allowed: Mask | None = None
    ) -> SlotHits:
        """Search for valid vectors (m, d); ``allowed`` is a mask over slots."""

    # State -----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def live(self) -> Mask:
        """The mask of slots with documents that were not deleted, (n_slots,)."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of documents that were not deleted."""

    @property
    @abstractmethod
    def n_features(self) -> int | None:
        """The number of columns of vectors; None if it is not known yet."""

    @property
    @abstractmethod
    def is_trained(self) -> bool:
        """Whether the index is trained, which the first addition does."""

    @property
    @abstractmethod
    def needs_training(self) -> bool:
        """Whether something is trained on documents: the centroids of lists, a decoder."""

    @abstractmethod
    def training_size(self, n: int) -> int:
        """Return the number of vectors that training uses for ``n`` documents."""

    @property
    def n_slots(self) -> int:
        """Slots in use, those of deleted documents included."""
        return len(self.id_column)

    @property
    def ids(self) -> Ids:
        """The ids of all documents, in order of addition."""
        return np.asarray(self.id_column.rows.rows[self.live])

    @abstractmethod
    def memory_usage(self) -> dict[str, int]:
        """Return bytes in use by part, and in total."""

    def validate_vectors(self, X: Any) -> npt.NDArray[Any]:
        """Return vectors (n, d) if they fit the index."""
        return _validate.validate_vectors(X, self.n_features, min_rows=0, model="the index")

    def require_files(self) -> None:
        """Raise FormatError if another process changed the size of a mapped file."""
        for file in self.mapped:
            file.check()

    # Changing --------------------------------------------------------------------------------------

    @abstractmethod
    def train(self, X: npt.NDArray[Any], n: int | None = None) -> Self:
        """Return an index without documents, trained on vectors (m, d) for ``n`` (by default m) documents."""

    @abstractmethod
    def trained_state(self) -> Arrays:
        """Return the arrays that training computed, by name."""

    @abstractmethod
    def with_trained_state(self, state: Arrays) -> Self:
        """Return an index without documents from a trained state; raise ValueError or KeyError if wrong."""

    @abstractmethod
    def with_documents(self, ids: Ids, X: npt.NDArray[Any] | None) -> Self:
        """Add documents with valid vectors (n, d); an index that is not trained is trained on them."""

    @abstractmethod
    def without(self, slots: Slots) -> Self:
        """Delete the documents at these slots."""

    @abstractmethod
    def compact(self) -> Self:
        """Return the same documents in new slots, without gaps."""

    @abstractmethod
    def detach(self) -> Self:
        """Return a copy whose later additions do not affect this snapshot."""

    # Measuring: an index that promises no recall is never due ----------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether :meth:`measure_if_due` would measure the documents again."""
        return False

    @property
    def is_overdue(self) -> bool:
        """Whether too much has changed for the last measurement to hold."""
        return False

    @property
    def n_measured(self) -> int:
        """Documents at the last measurement; 0 if there was none."""
        return 0

    def measure_if_due(self) -> Self:
        """Measure the documents again if they have changed enough."""
        return self

    def has_measurements_of(self, other: Self) -> bool:
        """Return whether both have the same measurements."""
        return True

    def with_measurements(self, before: Self, measured: Self) -> Self | None:
        """Take over the measurements of ``measured``, which was made from the earlier state ``before``.

        Returns None if they do not suit this snapshot any more.
        """
        return None

    def with_writes(self, n_added: int, n_deleted: int) -> Self:
        """Count these as the writes since the last measurement."""
        return self

    # Files -----------------------------------------------------------------------------------------

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write the index to a folder, replacing a saved index there in one step."""


S = TypeVar("S", bound=IndexSnapshot)


class BaseIndex(ABC, Generic[S]):
    """Documents that change: see :class:`posh.Index` and :class:`posh.CodeIndex`."""

    _snapshot: S

    def __init__(self, snapshot: S) -> None:
        self._snapshot = snapshot
        self._reset()

    def add(self, X: npt.ArrayLike, ids: IdsLike | None = None) -> Self:
        """Add vectors (n, d), all or none; ``ids`` are distinct, by default the next new numbers.

        Ids are int >= 0, or str of up to 512 characters; ``1`` and ``"1"`` are two ids, and a ``uuid.UUID``
        becomes its string. From the first string on, ids of the index and of its hits are objects.

        >>> import posh
        >>> index = posh.Index(metric="cosine").add([[1.0, 0.0], [0.0, 1.0]], ids=["cat", "dog"])
        >>> index.search([0.9, 0.1], k=3).ids
        array([['cat', 'dog', None]], dtype=object)
        """
        array = self._snapshot.validate_vectors(X)
        with self._lock:
            before = self._snapshot
            new = self._table.choose_new(ids, len(array), before.id_column, before.live)
            if len(array):
                self._snapshot = before.with_documents(new, array)
                self._table.add(new, before.n_slots)
        return self

    def delete(self, ids: IdsLike) -> Self:
        """Delete documents by id, all or none."""
        present = validate_ids(ids)
        with self._lock:
            slots = self._find_slots(present)
            self._snapshot = self._delete(slots)
            self._table.delete(present)
        return self

    def update(self, X: npt.ArrayLike, ids: IdsLike) -> Self:
        """Replace the vectors (n, d) of present ids, in one step for concurrent searches."""
        array = self._snapshot.validate_vectors(X)
        present = validate_ids(ids, len(array))
        with self._lock:
            slots = self._find_slots(present)
            if len(slots):
                first = self._snapshot.n_slots
                self._snapshot = self._snapshot.without(slots).with_documents(present, array)
                self._table.add(present, first)
        return self

    def compact(self) -> Self:
        """Release the memory of deleted documents."""
        with self._lock:
            self._snapshot = self._snapshot.compact()
            self._table.reset()
        return self

    def snapshot(self) -> S:
        """Return the current state; later changes of the index do not affect it."""
        return self._snapshot

    def __len__(self) -> int:
        return len(self._snapshot)

    @property
    def ids(self) -> Ids:
        """The ids of all documents, in order of addition: int64, or objects if one was a string."""
        return self._snapshot.ids

    def __contains__(self, document_id: object) -> bool:
        with self._lock:
            return self._table.has(document_id, self._snapshot.id_column, self._snapshot.live)

    def memory_usage(self) -> dict[str, int]:
        """Return bytes in use by part, and in total."""
        return self._snapshot.memory_usage()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index, without deleted documents, to a folder; replace one there in one step.

        Saves to one folder by several threads or processes wait for one another; each leaves a complete
        index, the last one stays. Other files are never touched: a folder that holds any and no saved index
        is refused with a ``FileExistsError``.
        """
        self._snapshot.save(Path(path))

    def _delete(self, slots: Slots) -> S:
        return self._snapshot.without(slots)

    def _find_slots(self, ids: Ids) -> Slots:
        return self._table.find_slots(ids, self._snapshot.id_column, self._snapshot.live)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for ``copy``, ``deepcopy`` and ``pickle``."""
        state = {name: value for name, value in vars(self).items() if name not in ("_lock", "_table")}
        return state | {"_snapshot": self._snapshot.detach()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset()

    def _reset(self) -> None:
        """Start with a free lock; the table of ids is rebuilt when it is needed."""
        self._lock = threading.Lock()
        self._table = IdTable()
        _indexes.add(self)


_indexes: weakref.WeakSet[BaseIndex[Any]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """Reset lock and table: another thread may have held the lock and been changing the table."""
    for index in list(_indexes):
        index._reset()


_runtime.register_at_fork(after_in_child=_after_fork_in_child)
