"""A graph over documents, for searches that read few of them: see ``native/graph.h``.

Its edges come from a search in the lists for the nearest documents of each document. Nodes are numbered by
list, so that neighbours are near each other in memory. The graph is immutable: later documents are compared
one by one as long as there are few, and an extended graph has them as nodes, after the others. Deleted
documents are passed through but not returned.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh._durable import empty_aligned
from posh._model_files import Arrays, require_array
from posh._runtime import no_fork, resolve_threads, track_progress
from posh.index.arrays import Slots
from posh.index.hits import SlotScores
from posh.index.nearest.measuring import KnownNeighbours, Measured
from posh.preprocess import Float32

if TYPE_CHECKING:
    from posh.index.nearest.lists import Lists

__all__ = ["MOST_NEW", "Graph", "GraphEffort", "Transform", "largest_record"]

MOST_NEW = 256
"""Later documents that searches compare one by one. With more of them, they use the lists until the graph is
extended, which waits for 1 % of the nodes: an extension copies the records."""

KS = (1, 10, 100)
"""Numbers of results for which searches are measured."""

DEGREE = 32
_ALPHA = 1.15  # see native/graph.h
_STEP = 64  # columns that the kernels read at once
_MOST_COLUMNS = 1024
_LOST = 0.07  # share of the squares that the transformation may lose
_TWO_BITS = 128  # columns up to which codes have two bits for each
_SAMPLE = 20_000  # documents that the transformation is computed from
_LEAST_ENTRIES, _ENTRY_NUMBERS = 256, 65_536  # numbers in the vectors of entry points: a search reads all
_CANDIDATES = 64  # nearest documents among which neighbours are chosen
_CANDIDATE_RECALL = 0.9
_FEW = 2000  # documents that show how much the transformation loses
_AT_ONCE = 8192  # documents whose candidates are searched for together
_MOST_DELETED = 0.2  # share of nodes
_GROWN = 0.01  # later documents, as a share of the nodes, with more of which a graph is extended
_MOST_GROWN = 0.5  # the same, with more of which it is built again
_ROUNDING = 1e-6  # of lengths, relative
_STOPS = (
    *(0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 1.0, 1.0125, 1.025, 1.0375, 1.05, 1.0625, 1.075, 1.1),
    *(1.125, 1.15, 1.175, 1.2, 1.25, 1.3, 1.35, 1.4, 1.5, 1.6, 1.8, 2.0),
)
_KEEP = (
    1,
    2,
    4,
)  # times the vectors that are compared at least; more where all searches with fewer find too little
_CAREFUL = 1.05  # with more vectors to compare, only stops from this one on are measured
_ENOUGH = 0.998  # recall: more careful searches are not tried
_GAIN = 0.0005  # recall that the next two stops must add at least
_MOST_ENTRIES = 65_536
_MOST_CHOSEN = 1000  # efforts that are kept


class Row(NamedTuple):
    """A row of ``Graph.measured``."""

    k: float
    stop: float
    n_keep: float
    recall: float
    error: float
    n_queries: float
    n_visited: float


class GraphEffort(NamedTuple):
    """The parameters of a search: when to stop, and vectors to compare."""

    stop: float
    n_keep: int


@dataclass(frozen=True, eq=False)
class Transform:
    """Turns prepared vectors x into ``rows`` (n_columns, d) · (x - ``mean``) + ``bias`` + e · ``extra``.

    Inner products become distances: e = sqrt(``radius``² - |x|²), so that all documents have the same length,
    and 0 for queries, which are scaled to that length. Otherwise the radius is 0.
    """

    rows: Float32
    mean: Float32
    bias: Float32
    extra: Float32
    radius: float

    @classmethod
    def train(cls, metric: str, sample: Float32, radius: float, rng: np.random.Generator) -> Transform:
        """Return a transformation for documents like the sample (n, d), none of them longer than radius."""
        d = sample.shape[1]
        radius = radius if metric == "dot" else 0.0
        whole = np.column_stack([sample, _missing_lengths(sample, radius)])
        mean = whole.mean(axis=0)
        centred = whole - mean
        with no_fork:
            energies, directions = np.linalg.eigh((centred.T @ centred).astype(np.float64))
        n_columns = _choose_columns(energies[::-1])
        kept = min(d + 1, n_columns)
        turned, _ = np.linalg.qr(rng.standard_normal((n_columns, n_columns)))
        rows = (turned[:, :kept] @ directions[:, ::-1][:, :kept].T).astype(np.float32)
        extra = np.ascontiguousarray(rows[:, d])
        return cls(np.ascontiguousarray(rows[:, :d]), mean[:d], -mean[d] * extra, extra, radius)

    def apply(self, vectors: Float32) -> tuple[Float32, Float32]:
        """Return transformed vectors (n, n_columns), and the squared lengths (n,) that are lost."""
        missing = _missing_lengths(vectors, self.radius)
        centred = vectors - self.mean
        columns = centred @ self.rows.T + self.bias + missing[:, None] * self.extra
        square = float(self.extra @ self.extra)
        shift = float(-self.bias @ self.extra / square) if square else 0.0  # the mean of missing lengths
        lengths = np.einsum("ij,ij->i", centred, centred) + (missing - shift) ** 2
        lost = lengths - np.einsum("ij,ij->i", columns, columns)
        return columns, np.maximum(lost, 0).astype(np.float32)

    @property
    def n_bits(self) -> int:
        """The bits of each column in a code."""
        return 2 if len(self.rows) <= _TWO_BITS else 1


def _missing_lengths(vectors: Float32, radius: float) -> Float32:
    if not radius:
        return np.zeros(len(vectors), np.float32)
    squares = np.einsum("ij,ij->i", vectors, vectors)
    return np.asarray(np.sqrt(np.maximum(radius**2 - squares, 0)), np.float32)


def _choose_columns(energies: npt.NDArray[np.float64]) -> int:
    """Return how many principal components to keep, from their energies, largest first."""
    shares = np.cumsum(energies) / max(float(energies.sum()), np.finfo(float).tiny)
    needed = int(np.searchsorted(shares, 1 - _LOST)) + 1
    return min(-(-needed // _STEP) * _STEP, _MOST_COLUMNS)


def largest_record(n_features: int) -> int:
    """Return the bytes of a node's record, at most."""
    n_columns = min(-(-(n_features + 1) // _STEP) * _STEP, _MOST_COLUMNS)
    return int(_native.GraphShape(n_columns, 2 if n_columns <= _TWO_BITS else 1, DEGREE).stride)


@dataclass(frozen=True, eq=False)
class Graph:
    """The records (n, stride) of documents by node, and their ``slots`` (n,).

    Searches enter at the nearest of ``entries``. Documents from slot ``n_slots`` on are not in the graph.
    ``measured`` (n, 7) are k, the two numbers of an effort, the share of the true k nearest that it finds,
    its standard error, the number of queries, and the mean number of visited nodes.
    """

    transform: Transform
    is_distance: bool
    records: npt.NDArray[np.uint8]
    slots: npt.NDArray[np.uint32]
    entries: npt.NDArray[np.uint32]
    n_slots: int
    measured: npt.NDArray[np.float64]

    # Building --------------------------------------------------------------------------------------

    @classmethod
    def build(cls, lists: Lists) -> Graph:
        """Build a graph of the live documents of lists, which must be measured."""
        rng = np.random.default_rng(lists.options.random_state)
        slots = _in_order_of_lists(lists, 0)
        sample = lists.stored.at(np.sort(rng.permutation(slots)[:_SAMPLE]))
        transform = Transform.train(lists.options.metric, sample, _longest(lists, slots), rng)
        stride = _native.GraphShape(len(transform.rows), transform.n_bits, DEGREE).stride
        empty = cls(
            transform,
            lists.space.metric.is_distance,
            records=np.empty((0, stride), np.uint8),
            slots=np.empty(0, np.uint32),
            entries=np.empty(0, np.uint32),
            n_slots=0,
            measured=np.empty((0, 7)),
        )
        n_entries = max(_LEAST_ENTRIES, min(_ENTRY_NUMBERS // len(transform.rows), math.isqrt(len(slots))))
        entries = np.linspace(0, len(slots) - 1, min(n_entries, len(slots))).astype(np.uint32)
        return empty._with_nodes(lists, slots, entries)

    def extend(self, lists: Lists) -> Graph:
        """Return a graph in which the later live documents of lists are nodes too, after the others.

        The cost is proportional to their number, apart from a copy of the records. Old nodes take edges to
        them; deleted documents remain. Searches are measured as they were: measure again after many writes.
        """
        slots = _in_order_of_lists(lists, self.n_slots)
        if not len(slots):
            return replace(self, n_slots=len(lists))
        n_old, n_new = len(self.slots), len(slots)
        n_entries = min(-(-n_new * len(self.entries) // n_old), n_new, _MOST_ENTRIES - len(self.entries))
        new = (n_old + np.arange(n_entries) * n_new // max(1, n_entries)).astype(np.uint32)
        return self._with_nodes(lists, slots, np.concatenate([new, self.entries]))

    @property
    def _n_built(self) -> int:
        """The nodes of the graph before it was extended: the last of them is the last of the entries."""
        return int(self.entries[-1]) + 1

    def _with_nodes(self, lists: Lists, slots: Slots, entries: npt.NDArray[np.uint32]) -> Graph:
        """Return the graph with the documents at these slots as further nodes."""
        n_old, n_columns = len(self.slots), len(self.transform.rows)
        all_slots = np.concatenate([self.slots, slots.astype(np.uint32)])
        candidates = _find_candidates(lists, slots, all_slots)
        vectors = np.empty((len(slots), n_columns), np.float32)
        lost = np.empty(len(slots), np.float32)
        for part in _parts(len(slots)):
            vectors[part], lost[part] = self.transform.apply(lists.stored.at(slots[part]))
        records = empty_aligned((len(all_slots), self.records.shape[1]), np.uint8)
        records[:n_old] = self.records
        shape, kernel = _native.GraphShape(n_columns, self.transform.n_bits, DEGREE), kernels.active()
        plan = shape, vectors, lost, candidates, entries, _ALPHA, records
        _native.build_graph(*plan, resolve_threads(), kernel)
        return replace(self, records=records, slots=all_slots, entries=entries, n_slots=len(lists))

    # Searching -------------------------------------------------------------------------------------

    @cached_property
    def native(self) -> _native.Graph:
        """The graph for the kernels."""
        t = self.transform
        return _native.Graph(
            shape=_native.GraphShape(len(t.rows), t.n_bits, DEGREE),
            records=self.records,
            slots=self.slots,
            entries=self.entries,
            rows=t.rows,
            mean=t.mean,
            bias=t.bias,
            radius=t.radius,
            n_slots=self.n_slots,
            is_distance=self.is_distance,
        )

    def fits(self, n_slots: int, n_live: int) -> bool:
        """Return whether searches may use the graph: few documents were added and deleted since."""
        return n_slots - self.n_slots <= MOST_NEW and self._is_live_enough(n_slots, n_live)

    def has_outgrown(self, n_slots: int, n_live: int) -> bool:
        """Return whether to extend the graph, or to build it again if it does not suit later documents."""
        n_most = max(MOST_NEW, _GROWN * len(self.slots))
        return n_slots - self.n_slots > n_most and self._is_live_enough(n_slots, n_live)

    def _is_live_enough(self, n_slots: int, n_live: int) -> bool:
        n_new = n_slots - self.n_slots
        return n_live - n_new >= (1 - _MOST_DELETED) * len(self.slots)

    def suits(self, lists: Lists) -> bool:
        """Return whether to extend the graph rather than build it again, for the later documents of lists.

        They must not be too many, or longer than all before them if the metric is the inner product, and the
        transformation must not lose more of them. Far more nodes than were built at a time are not in the
        order of lists.
        """
        slots = self.n_slots + np.flatnonzero(lists.live.rows[self.n_slots :])
        if not len(slots):
            return self._is_live_enough(len(lists), lists.n_live)
        n_new, radius = len(slots), self.transform.radius
        if n_new > _MOST_GROWN * len(self.slots) or len(self.slots) + n_new > 2 * self._n_built:
            return False
        if not self._is_live_enough(len(lists), lists.n_live):
            return False
        if radius and _longest(lists, slots) > radius * (1 + _ROUNDING):
            return False
        old = self.slots[lists.live.rows[self.slots]].astype(np.int64)
        shares = [self._lost_share(lists, some[:: max(1, -(-len(some) // _FEW))]) for some in (old, slots)]
        return shares[1] <= shares[0] + _LOST

    def _lost_share(self, lists: Lists, slots: Slots) -> float:
        """Return the share of the squared lengths of documents that the transformation loses."""
        columns, lost = self.transform.apply(lists.stored.at(slots))
        kept = float(np.einsum("ij,ij->", columns, columns))
        return float(lost.sum()) / max(kept + float(lost.sum()), float(np.finfo(np.float32).tiny))

    def choose_effort(self, recall: float, k: int) -> GraphEffort | None:
        """Return the cheapest effort that finds this share of the k nearest, if any does.

        It is chosen once: this takes longer than a search.
        """
        chosen, key = self._chosen, (recall, k)
        with contextlib.suppress(KeyError):
            return chosen[key]
        effort = self._choose_effort(recall, k)
        if len(chosen) >= _MOST_CHOSEN:
            chosen.clear()
        chosen[key] = effort
        return effort

    @cached_property
    def _chosen(self) -> dict[tuple[float, int], GraphEffort | None]:
        return {}

    def _choose_effort(self, recall: float, k: int) -> GraphEffort | None:
        ks = np.unique(self.measured[:, 0])
        if not len(ks) or k > ks[-1]:
            return None
        above = int(np.searchsorted(ks, k))
        near = {float(ks[above]), float(ks[above if ks[above] == k else max(0, above - 1)])}
        tables = [self.measured[self.measured[:, 0] == own] for own in near]
        best, lowest = None, math.inf
        for stop, times in np.unique(np.concatenate([_efforts(table) for table in tables]), axis=0).tolist():
            rows = [table[(_efforts(table) <= (stop, times)).all(axis=1)] for table in tables]
            if not all(len(own) and (own[:, 3] - own[:, 4]).max() >= recall for own in rows):
                continue
            effort = GraphEffort(stop, int(times) * _n_keep(k))
            cost = max(float(own[:, 6].max()) for own in rows) + self._vector_cost * effort.n_keep
            if cost < lowest:
                best, lowest = effort, cost
        return best

    @property
    def _vector_cost(self) -> float:
        """The cost of comparing a vector, in visits: both mostly wait for memory."""
        return float(4 * self.transform.rows.shape[1] / self.records.shape[1])

    def find_measured(self, k: int, effort: GraphEffort) -> Measured:
        """Return the recall that was measured for the k nearest and an effort, or a smaller one."""
        row = self._find_row(k, effort)
        return Measured(k, float(row[3]), float(row[4]), int(row[5]))

    def count_visits(self, k: int, effort: GraphEffort) -> float:
        """Return the mean number of nodes that a search visits."""
        return float(self._find_row(k, effort)[6])

    def _find_row(self, k: int, effort: GraphEffort) -> npt.NDArray[np.float64]:
        table = self.measured[self.measured[:, 0] == k]
        return np.asarray(table[(table[:, 1:3] <= effort).all(axis=1)][-1])

    def search_known(
        self, lists: Lists, known: KnownNeighbours, k: int, effort: GraphEffort
    ) -> tuple[Slots, npt.NDArray[np.uint32]]:
        """Search for documents as if they were not in the graph; return slots (m, k) and visits (m,)."""
        found = SlotScores.allocate(len(known.queries), k)
        n_visited = np.empty(len(known.queries), np.uint32)
        self.native.search(
            _native.GraphSettings(*effort),
            known.queries,
            lists.stored.native,
            lists.live.rows.view(np.uint8),
            known.own_slots,
            *found,
            n_visited,
            resolve_threads(),
            kernels.active(),
        )
        return found.slots, n_visited

    # Measuring -------------------------------------------------------------------------------------

    def measure(self, lists: Lists, known: KnownNeighbours, groups: list[npt.NDArray[np.int64]]) -> Graph:
        """Return the graph with the recall of its searches; each group of queries must reach it."""
        rows: list[tuple[float, ...]] = []
        for k in track_progress([k for k in KS if k <= known.true.slots.shape[1]], "measuring recall", "k"):
            some = known.first(max(100, 30_000 // k))
            parts = [group[group < len(some.queries)] for group in groups]

            def find(
                effort: GraphEffort, k: int = k, some: KnownNeighbours = some, parts: Any = parts
            ) -> Row:
                slots, n_visited = self.search_known(lists, some, k, effort)
                shares = some.shares(slots, k)
                recall, error = min(_mean_and_error(shares[part]) for part in parts if len(part))
                return Row(k, *effort, recall, error, len(some.queries), float(n_visited.mean()))

            rows += _measure_efforts(find, k)
        return replace(self, measured=np.array(rows, np.float64).reshape(-1, 7))

    def verify(self, lists: Lists, known: KnownNeighbours, k: int, effort: GraphEffort) -> Measured:
        """Measure the recall of the k nearest with an effort."""
        shares = known.shares(self.search_known(lists, known, k, effort)[0], k)
        return Measured(k, *_mean_and_error(shares), len(shares))

    # State and files -------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.records.nbytes + self.slots.nbytes)

    def to_arrays(self) -> Arrays:
        """Return the arrays of a file."""
        t = self.transform
        return {
            "graph_rows": t.rows,
            "graph_mean": t.mean,
            "graph_bias": t.bias,
            "graph_extra": t.extra,
            "graph_numbers": np.array([t.radius, self.n_slots], np.float64),
            "graph_records": self.records,
            "graph_slots": self.slots,
            "graph_entries": self.entries,
            "graph_measured": self.measured,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_features: int, n_slots: int, is_distance: bool) -> Graph:
        """Return the graph of :meth:`to_arrays`; raise ValueError or KeyError if the arrays are wrong.

        Neighbours in the records are validated by the kernels, which ignore wrong ones.
        """
        rows = require_array(arrays, "graph_rows", np.float32, (None, n_features))
        n_columns = len(rows)
        mean = require_array(arrays, "graph_mean", np.float32, (n_features,))
        bias = require_array(arrays, "graph_bias", np.float32, (n_columns,))
        extra = require_array(arrays, "graph_extra", np.float32, (n_columns,))
        radius, n_known = require_array(arrays, "graph_numbers", np.float64, (2,), low=0).tolist()
        transform = Transform(rows, mean, bias, extra, radius)
        shape = _native.GraphShape(n_columns, transform.n_bits, DEGREE)
        if not shape.is_valid:
            raise ValueError(f"expected records of a multiple of {_STEP} columns, found {n_columns}")
        records = require_array(arrays, "graph_records", np.uint8, (None, shape.stride))
        slots = require_array(arrays, "graph_slots", np.uint32, (len(records),))
        entries = require_array(arrays, "graph_entries", np.uint32, (None,))
        if not 0 < len(records) <= n_known <= n_slots or slots.max() >= n_known or not len(entries):
            raise ValueError("expected a graph of documents of the index, found other slots")
        if entries.max() >= len(records) or len(entries) > _MOST_ENTRIES:
            raise ValueError("expected entries that are nodes of the graph, found others")
        measured = require_array(arrays, "graph_measured", np.float64, (None, 7))
        least, most = (1, 0.5, 1, 0, 0, 1, 0), (max(KS), 10, 2**31, 1, 1, 2**31, 2**31)
        if not ((measured >= least) & (measured <= most)).all():
            raise ValueError("expected a table of measured searches, found other numbers")
        return cls(transform, is_distance, records, slots, entries, int(n_known), measured)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, without the kernels' object."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _measure_efforts(find: Callable[[GraphEffort], Row], k: int) -> list[Row]:
    """Measure efforts by ascending cost, without those that hardly find more than cheaper ones."""
    rows: list[Row] = []
    for times in _KEEP:
        recalls: list[float] = []
        for stop in [stop for stop in _STOPS if times == 1 or stop >= _CAREFUL]:
            rows.append(find(GraphEffort(stop, times * _n_keep(k))))
            recalls.append(rows[-1].recall)
            if recalls[-1] >= _ENOUGH:
                return rows
            if stop > 1.0 and len(recalls) > 2 and recalls[-1] < recalls[-3] + _GAIN:
                break
    return rows


def _n_keep(k: int) -> int:
    """Return how many vectors to compare at least: 8-bit numbers order neighbours almost exactly."""
    return k + 4 + k // 5


def _efforts(table: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the efforts (n, 2) of rows of one k; the second number is a multiple of ``_n_keep(k)``."""
    return table[:, 1:3] / (1, _n_keep(int(table[0, 0])))


def _mean_and_error(shares: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean and its standard error."""
    return float(shares.mean()), float(shares.std() / math.sqrt(len(shares)))


def _parts(n: int) -> Iterator[slice]:
    return (slice(start, start + _AT_ONCE) for start in range(0, n, _AT_ONCE))


def _longest(lists: Lists, slots: Slots) -> float:
    """Return the length of the longest document."""
    squares = [
        float(np.einsum("ij,ij->i", vectors, vectors).max())
        for vectors in (lists.stored.at(slots[part]) for part in _parts(len(slots)))
    ]
    return math.sqrt(max(squares))


def _in_order_of_lists(lists: Lists, first: int) -> Slots:
    """Return the slots of the live documents from slot ``first`` on, ordered by list."""
    list_of = np.empty(len(lists), np.int32)
    lists.blocks.lists_of_slots(list_of)
    live = first + np.flatnonzero(list_of[first:] >= 0)
    return live[np.argsort(list_of[live], kind="stable")]


def _find_candidates(lists: Lists, slots: Slots, all_slots: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """Return the nearest documents of documents, and most often these themselves, as nodes (n, m).

    ``slots`` (n,) are those of the documents, ``all_slots`` those of all nodes.
    """
    assert lists.tuning is not None
    n_wanted = min(_CANDIDATES + 1, lists.n_live)
    node_of = np.full(len(lists), -1, np.int32)
    node_of[all_slots] = np.arange(len(all_slots))
    candidates = np.empty((len(slots), n_wanted), np.int32)
    effort = lists.tuning.choose_effort(lists.space, _CANDIDATE_RECALL, n_wanted, n_wanted)
    effort = effort or lists.widest_effort()
    settings = lists.settings(n_wanted, effort)
    for part in track_progress(list(_parts(len(slots))), "building the graph", "block"):
        queries = lists.space.metric.as_queries(lists.stored.at(slots[part]))
        found = lists.stored.search(lists.blocks, settings, queries, n_wanted, resolve_threads()).slots
        candidates[part] = np.where(found >= 0, node_of[found], -1)
    return candidates
