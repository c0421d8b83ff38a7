"""Near-duplicates: all pairs of documents whose score reaches a bound, and the groups that they form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from posh import _validate
from posh._runtime import track_progress
from posh.index.hits import RadiusHits
from posh.index.ids import Ids, IdsLike
from posh.index.nearest.index import Index
from posh.index.nearest.options import RadiusParams

__all__ = ["Duplicates", "collect_duplicates", "duplicates"]

_ROWS = 8192  # documents that are searched for together
_LIMIT = 100


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Pairs of documents whose score reaches a bound, see :func:`posh.duplicates`.

    Attributes
    ----------
    pairs : (p, 2), int64 or objects
        The ids of each pair, the document that was added first in front; in order of their documents.
    scores : float32 (p,)
        The scores of the pairs.
    is_cut : bool
        Whether a document had more near-duplicates than the limit, so that pairs are missing.

    """

    pairs: npt.NDArray[Any]
    scores: npt.NDArray[np.float32]
    is_cut: bool

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.pairs)

    @property
    def groups(self) -> list[list[Any]]:
        """The ids of documents that pairs connect, also over others: in order of their first pair.

        A group has two documents or more; two of them may be less similar than the bound.

        >>> Duplicates(np.array([[0, 3], [1, 2], [3, 5]]), np.ones(3, np.float32), False).groups
        [[0, 3, 5], [1, 2]]
        """
        order: dict[Any, int] = {}
        flat = self.pairs.ravel().tolist()
        numbers = np.array([order.setdefault(item_id, len(order)) for item_id in flat], np.int64)
        ends = numbers.reshape(-1, 2)
        n = len(order)
        graph = coo_array((np.ones(len(ends), bool), (ends[:, 0], ends[:, 1])), shape=(n, n))
        _, labels = connected_components(graph, directed=False) if n else (0, np.empty(0, np.int32))
        groups: dict[int, list[Any]] = {}
        for item_id, label in zip(order, labels.tolist(), strict=True):
            groups.setdefault(label, []).append(item_id)
        return list(groups.values())

    def __repr__(self) -> str:
        return f"Duplicates({len(self):,} pairs{', cut' if self.is_cut else ''})"


def duplicates(
    X: npt.ArrayLike,
    *,
    min_score: float,
    ids: IdsLike | None = None,
    metric: str = "cosine",
    recall: float = 0.95,
    exact: bool = False,
    limit: int = _LIMIT,
    random_state: int = 0,
    n_threads: int | None = None,
) -> Duplicates:
    """Find all pairs of vectors (n, d) whose score reaches a bound.

    Parameters
    ----------
    X : array of shape (n, d)
        Vectors of any real dtype.
    min_score : float
        The bound, see :meth:`posh.Index.search_radius`. Rounding can make the cosine of equal vectors
        slightly less than 1, so for exact copies use 0.9999.
    ids : n distinct ids
        By default row numbers.
    metric, recall, random_state
        As for :class:`posh.Index`. A pair is found if a search for one of the two finds the other, which
        finds more pairs than the recall of one search.
    exact : bool
        Compare all pairs.
    limit : int
        Look at this number of near-duplicates of each vector at most, the best ones; ``is_cut`` of the result
        tells whether there were more.
    n_threads : int
        By default the number of cores.

    Returns
    -------
    Duplicates
        ``pairs`` (p, 2) and their ``scores`` (p,); ``groups`` are their connected components.

    Examples
    --------
    >>> import posh
    >>> found = posh.duplicates([[1.0, 0.0], [0.0, 1.0], [2.0, 0.1], [0.1, 1.0]], min_score=0.99)
    >>> found.pairs.tolist(), found.scores.round(3).tolist()
    ([[0, 2], [1, 3]], [0.9990000128746033, 0.9950000047683716])
    >>> found.groups
    [[0, 2], [1, 3]]

    """
    params = RadiusParams(min_score, _validate.validate_integer("limit", limit, 1), recall, exact, n_threads)
    index = Index.build(X, ids, metric=metric, recall=recall, random_state=random_state, optimize="build")
    array, snapshot = _validate.as_array(X), index.snapshot()

    def read() -> Iterator[tuple[Ids, npt.NDArray[Any]]]:
        for start in track_progress(range(0, len(array), _ROWS), "comparing", "block"):
            rows = slice(start, start + _ROWS)
            yield snapshot.ids[rows], array[rows]

    return collect_duplicates(
        read(), lambda rows, wanted: snapshot.search_radius_ids(rows, wanted, None), params
    )


def collect_duplicates(
    batches: Iterable[tuple[Ids | Sequence[Any], npt.NDArray[Any]]],
    search: Callable[[npt.NDArray[Any], RadiusParams], RadiusHits],
    params: RadiusParams,
) -> Duplicates:
    """Search for each batch of ids (b,) and vectors (b, d), and return the pairs without repetitions."""
    limit = params.limit or _LIMIT
    # One more, because the vectors themselves are found too.
    with_itself = RadiusParams(params.min_score, limit + 1, params.recall, params.exact, params.n_threads)
    places: dict[Any, int] = {}  # of all ids, in their order
    found: list[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.float32]]] = []
    is_cut = False
    for ids, vectors in batches:
        hits = search(vectors, with_itself)
        own = np.empty(len(ids), object)
        own[:] = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        for item_id in own:
            places.setdefault(item_id, len(places))
        queries = own[hits.queries]
        is_other = np.asarray(hits.ids != queries, bool)
        counts = np.bincount(hits.queries[is_other], minlength=len(own))
        is_cut |= bool((hits.is_cut | (counts > limit)).any())
        found.append((queries[is_other], hits.ids[is_other].astype(object), hits.scores[is_other]))
    if not found:
        return Duplicates(np.empty((0, 2), np.int64), np.empty(0, np.float32), is_cut=False)
    left, right, scores = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    n = len(places)
    ends = np.array([[places.get(item, n) for item in side] for side in (left, right)], np.int64).reshape(
        2, -1
    )
    known = (ends < n).all(axis=0)  # items that were written after the batches were read are not pairs
    ends, scores = np.sort(ends[:, known], axis=0), scores[known]
    _, first = np.unique(ends[0] * n + ends[1], return_index=True)
    names = np.empty(n, object)
    names[:] = list(places)
    pairs = names[ends[:, first].T].reshape(-1, 2)
    if all(isinstance(item_id, int) for item_id in places):
        pairs = pairs.astype(np.int64)
    return Duplicates(pairs, scores[first], is_cut)
