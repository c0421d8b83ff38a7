"""Split and merge lists as documents come and go, so that nothing is trained again while data drifts.

Lists that grow far beyond the mean are split by k-means on their members, and small ones are given up. The
documents of both, and those of lists near a new one, move to the nearest list around; all other lists stay as
they are. So the cost depends on the lists that change, not on the number of documents. LIRE (Xu et al., 2023,
"SPFresh: incremental in-place update for billion-scale vector search") balances lists in this way.

The number of lists follows the number of documents, as if the index were built anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh._runtime import one_blas_thread, resolve_threads
from posh.index.arrays import Slots
from posh.index.kmeans import train_lists
from posh.index.nearest.measuring import drop_held_out, is_held_out
from posh.index.nearest.space import Space, compute_means
from posh.index.nearest.vectors import damaged_slot
from posh.preprocess import Float32, normalize_rows

if TYPE_CHECKING:
    from posh.index.nearest.lists import Lists

__all__ = ["LEAST_MEAN", "TOO_LARGE", "is_unbalanced", "plan_parts", "rebalance"]

TOO_LARGE = 2.0
"""Times the mean: larger lists are split."""

LEAST_MEAN = 16
"""Documents of a list on average: shorter lists are left alone."""

_HUGE, _IN_HUGE = 4.0, 0.05  # times the mean; share of documents
_TOO_SMALL = 0.25  # times the mean: smaller lists are given up
_WORN = 0.3  # deleted documents, as a share of the others: the list is made again
_BAND = 0.05  # by which the number of lists may differ from that of a new index
_NEAR = 12  # lists around a new one, whose documents may move to it
_STUCK = 0.75  # of its documents that one part of a split list still has
_GROWN = 1.5  # times its documents, until a list that could not be split is tried again
_ROUNDS = 3  # of k-means on the lists around new ones
_PASSES = 8
_MOST = 60_000  # lists: the kernels allow 65,536
_STAYS = -1

Counts = npt.NDArray[np.int64]
L = TypeVar("L", bound="Lists")


def rebalance(lists: L, n_wanted: int, n_most: int) -> L:
    """Return the same documents in about ``n_wanted`` lists, none of which is far larger than the mean.

    Makes about ``n_most`` new lists at most: a later call continues.
    """
    n_wanted = min(n_wanted, _MOST)
    for _ in range(_PASSES):
        live, stored = lists.blocks.count_documents()
        parts = plan_parts(live, stored, lists.space.stuck, n_wanted)
        chosen = _choose_largest(live, parts, n_most)
        if not len(chosen):
            break
        own = np.minimum(parts[chosen], max(2, n_most))
        lists = _replace_lists(lists, chosen, own)
        n_most -= int(np.maximum(own, 1).sum())
    return lists


def plan_parts(live: Counts, stored: Counts, stuck: Counts, n_wanted: int) -> Counts:
    """Return the number of lists that shall take the place of each list; -1 for a list that stays.

    ``live`` (n_lists,) are the sizes of the lists, ``stored`` those with deleted documents, and ``stuck``
    sizes at which lists could not be split. A list that lost many documents is made again, since the others
    may be far from its centroid, and searches read the deleted ones.

    >>> sizes = np.array([400, 100, 90, 80, 110, 100, 100, 120, 100, 5])
    >>> plan_parts(sizes, sizes, np.zeros(10), 10).tolist()
    [3, -1, -1, 0, -1, -1, -1, -1, -1, 0]
    """
    mean = live.sum() / n_wanted
    parts = np.full(len(live), _STAYS)
    parts[stored - live > _WORN * np.maximum(live, mean)] = 1
    parts[live < _TOO_SMALL * mean] = 0
    may_split = live >= _GROWN * stuck
    large = may_split & (live > TOO_LARGE * mean)
    parts[large] = np.round(live[large] / mean)
    n_after = int(np.abs(parts).sum())
    if n_after < (1 - _BAND) * n_wanted:
        _split_largest(parts, np.where(may_split, live, 0), n_wanted - n_after, mean / 2)
    elif n_after > (1 + _BAND) * n_wanted:
        others = np.flatnonzero(np.abs(parts) == 1)
        smallest = others[np.argsort(live[others], kind="stable")]
        parts[smallest[: n_after - n_wanted]] = 0
    if not parts.any():
        parts[live.argmax()] = 1
    return parts


def _split_largest(parts: Counts, sizes: Counts, n: int, least: float) -> None:
    """Add ``n`` parts in total to those of the lists whose parts are largest, unless they get too small."""
    for _ in range(n):
        largest = int(np.argmax(sizes / np.maximum(np.abs(parts), 1)))
        n_parts = max(1, abs(parts[largest])) + 1
        if sizes[largest] < n_parts * least:
            return
        parts[largest] = n_parts


def is_unbalanced(lists: Lists, n_wanted: int) -> bool:
    """Return whether many documents are in lists that are far too large, which slows searches down."""
    live, _ = lists.blocks.count_documents()
    may_split = live >= _GROWN * lists.space.stuck
    huge = may_split & (live * n_wanted > _HUGE * live.sum())
    return bool(live[huge].sum() > _IN_HUGE * live.sum())


def _choose_largest(live: Counts, parts: Counts, n_most: int) -> Counts:
    """Return the lists to replace, ascending: the largest ones, by at most about ``n_most`` lists."""
    chosen = np.flatnonzero(parts != _STAYS)
    chosen = chosen[np.argsort(-live[chosen], kind="stable")]
    costs = np.maximum(parts[chosen], 1)
    return np.sort(chosen[np.cumsum(costs) - costs < n_most])


class _Members(NamedTuple):
    """Documents by slot (n,), and their lists (n,)."""

    slots: Slots
    lists: Counts

    @classmethod
    def of(cls, lists: Lists, chosen: Counts) -> _Members:
        """Return the documents of the chosen lists, one list after the other."""
        live, _ = lists.blocks.count_documents()
        slots = lists.blocks.slots_of_lists(chosen.astype(np.int32)).astype(np.int64)
        if slots.max(initial=-1) >= len(lists):
            raise damaged_slot()
        return cls(slots, np.repeat(chosen, live[chosen]))


def _replace_lists(lists: L, chosen: Counts, parts: Counts) -> L:
    """Return the same documents with ``parts`` (m,) new lists in place of each chosen list (m,).

    The routing of new lists and of those around them is refined by k-means on their documents. New lists come
    after those that stay; lists that lose documents are written again.
    """
    space = lists.space
    others = np.setdiff1d(np.arange(space.n_lists), chosen)
    rows, parents = _train_parts(lists, chosen, parts)
    around = _find_nearest(space, rows, others)
    targets = np.union1d(around, _find_nearest(space, space.routing[chosen[parts == 0]], others))

    number_of = np.full(space.n_lists, -1)  # of the lists that stay
    number_of[others] = np.arange(len(others))
    own, near = _Members.of(lists, chosen), _Members.of(lists, around)
    slots = np.concatenate([own.slots, near.slots])
    before = number_of[np.concatenate([own.lists, near.lists])]
    routing = np.concatenate([space.routing[others], rows])
    numbers = np.concatenate([number_of[targets], np.arange(len(others), len(routing))])
    vectors = lists.stored.at(slots)
    may_move = np.flatnonzero(np.isin(numbers, number_of[around]) | (numbers >= len(others)))
    known = ~is_held_out(slots)
    for _ in range(_ROUNDS):
        after = replace(space, routing=routing[numbers]).assign_lists(vectors)
        means = compute_means(vectors[known], after[known], routing[numbers])
        routing[numbers[may_move]] = means[may_move]
    after = numbers[replace(space, routing=routing[numbers]).assign_lists(vectors)]

    is_stuck = _find_stuck(own.lists, after[: len(own.slots)] - len(others), parents)
    is_written = np.arange(len(routing)) >= len(others)
    is_written[before[(before >= 0) & (before != after)]] = True
    moves = is_written[after] | (before != after)
    slots, vectors, after = slots[moves], np.ascontiguousarray(vectors[moves]), after[moves]
    sizes = np.bincount(after, minlength=len(routing))
    stays = ~is_written | (sizes > 0)

    centroids = np.concatenate([space.centroids[others], rows])
    written = np.flatnonzero(is_written)
    trains = is_written[after] & ~is_held_out(slots)
    local = np.searchsorted(written, after[trains])
    centroids[written] = compute_means(vectors[trains], local, routing[written])
    stuck = np.where(is_stuck, sizes[len(others) :], 0)
    new_space = replace(
        space,
        centroids=centroids[stays],
        routing=routing[stays],
        stuck=np.concatenate([space.stuck[others], stuck])[stays],
    )
    sources = np.where(is_written, -1, np.concatenate([others, np.full(len(rows), -1)]))[stays]
    blocks = lists.blocks.rearranged(new_space.native, sources.astype(np.int32)).with_documents(
        vectors,
        (np.cumsum(stays) - 1)[after].astype(np.int32),
        slots.astype(np.uint32),
        resolve_threads(),
        kernels.active(),
    )
    return replace(lists, space=new_space, blocks=blocks)


def _train_parts(lists: Lists, chosen: Counts, parts: Counts) -> tuple[Float32, Counts]:
    """Return routing rows (n, d) of the parts of lists, and the list (n,) that each is a part of."""
    rng = np.random.default_rng((lists.options.random_state, len(lists)))
    metric, n_threads = lists.space.metric.name, resolve_threads()
    rows = [np.empty((0, lists.space.n_features), np.float32)]
    for number, n in zip(chosen.tolist(), parts.tolist(), strict=True):
        if n:
            slots = np.sort(_Members.of(lists, np.array([number])).slots)
            sample = lists.stored.at(drop_held_out(slots))
            rows.append(train_lists(sample, n, metric=metric, rng=rng, n_threads=n_threads))
    return np.concatenate(rows), np.repeat(chosen, parts)


def _find_stuck(before: Counts, after: npt.NDArray[Any], parents: Counts) -> npt.NDArray[np.bool_]:
    """Return whether most of a split list is in one part, for each part (n,), a part of list ``parents``.

    ``before`` (m,) are the lists of documents, ``after`` their parts; other numbers stand for other lists.
    """
    stays = np.flatnonzero(after >= 0)
    stays = stays[parents[after[stays]] == before[stays]]
    kept = np.bincount(after[stays], minlength=len(parents))
    was_split = np.bincount(parents, minlength=1)[parents] > 1
    size = np.bincount(before, minlength=int(parents.max(initial=0)) + 1)[parents]
    return np.asarray(was_split & (kept > _STUCK * size))


def _find_nearest(space: Space, rows: Float32, others: Counts) -> Counts:
    """Return those of the other lists that are nearest to any of the routing rows (n, d), ascending."""
    routing = space.routing[others]
    if space.metric.name == "cosine":
        rows, routing = normalize_rows(rows), normalize_rows(routing)
    with one_blas_thread:
        scores = rows @ routing.T
    if space.metric.name != "cosine":
        scores -= 0.5 * np.einsum("ij,ij->i", routing, routing)
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.unique(others[order[:, :_NEAR]])
