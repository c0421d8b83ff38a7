"""Coarse quantizer: documents in lists by nearest centroid, of which a search visits the nearest.

The paper's "Performance". Lists have the bit-sliced layout of :mod:`posh.index.codes.bitsliced`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh._model_files import Arrays, require_array
from posh._runtime import resolve_threads
from posh.codes import Codes
from posh.hashers._linalg import Projection, for_each_tile
from posh.hashers.base import Hasher
from posh.index.arrays import Mask, Slots, cached, get_fields
from posh.index.codes.bitsliced import (
    Segment,
    SlicedCodes,
    join_planes,
    make_native_segments,
    overlap_lists,
    slot_range,
)
from posh.index.codes.options import CodeOptions, CodeParams
from posh.index.codes.structures import AnyCodes, Queries, Structure, start_slots
from posh.index.hits import SlotScores
from posh.index.kmeans import train_lists
from posh.preprocess import Float32, Preprocess

__all__ = ["InvertedLists", "ListStructure", "n_lists_for"]

_EPOCHS = 10
_SAMPLE_PER_LIST = 50


def n_lists_for(options: CodeOptions, n: int) -> int:
    """Return the number of lists of n documents."""
    return min(options.n_lists or min(65_536, -(-n // 1000)), n) or 1


@dataclass(frozen=True, eq=False)
class InvertedLists:
    """Documents by list, immutable: ``slots[i]`` are the slots of list i, ascending."""

    n_bits: int
    centroids: Float32
    lists: tuple[SlicedCodes, ...]
    slots: tuple[npt.NDArray[np.int64], ...]
    assignment: npt.NDArray[np.int32]  # list of each slot

    @classmethod
    def empty(cls, n_bits: int, centroids: Float32) -> InvertedLists:
        """Return lists without documents."""
        nothing = tuple(np.empty(0, np.int64) for _ in centroids)
        return cls(
            n_bits, centroids, tuple(SlicedCodes(n_bits) for _ in centroids), nothing, np.empty(0, np.int32)
        )

    def __len__(self) -> int:
        """Return the slots in use, deleted documents included."""
        return len(self.assignment)

    @property
    def nbytes(self) -> int:
        """Memory of planes, bitmaps, slots and centroids."""
        return self.centroids.nbytes + sum(
            p.nbytes + s.nbytes for p, s in zip(self.lists, self.slots, strict=True)
        )

    def rebuild(self, codes: Codes, slots: npt.NDArray[np.int64]) -> InvertedLists:
        """Return lists of only the documents at these slots, which have these codes."""
        return InvertedLists.empty(self.n_bits, self.centroids).with_codes(codes, self.assignment[slots])

    def with_codes(self, codes: Codes, assignment: npt.NDArray[np.int32]) -> InvertedLists:
        """Add documents at the end of these lists, see :meth:`assign`."""
        order = np.argsort(assignment, kind="stable")
        lists, slots = list(self.lists), list(self.slots)
        bounds = np.searchsorted(assignment[order], np.arange(len(lists) + 1))
        for number in np.unique(assignment):
            own = order[bounds[number] : bounds[number + 1]]
            lists[number] = lists[number].with_codes(codes[own])
            slots[number] = np.concatenate([slots[number], len(self) + own])
        joined = np.concatenate([self.assignment, assignment])
        return replace(self, lists=tuple(lists), slots=tuple(slots), assignment=joined)

    def without(self, slots: npt.NDArray[np.int64]) -> InvertedLists:
        """Delete the documents at these slots."""
        lists = list(self.lists)
        for number in np.unique(self.assignment[slots]):
            own = slots[self.assignment[slots] == number]
            lists[number] = lists[number].without(np.searchsorted(self.slots[number], own))
        return replace(self, lists=tuple(lists))

    def assign(self, X: npt.NDArray[Any], preprocess: Preprocess) -> npt.NDArray[np.int32]:
        """Return the lists of documents (n, d), which do not depend on the other documents of the call."""
        return self.probe(X, preprocess, 1, n_threads=resolve_threads())[:, 0].astype(np.int32)

    def probe(
        self, X: npt.NDArray[Any], preprocess: Preprocess, n_probe: int, *, n_threads: int
    ) -> npt.NDArray[np.uint16]:
        """Return the nearest lists of queries (m, d), (m, n_probe), ascending in each row."""
        out = np.empty((len(X), min(n_probe, len(self.centroids))), np.uint16)

        def nearest(scores: Float32, rows: slice) -> None:
            kernels.winners(scores, out.shape[1], out[rows])

        for_each_tile(X, partial(Projection, preprocess, self.centroids), nearest, n_threads)
        return out

    def search(
        self,
        queries: Codes,
        k: int,
        probes: npt.NDArray[np.uint16],
        *,
        n_threads: int,
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Return slots and overlaps (m, k) of the best documents of probed lists; -1 if there are fewer."""
        segments = self._all_segments if allowed is None else self._make_native_segments(allowed)
        offsets, visits = self._list_visits(probes)
        return overlap_lists(segments, queries.active, offsets, visits, k, n_threads)

    @cached
    def _first_segments(self) -> npt.NDArray[np.int64]:
        """Number of the first segment of each list, and the number of all segments at the end."""
        return np.cumsum([0, *(len(part.parts) for part in self.lists)])

    @cached
    def _all_segments(self) -> _native.Segments:
        return self._make_native_segments(None)

    def to_arrays(self) -> Arrays:
        """Return planes, centroids and assignment."""
        return join_planes(self.lists) | {"centroids": self.centroids, "assignment": self.assignment}

    @classmethod
    def from_arrays(cls, n_bits: int, n_columns: int, n: int, arrays: Arrays) -> InvertedLists:
        """Return lists of ``n`` documents from the arrays of :meth:`to_arrays`; raise ValueError if wrong."""
        flat = require_array(arrays, "planes", np.uint64, (None,))
        table = require_array(arrays, "parts", np.int64, (None, 4))
        centroids = require_array(arrays, "centroids", np.float32, (None, n_columns))
        assignment = require_array(arrays, "assignment", np.int32, (n,))
        if len(assignment) and not 0 <= assignment.min() <= assignment.max() < len(centroids):
            raise ValueError(
                f"documents in lists {assignment.min()} .. {assignment.max()} of {len(centroids)}"
            )
        lists = tuple(
            SlicedCodes.from_arrays(n_bits, flat, table[table[:, 3] == i]) for i in range(len(centroids))
        )
        order = np.argsort(assignment, kind="stable").astype(np.int64)
        bounds = np.cumsum(np.bincount(assignment, minlength=len(centroids)))[:-1]
        slots = tuple(np.split(order, bounds))
        if [len(own) for own in lists] != [len(own) for own in slots]:
            raise ValueError("segments and lists differ in length")
        return cls(n_bits, centroids, lists, slots, assignment)

    def __getstate__(self) -> dict[str, Any]:
        return get_fields(self)

    def _make_native_segments(self, allowed: npt.NDArray[np.bool_] | None) -> _native.Segments:
        parts: list[Segment] = []
        slots: list[npt.NDArray[np.int64]] = []
        for own, numbers in zip(self.lists, self.slots, strict=True):
            parts += own.parts if allowed is None else own.with_filter(allowed[numbers])
            slots += [numbers[slot_range(part)] for part in own.parts]
        return make_native_segments(parts, slots)

    def _list_visits(
        self, probes: npt.NDArray[np.uint16]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Return the segments of the probed lists of each query, as offsets (m + 1) and numbers."""
        starts, stops = self._first_segments[probes], self._first_segments[probes.astype(np.int64) + 1]
        counts = (stops - starts).ravel()
        ends = np.cumsum(counts)
        visits = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts - starts.ravel(), counts)
        offsets = np.concatenate([[0], ends.reshape(probes.shape)[:, -1]]) if len(probes) else np.zeros(1)
        return offsets.astype(np.int64), visits.astype(np.int32)


@dataclass(frozen=True, eq=False)
class ListStructure(Structure):
    """Sparse codes in inverted lists: a search scans the lists whose centroids are nearest to the query."""

    lists: InvertedLists
    preprocess: Preprocess
    needs_training = True
    needs_vectors = True

    @classmethod
    def train(cls, hasher: Hasher[Any], options: CodeOptions, X: npt.NDArray[Any], n: int) -> Self:
        """Return a structure without documents, with centroids of vectors (m, d) for ``n`` documents."""
        n_lists = n_lists_for(options, n)
        rng = np.random.default_rng(options.random_state)
        rows = np.sort(rng.permutation(len(X))[: _SAMPLE_PER_LIST * n_lists])
        centroids = train_lists(
            hasher.preprocess_(X[rows]),
            n_lists,
            metric="cosine",
            rng=rng,
            n_threads=resolve_threads(),
            sample_per_list=_SAMPLE_PER_LIST,
            epochs=_EPOCHS,
        )
        return cls.with_trained_state(hasher, options, {"centroids": centroids})

    @classmethod
    def with_trained_state(cls, hasher: Hasher[Any], options: CodeOptions, state: Arrays) -> Self:
        """Return a structure without documents, with these centroids."""
        shape = (None, hasher.preprocess_.n_features_out)
        lists = InvertedLists.empty(hasher.n_bits, require_array(state, "centroids", np.float32, shape))
        codes = start_slots(np.empty((0, options.document_active or 0), np.uint16))
        return cls(hasher.n_bits, *codes, lists, hasher.preprocess_)

    @classmethod
    def from_arrays(
        cls, hasher: Hasher[Any], options: CodeOptions, codes: npt.NDArray[Any], arrays: Arrays
    ) -> Self:
        """Return a structure with documents, from codes and the arrays of the lists."""
        n_columns = hasher.preprocess_.n_features_out
        lists = InvertedLists.from_arrays(hasher.n_bits, n_columns, len(codes), arrays)
        return cls(hasher.n_bits, *start_slots(codes), lists, hasher.preprocess_)

    @classmethod
    def training_size(cls, options: CodeOptions, n: int) -> int:
        """Return 50 vectors for each list."""
        return _SAMPLE_PER_LIST * (options.n_lists or n // 1000)

    @classmethod
    def kind(cls, scoring: str) -> str:
        """Return the scoring."""
        return scoring

    def search(self, queries: Queries, params: CodeParams, allowed: Mask | None) -> SlotScores:
        """Return the best documents of the probed lists; asymmetric scores reorder the best by overlap."""
        if params.scoring != "asymmetric":
            return self._search_overlap(queries, queries.encode(), params, allowed)
        tables = queries.project()
        codes = Codes(kernels.winners(tables, queries.n_active or 1), self.n_bits)
        slots, _ = self._search_overlap(queries, codes, params.for_candidates(self.n_live), allowed)
        scores = kernels.table_scores(self.codes.rows, tables, slots, n_threads=queries.n_threads)
        return SlotScores(*kernels.best_candidates(slots, scores, params.k, n_threads=queries.n_threads))

    def _search_overlap(
        self, queries: Queries, codes: Codes, params: CodeParams, allowed: Mask | None
    ) -> SlotScores:
        n_probe, n_threads = params.n_probe or len(self.lists.centroids), queries.n_threads
        probes = self.lists.probe(queries.vectors, self.preprocess, n_probe, n_threads=n_threads)
        found = self.lists.search(codes, params.k, probes, n_threads=n_threads, allowed=allowed)
        return SlotScores.from_counts(*found)

    @property
    def nbytes(self) -> int:
        """Memory of the lists."""
        return self.lists.nbytes

    def trained_state(self) -> Arrays:
        """Return the centroids."""
        return {"centroids": self.lists.centroids}

    def to_arrays(self) -> Arrays:
        """Return planes, centroids and the list of each slot."""
        return self.lists.to_arrays()

    def with_codes(self, codes: AnyCodes, X: npt.NDArray[Any] | None) -> Self:
        """Add documents to the lists that are nearest to their vectors X (n, d)."""
        assert isinstance(codes, Codes)
        assert X is not None
        lists = self.lists.with_codes(codes, self.lists.assign(X, self.preprocess))
        return replace(super().with_codes(codes, X), lists=lists)

    def without(self, slots: Slots) -> Self:
        """Delete the documents at these slots."""
        return replace(super().without(slots), lists=self.lists.without(slots))

    def compact(self) -> Self:
        """Return the same documents in new slots, in the same lists."""
        compacted = super().compact()
        codes = Codes.wrap(compacted.codes.rows, self.n_bits)
        return replace(compacted, lists=self.lists.rebuild(codes, np.flatnonzero(self.live.rows)))
