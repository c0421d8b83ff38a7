"""``posh.Index``: finds the nearest vectors by a metric, with a recall that is measured."""

from __future__ import annotations

import os
from typing import Self

import numpy.typing as npt

from posh import _validate
from posh.index.arrays import Slots
from posh.index.base import BaseIndex
from posh.index.files import read_index
from posh.index.hits import Hits, RadiusHits
from posh.index.ids import IdsLike
from posh.index.nearest.graph import largest_record
from posh.index.nearest.lists import FEW, n_lists_for
from posh.index.nearest.options import NearestOptions, RadiusParams, make_params
from posh.index.nearest.queries import OwnQueries
from posh.index.nearest.report import IndexReport, make_report
from posh.index.nearest.snapshot import NearestSnapshot
from posh.index.nearest.space import CodeShape
from posh.index.nearest.vectors import BlockLayout, bytes_per_number

__all__ = ["Index", "estimate_memory"]

_LIVE = 1  # byte: whether the document is live
_GROUP = 256  # documents for which a block has room at a time
_NODE = 4  # bytes of a slot in a graph


class Index(BaseIndex[NearestSnapshot]):
    """Finds the nearest vectors by a metric.

    Parameters
    ----------
    metric : the score: ``"cosine"``, ``"euclidean"`` (minus the squared distance) or ``"dot"``.
    recall : the share of the true nearest neighbours that searches find on average. It is measured on
        documents that were held out from training, and again when documents change.
    store : how vectors are stored for exact scores: ``"float32"``, ``"float16"``, or ``"int8"``, which
        stores none in addition to the 8-bit numbers of the lists.
    n_lists : the number of inverted lists; by default it follows from the number of documents. Lists are
        split and merged when documents change, so that their number may differ by a few per cent.
    random_state : int, the seed of training.
    optimize : what the index should be best at: ``"balanced"``, ``"latency"`` (single queries),
        ``"throughput"`` (large batches), ``"memory"`` or ``"build"`` (the time to build). With the first
        three, it measures the local dimension of the documents, and where it is low enough builds a graph
        next to the lists, of which a search visits few documents. Selective filters use the lists.

    Searches may run in any number of threads, even while another adds or deletes: each sees a consistent
    snapshot. ``copy.copy`` is cheap: the copy shares documents until one of the two changes.

    Examples
    --------
    >>> import posh
    >>> data = posh.datasets.load("digits")
    >>> index = posh.Index(metric="cosine", recall=0.95).add(data.base)
    >>> hits = index.search(data.queries, k=10)
    >>> hits.ids.shape
    (200, 10)
    >>> index
    Index(1,597 documents, metric='cosine', recall=0.95)

    """

    def __init__(
        self,
        metric: str = "cosine",
        *,
        recall: float = 0.95,
        store: str = "float32",
        n_lists: int | None = None,
        random_state: int = 0,
        optimize: str = "balanced",
    ) -> None:
        self.options = NearestOptions(metric, recall, store, n_lists, random_state, optimize)
        super().__init__(NearestSnapshot(self.options))

    @classmethod
    def build(
        cls,
        X: npt.ArrayLike,
        ids: IdsLike | None = None,
        *,
        metric: str = "cosine",
        recall: float = 0.95,
        store: str = "float32",
        n_lists: int | None = None,
        random_state: int = 0,
        optimize: str = "balanced",
        queries: npt.ArrayLike | None = None,
    ) -> Index:
        """Build an index of vectors (n, d): ``Index(metric, …).add(X, ids)``.

        With ``queries`` (m, d), a sample of those to come, the recall is measured with these: as
        ``calibrate(queries)`` does, but in less time.

        >>> import posh
        >>> data = posh.datasets.load("digits")
        >>> index = posh.Index.build(data.base, metric="euclidean", recall=0.95)
        >>> index.search(data.queries, k=10).ids.shape, index.report().recall
        ((200, 10), 1.0)
        """
        index = cls(
            metric,
            recall=recall,
            store=store,
            n_lists=n_lists,
            random_state=random_state,
            optimize=optimize,
        )
        if queries is None:
            return index.add(X, ids)
        array = index._snapshot.validate_vectors(X)
        own = OwnQueries.of(queries, array.shape[1])
        if len(array):
            index._snapshot = index._snapshot.train(array).with_queries(own)
            index.add(array, ids)
        index._snapshot.require_documents().warn_if_uncertain(stacklevel=3)
        return index

    def search(
        self,
        X: npt.ArrayLike,
        k: int = 10,
        *,
        filter: IdsLike | None = None,  # noqa: A002  # the word that users expect
        recall: float | None = None,
        exact: bool = False,
        min_score: float | None = None,
        n_probe: int | None = None,
        slack: float | None = None,
        oversample: float | None = None,
        n_threads: int | None = None,
    ) -> Hits:
        """Find the k nearest documents of one vector (d,) or of many (m, d).

        Parameters
        ----------
        X : array of shape (d,) or (m, d)
            Vectors of any real dtype.
        k : int
            The number of results for each vector.
        filter : array of ids, or boolean array
            Restricts the results to these ids, or to those whose entry ``mask[id]`` is True.
        recall : float
            The share of the true nearest to find; by default that of the index.
        exact : bool
            Compare all vectors.
        min_score : float
            Omit results with lower scores.
        n_probe, slack, oversample : int, float, float
            Set the effort by hand, without a promise of recall: the number of lists to visit, how carefully
            codes skip documents (standard deviations of their counts), the vectors to compare per result.
        n_threads : int
            By default the number of cores.

        Where fewer than k documents are left, the id is -1 (None if ids are objects) and the score -inf.

        """
        params = make_params(k, min_score, n_threads, recall, exact, n_probe, slack, oversample)
        return self._snapshot.search_ids(X, params, filter)

    def search_radius(
        self,
        X: npt.ArrayLike,
        *,
        min_score: float,
        limit: int | None = None,
        filter: IdsLike | None = None,  # noqa: A002  # the word that users expect
        recall: float | None = None,
        exact: bool = False,
        n_threads: int | None = None,
    ) -> RadiusHits:
        """Find all documents whose score reaches a bound, for one vector (d,) or for many (m, d).

        Parameters
        ----------
        X : array of shape (d,) or (m, d)
            Vectors of any real dtype.
        min_score : float
            The bound, rounded to float32 as scores are. For ``"euclidean"`` scores are minus squared
            distances, so all documents within the distance r have ``min_score=-r**2``.
        limit : int
            Return only the best hits of each query, up to this number; ``hits.is_cut`` says which queries had
            more. By default there is no limit, and a low bound may return all documents for each query.
        filter : array of ids, or boolean array
            Restricts the results to these ids, or to those whose entry ``mask[id]`` is True.
        recall : float
            The share of the results to find; by default that of the index. With ``store="int8"``, scores
            are those of rounded vectors, so a document near the bound may be on either side of it.
        exact : bool
            Compare all vectors.
        n_threads : int
            By default the number of cores.

        Returns
        -------
        RadiusHits
            ``offsets`` (m + 1,), and ``ids`` and ``scores`` of all hits, the best of each query first.

        Examples
        --------
        >>> import posh
        >>> data = posh.datasets.load("digits")
        >>> index = posh.Index.build(data.base, metric="cosine")
        >>> hits = index.search_radius(data.queries, min_score=0.97)
        >>> len(hits), hits.ids.shape == hits.scores.shape == (hits.offsets[-1],)
        (200, True)
        >>> [(hit.id, round(hit.score, 2)) for hit in hits[4][:2]]
        [(142, 0.98), (171, 0.98)]

        """
        params = RadiusParams(min_score, limit, recall, exact, n_threads)
        return self._snapshot.search_radius_ids(X, params, filter)

    def calibrate(self, queries: npt.ArrayLike | None) -> Self:
        """Calibrate and tune searches with a sample of your queries (m, d), for which ``recall`` then holds.

        Without this, searches are tuned with held-out documents, and may find less for queries of another
        kind. The index keeps up to 1,500 of the queries, also in its file, and measures with them again after
        many writes. Two thirds tune searches, the others measure their recall. At least 50 must differ;
        with so few, the recall is uncertain, and a :class:`posh.RecallWarning` says how much. None returns to
        held-out documents and drops the queries.

        >>> import posh
        >>> data = posh.datasets.load("digits")
        >>> index = posh.Index.build(data.base, metric="cosine", recall=0.95)
        >>> index.calibrate(data.queries).memory_usage()["queries"]
        51200
        """
        own = None if queries is None else OwnQueries.of(queries, self._snapshot.n_features)
        with self._lock:
            self._snapshot = self._snapshot.calibrate(own)
        self._snapshot.require_documents().warn_if_uncertain(stacklevel=3)
        return self

    def report(self) -> IndexReport:
        """Summarise the index: structure, measured recall, time per query, bytes per vector.

        Takes about a second, because searches are timed.
        """
        return make_report(self._snapshot)

    def estimate_memory(self, n: int, n_features: int | None = None) -> int:
        """Return the bytes that ``n`` documents with automatic ids will take; other ids take more.

        ``n_features`` is needed until the first documents are added.
        """
        lists = self._snapshot.lists
        with_graph = None if lists is None or lists.tuning is None else lists.wants_graph
        return estimate_memory(self.options, n, self._snapshot.n_features or n_features, with_graph)

    def _delete(self, slots: Slots) -> NearestSnapshot:
        return self._snapshot.without(slots).measure_if_due()

    def __repr__(self) -> str:
        options = self.options
        return f"Index({len(self):,} documents, metric={options.metric!r}, recall={options.recall:g})"

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = False, verify: bool | None = None) -> Index:
        """Open a saved index.

        With ``mmap`` the arrays stay on disk until touched and are shared by processes, except ids that are
        strings. ``verify`` compares the checksums of large files too: the default unless ``mmap`` is set.

        The index may be saved again concurrently: the opened files stay readable. No process may write to
        mapped files: the system kills a process that touches missing pages (SIGBUS). File sizes are compared
        before each search; changes during a search, or without a change of size, go unnoticed.
        """
        saved = read_index(path, mmap=mmap, verify=not mmap if verify is None else verify)
        return cls.from_snapshot(NearestSnapshot.load(saved))

    @classmethod
    def from_snapshot(cls, snapshot: NearestSnapshot) -> Index:
        """Return an index that starts with the documents of a snapshot."""
        index = cls.__new__(cls)
        index.options = snapshot.options
        BaseIndex.__init__(index, snapshot)
        return index


def estimate_memory(
    options: NearestOptions, n: int, n_features: int | None, with_graph: bool | None = None
) -> int:
    """Return the bytes that ``n`` documents will take, see :meth:`Index.estimate_memory`.

    ``with_graph`` is by default whether the options allow a graph.
    """
    if with_graph is None:
        with_graph = options.most_dimensions > 0
    n = _validate.validate_integer("n", n, 0)
    if n_features is None:
        raise ValueError("expected n_features, since the index has no documents yet, got None")
    n_features = _validate.validate_integer("n_features", n_features, 1)
    n_lists = n_lists_for(options, n)
    with_room = max(n + n_lists * _GROUP // 2, n_lists * _GROUP)  # half of the last group is empty
    n_bits = CodeShape().n_bits
    numbers = BlockLayout(n_bits, n_features).document_bytes  # at most: of wide vectors, fewer are kept
    in_blocks = with_room * (n_bits // 8 + 1 / 8) + n * numbers
    in_graph = largest_record(n_features) + _NODE if with_graph and n > FEW else 0
    return int(in_blocks) + n * (_LIVE + n_features * bytes_per_number(options.store) + in_graph)
