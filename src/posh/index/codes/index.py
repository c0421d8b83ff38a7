"""``posh.CodeIndex``: the paper's search, a hasher, a structure to scan and a refiner, composed."""

from __future__ import annotations

import os
from typing import Any

import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from posh import _validate
from posh.hashers.base import Hasher, SparseHasher
from posh.index.base import BaseIndex
from posh.index.codes.bitsliced import MAX_DOCS, stride_words
from posh.index.codes.lists import n_lists_for
from posh.index.codes.options import CodeOptions, make_params
from posh.index.codes.refine import REFINERS
from posh.index.codes.snapshot import CodeSnapshot
from posh.index.files import read_index
from posh.index.hits import Hits
from posh.index.ids import IdsLike

__all__ = ["CodeIndex", "estimate_memory"]

_LIVE = 1  # byte: whether the document is live


class CodeIndex(BaseIndex[CodeSnapshot]):
    """Searches vectors by their codes, as the paper does.

    Parameters
    ----------
    hasher : a fitted hasher, sparse or dense.
    structure : ``"exact"`` scans everything; ``"ivf"`` (sparse codes) scans the ``n_probe`` lists whose
        centroids are nearest to the query, which pays above about a million documents.
    scoring : ``"overlap"`` counts shared bits, as the paper does. ``"asymmetric"`` sums the query's
        real-valued projection over the document's set bits: more accurate, slower. With ``"ivf"`` it
        reorders the ``oversample`` · k best by overlap.
    refine : None, ``"decoder"`` (the paper's candidate refinement), ``"sbiht"``, ``"vectors"`` (Euclidean) or
        ``"cosine"``: the ``oversample`` · k best by ``scoring`` are put in order by this.
    document_active, query_active : set bits of documents and of queries, if not the hasher's ``n_active``.
    n_lists, n_probe : lists (default: a thousandth of the first documents added) and how many are visited.
    oversample : candidates per result.
    random_state : int, for the centroids of the lists.

    Searches may run in any number of threads, even while another adds or deletes: each sees a consistent
    snapshot. ``copy.copy`` is cheap: the copy shares documents until one of the two changes.

    Examples
    --------
    >>> import posh
    >>> data = posh.datasets.load("digits")
    >>> hasher = posh.POSH(n_bits=256, n_active=16, random_state=0).fit(data.base)
    >>> index = posh.CodeIndex(hasher, refine="decoder").add(data.base)
    >>> hits = index.search(data.queries, k=10)
    >>> index
    CodeIndex(1,597 documents, POSH 16 of 256 bits, structure='exact', scoring='overlap', refine='decoder')

    """

    def __init__(
        self,
        hasher: Hasher[Any],
        *,
        structure: str = "exact",
        scoring: str = "overlap",
        refine: str | None = None,
        document_active: int | None = None,
        query_active: int | None = None,
        n_lists: int | None = None,
        n_probe: int = 20,
        oversample: float = 2.0,
        random_state: int = 0,
    ) -> None:
        check_is_fitted(hasher, "weights_")
        options = CodeOptions(
            structure,
            scoring,
            refine,
            document_active,
            query_active,
            n_lists,
            n_probe,
            oversample,
            random_state,
        )
        self.options = options.for_hasher(hasher)
        super().__init__(CodeSnapshot(hasher, self.options))

    def search(
        self,
        X: npt.ArrayLike,
        k: int = 10,
        *,
        filter: IdsLike | None = None,  # noqa: A002  # the word that users expect
        scoring: str | None = None,
        oversample: float | None = None,
        n_probe: int | None = None,
        min_score: float | None = None,
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
        scoring, oversample, n_probe : str, float, int
            By default those of the index.
        min_score : float
            Omit results with lower scores.
        n_threads : int
            By default the number of cores.

        Where fewer than k documents are left, the id is -1 (None if ids are objects) and the score -inf.

        """
        params = make_params(k, min_score, n_threads, scoring, oversample, n_probe)
        return self._snapshot.search_ids(X, params, filter)

    @property
    def hasher(self) -> Hasher[Any]:
        """The hasher that makes the codes."""
        return self._snapshot.hasher

    def estimate_memory(self, n: int) -> int:
        """Return the bytes that ``n`` documents with automatic ids will take; other ids take more."""
        n = _validate.validate_integer("n", n, 0)
        return estimate_memory(self.hasher, self.options, n, self.hasher.n_features_in_)

    def __repr__(self) -> str:
        return f"CodeIndex({self._snapshot.describe()})"

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, mmap: bool = False, verify: bool | None = None
    ) -> CodeIndex:
        """Open a saved index; see :meth:`posh.Index.load`."""
        saved = read_index(path, mmap=mmap, verify=not mmap if verify is None else verify)
        return cls.from_snapshot(CodeSnapshot.load(saved))

    @classmethod
    def from_snapshot(cls, snapshot: CodeSnapshot) -> CodeIndex:
        """Return an index that starts with the documents of a snapshot."""
        index = cls.__new__(cls)
        index.options = snapshot.options
        BaseIndex.__init__(index, snapshot)
        return index


def estimate_memory(hasher: Hasher[Any], options: CodeOptions, n: int, n_features: int) -> int:
    """Return the bytes that ``n`` documents will take, see :meth:`CodeIndex.estimate_memory`.

    The hasher need not be fitted.
    """
    n_bits, numbers = hasher.n_bits, 0
    if options.refine is not None:
        numbers = n_features if REFINERS[options.refine].needs_vectors else 1
    if not isinstance(hasher, SparseHasher):
        return n * (-(-n_bits // 8) + _LIVE + 4 * numbers)
    n_bytes = n * (2 * (options.document_active or hasher.n_active) + _LIVE + 4 * numbers)
    if options.structure == "ivf":
        n_lists = n_lists_for(options, n)
        per_list = 8 * n_bits * stride_words(-(-n // n_lists)) + 4 * n_features
        return n_bytes + n_lists * per_list + 12 * n  # a slot and a list number for each document
    whole, rest = divmod(n, MAX_DOCS)
    words = whole * stride_words(MAX_DOCS) + (stride_words(rest) if rest else 0)
    return n_bytes + 8 * n_bits * words
