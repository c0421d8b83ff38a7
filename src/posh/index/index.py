"""Index: a hasher, a structure to scan and a refiner, composed."""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from posh import _system
from posh.hashers.base import Hasher
from posh.index import files, string_ids
from posh.index.hits import Hits
from posh.index.ids import IdTable
from posh.index.memory import estimated
from posh.index.options import IndexOptions, default_hasher, default_oversample
from posh.index.params import search_params
from posh.index.report import IndexReport, report_of
from posh.index.snapshot import IndexSnapshot
from posh.index.string_ids import Ids, IdsLike

__all__ = ["Index"]


class Index:
    """Searches vectors by their codes.

    Parameters
    ----------
    hasher : a fitted hasher, sparse or dense; with a metric, by default a :class:`~posh.Hadamard`.
    metric : None, or what a score is: ``"cosine"``, ``"euclidean"`` (minus the square) or ``"dot"``.
        Codes and 8-bit numbers then only choose candidates, and scores are exact. Needs sparse codes.
    store : with a metric, what is kept of each vector beside these: ``"float32"``, ``"float16"``, or
        ``"int8"``, nothing.
    structure : ``"exact"`` scans everything; ``"ivf"`` (sparse codes) scans the ``n_probe`` lists whose
        centroids are nearest to the query, which pays above about a million documents.
    scoring : ``"overlap"`` counts shared bits, as the paper does. ``"asymmetric"`` sums the query's
        real-valued projection over the document's set bits: more accurate, slower. With ``"ivf"`` it
        reorders the ``oversample`` · k best by overlap.
    refine : None, ``"decoder"`` (the paper's candidate refinement), ``"sbiht"``, ``"vectors"`` (Euclidean) or
        ``"cosine"``: the ``oversample`` · k best by ``scoring`` are put in order by this.
    document_active, query_active : set bits of documents and of queries, if not the hasher's ``n_active``.
    n_lists, n_probe : lists (default: a thousandth of the first documents added) and how many are visited.
    recall : with a metric, the share of the true nearest neighbours that searches are to find: what they find
        is then measured whenever the index has grown, and ``n_probe`` follows from it.
    oversample : candidates per result, unless ``search`` says otherwise; default 2, with a metric 1.4.
    random_state : int, for the centroids of the lists.

    Searches may run in any number of threads, also while another adds or deletes: each sees one moment.
    ``copy.copy`` is cheap, the copy shares documents and hasher; what is added to one is not in the other.

    Examples
    --------
    >>> import posh
    >>> data = posh.datasets.load("digits")
    >>> hasher = posh.POSH(n_bits=256, n_active=16, random_state=0).fit(data.base)
    >>> index = posh.Index(hasher, refine="decoder").add(data.base)
    >>> ids, scores = index.search(data.queries, k=10)
    >>> index
    Index(1,597 documents, POSH 16 of 256 bits, structure='exact', scoring='overlap', refine='decoder')

    """

    def __init__(
        self,
        hasher: Hasher[Any] | None = None,
        *,
        structure: str = "exact",
        scoring: str = "overlap",
        refine: str | None = None,
        document_active: int | None = None,
        query_active: int | None = None,
        n_lists: int | None = None,
        n_probe: int = 20,
        oversample: float | None = None,
        random_state: int = 0,
        metric: str | None = None,
        store: str = "float32",
        recall: float | None = None,
    ) -> None:
        if hasher is None:
            hasher = default_hasher(metric, structure, random_state)
        else:
            check_is_fitted(hasher, "weights_")
        options = IndexOptions(
            structure,
            scoring,
            refine,
            document_active,
            query_active,
            n_lists,
            n_probe,
            default_oversample(metric) if oversample is None else oversample,
            random_state,
            metric,
            store,
            recall,
        )
        self.options = options.for_hasher(hasher)
        self._snapshot = IndexSnapshot(hasher, self.options)
        self._begin()

    @classmethod
    def build(
        cls,
        X: npt.ArrayLike,
        ids: IdsLike | None = None,
        *,
        metric: str = "cosine",
        recall: float = 0.95,
        store: str = "float32",
        random_state: int = 0,
    ) -> Index:
        """Build an index of vectors (n, d) that is to find the share ``recall`` of the nearest neighbours.

        It chooses lists, codes and the effort of a search. What searches find on average is measured with
        vectors that were held out from training, and again when there are half as many documents more.

        >>> import posh
        >>> data = posh.datasets.load("digits")
        >>> index = posh.Index.build(data.base, metric="euclidean", recall=0.95)
        >>> index.search(data.queries, k=10).ids.shape, index.report().recall
        ((200, 10), 1.0)
        """
        return cls(metric=metric, structure="ivf", store=store, recall=recall, random_state=random_state).add(
            X, ids
        )

    def add(self, X: npt.ArrayLike, ids: IdsLike | None = None) -> Self:
        """Add vectors (n, d), all or none; ``ids`` are distinct, by default the next new numbers.

        Ids are int >= 0, or str of up to 512 characters; ``1`` and ``"1"`` are two ids, and a ``uuid.UUID``
        becomes its string. From the first string on, ids of the index and of its hits are objects.

        >>> import posh
        >>> index = posh.Index(metric="cosine").add([[1.0, 0.0], [0.0, 1.0]], ids=["cat", "dog"])
        >>> index.search([0.9, 0.1], k=3).ids
        array([['cat', 'dog', None]], dtype=object)
        """
        array = self._snapshot.checked(X)
        with self._lock:
            new = self._table.new_ids(ids, len(array), self._snapshot.documents)
            if len(array):
                first = self._snapshot.n_slots
                self._snapshot = self._snapshot.with_documents(new, array)
                self._table.add(new, first)
        return self

    def delete(self, ids: IdsLike) -> Self:
        """Delete documents by id, all or none."""
        present = string_ids.checked(ids)
        with self._lock:
            slots = self._table.slots_of(present, self._snapshot.documents)
            self._snapshot = self._snapshot.without(slots).measured()
            self._table.delete(present)
        return self

    def update(self, X: npt.ArrayLike, ids: IdsLike) -> Self:
        """Give present ids new vectors (n, d), in one step for whoever searches meanwhile."""
        array = self._snapshot.checked(X)
        present = string_ids.checked(ids, len(array))
        with self._lock:
            slots = self._table.slots_of(present, self._snapshot.documents)
            if len(slots):
                first = self._snapshot.n_slots
                self._snapshot = self._snapshot.without(slots).with_documents(present, array)
                self._table.add(present, first)
        return self

    def compact(self) -> Self:
        """Give back the memory of deleted documents."""
        with self._lock:
            self._snapshot = self._snapshot.compacted()
            self._table.forget()
        return self

    def search(
        self,
        X: npt.ArrayLike,
        k: int = 10,
        *,
        filter: IdsLike | None = None,  # noqa: A002  # the word that users expect
        scoring: str | None = None,
        oversample: float | None = None,
        n_probe: int | None = None,
        n_threads: int | None = None,
        slack: float | None = None,
        exact: bool = False,
        recall: float | None = None,
        min_score: float | None = None,
    ) -> Hits:
        """Find the k nearest documents of one vector (d,) or of many (m, d).

        ``filter`` restricts the results: an array of ids, or a boolean mask by id (``mask[id]``) of integers.
        Where fewer than k documents are left, the id is -1 (None if ids are objects) and the score -inf.
        ``scoring``, ``oversample``, ``n_probe``: by default the index's. ``min_score`` omits lower scores.

        With a metric, ``slack`` says how carefully codes skip documents, in standard deviations of their
        counts (default 1.25): more is slower and finds more. ``exact=True`` compares all vectors. ``recall``
        is the share of the true nearest to find, if that was measured: :meth:`build`.
        """
        params = search_params(k, scoring, oversample, n_probe, n_threads, slack, exact, recall, min_score)
        return self._snapshot.search(X, params, filter)

    @property
    def hasher(self) -> Hasher[Any]:
        """What makes the codes; not fitted if it is the default and nothing was added yet."""
        return self._snapshot.hasher

    def snapshot(self) -> IndexSnapshot:
        """The index as it is now, to be searched whatever happens to it later."""
        return self._snapshot

    def report(self) -> IndexReport:
        """What the index is, what its searches find, and what they cost: print it. Takes about a second."""
        return report_of(self._snapshot)

    def __len__(self) -> int:
        return len(self._snapshot)

    @property
    def ids(self) -> Ids:
        """The ids of all documents, in order of addition: int64, or objects if one was a string."""
        return self._snapshot.ids

    def __contains__(self, document_id: object) -> bool:
        with self._lock:
            return self._table.has(document_id, self._snapshot.documents)

    def __repr__(self) -> str:
        return f"Index({self._snapshot.about()})"

    def memory_usage(self) -> dict[str, int]:
        """Bytes in use by part, and in total."""
        return self._snapshot.memory_usage()

    def estimate_memory(self, n: int, n_features: int | None = None) -> int:
        """Bytes that ``n`` documents will take, before they are added, if their ids are integers.

        ``n_features`` is needed if the index does not know it yet: without a hasher and without documents.
        """
        return estimated(self._snapshot, n, n_features)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index, without deleted documents, to a folder; replace one there in one step.

        Saves to one folder by several threads or processes wait for one another; each leaves a complete
        index, the last one stays. Files of others are not touched: a folder that holds any and no saved index
        is refused with a ``FileExistsError``.
        """
        self._snapshot.save(Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = False, verify: bool | None = None) -> Index:
        """Open a saved index.

        With ``mmap`` the arrays stay on disk until touched and are shared by processes, except ids that are
        strings. ``verify`` compares the checksums of large files too: the default unless ``mmap`` is set.

        The index may be saved again meanwhile: what was opened stays readable. Nobody may write to mapped
        files: the system kills a process that touches what is missing (SIGBUS). Their sizes are compared
        before each search; what changes during a search, or without the size, is not noticed.
        """
        opened = files.load(Path(path), mmap=mmap, verify=not mmap if verify is None else verify)
        index = files.checked(path, lambda: cls(opened.hasher, **opened.params))
        index._snapshot = files.checked(path, lambda: index._snapshot.restored(opened))
        return index

    # How it is done ------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """What ``copy``, ``deepcopy`` and ``pickle`` take along."""
        own = {name: value for name, value in vars(self).items() if name not in ("_lock", "_table")}
        return own | {"_snapshot": self._snapshot.detached()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def _begin(self) -> None:
        """With a free lock; the table of ids is made again when it is needed."""
        self._lock = threading.Lock()
        self._table = IdTable()
        _indexes.add(self)


_indexes: weakref.WeakSet[Index] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """Another thread may have held the lock and been about to change the table: begin with new ones."""
    for index in list(_indexes):
        index._begin()


_system.at_fork(after_in_child=_after_fork_in_child)
