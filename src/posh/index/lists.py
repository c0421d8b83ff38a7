"""Coarse quantizer: documents in lists by nearest centroid, of which a search visits the nearest.

The paper's "Performance". Lists have the bit-sliced layout of :mod:`posh.index.sliced`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh._bitsliced import Segment, native_segments, overlap_lists
from posh._progress import progress
from posh._threads import cores
from posh.codes import Codes
from posh.hashers._tiles import Projection, for_each_tile
from posh.hashers._units import nearest_units, unit_rows
from posh.hashers.base import Hasher
from posh.index.code_index import AnyCodes, CodeIndex, Queries, SlotScores, by_slot
from posh.index.sliced import Mask, SlicedCodes, Slots, cached, fields_of, plane_arrays, slice_of
from posh.model_files import Arrays, expect
from posh.preprocess import Float32, Preprocess

if TYPE_CHECKING:
    from posh.index.options import IndexOptions
    from posh.index.params import SearchParams

__all__ = ["InvertedLists", "ListIndex", "train_centroids"]

_EPOCHS = 10
_SAMPLE_PER_LIST = 50


def train_centroids(Z: Float32, n_lists: int, rng: np.random.Generator) -> Float32:
    """Spherical k-means of centred vectors (n, d): unit centroids, float32 (n_lists, d).

    Starts from vectors of the data; a centroid that loses all its vectors is put on another one.
    """
    X = unit_rows(Z)
    W = X[rng.choice(len(X), n_lists, replace=len(X) < n_lists)]
    for _ in progress(range(_EPOCHS), "coarse quantizer"):
        winner, _ = nearest_units(X, W)
        order = np.argsort(winner, kind="stable")
        counts = np.bincount(winner, minlength=n_lists)
        busy = counts > 0
        sums = np.add.reduceat(X[order], (np.cumsum(counts) - counts)[busy], axis=0)
        W = X[rng.integers(len(X), size=n_lists)]
        W[busy] = unit_rows(sums)
    return W


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
        """Lists without documents."""
        nothing = tuple(np.empty(0, np.int64) for _ in centroids)
        return cls(
            n_bits, centroids, tuple(SlicedCodes(n_bits) for _ in centroids), nothing, np.empty(0, np.int32)
        )

    def __len__(self) -> int:
        """Slots in use, deleted documents included."""
        return len(self.assignment)

    @property
    def nbytes(self) -> int:
        """Memory of planes, bitmaps, slots and centroids."""
        return self.centroids.nbytes + sum(
            p.nbytes + s.nbytes for p, s in zip(self.lists, self.slots, strict=True)
        )

    def rebuilt(self, codes: Codes, slots: npt.NDArray[np.int64]) -> InvertedLists:
        """Lists of only the documents at these slots, whose codes are given."""
        return InvertedLists.empty(self.n_bits, self.centroids).with_codes(codes, self.assignment[slots])

    def with_codes(self, codes: Codes, assignment: npt.NDArray[np.int32]) -> InvertedLists:
        """Add documents at the end of these lists, see :meth:`nearest`."""
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
        """Remove the documents at these slots."""
        lists = list(self.lists)
        for number in np.unique(self.assignment[slots]):
            own = slots[self.assignment[slots] == number]
            lists[number] = lists[number].without(np.searchsorted(self.slots[number], own))
        return replace(self, lists=tuple(lists))

    def nearest(self, X: npt.NDArray[Any], preprocess: Preprocess) -> npt.NDArray[np.int32]:
        """The lists of documents (n, d): the same for a document whatever others come with it."""
        return self.probe(X, preprocess, 1, n_threads=cores())[:, 0].astype(np.int32)

    def probe(
        self, X: npt.NDArray[Any], preprocess: Preprocess, n_probe: int, *, n_threads: int
    ) -> npt.NDArray[np.uint16]:
        """The nearest lists of queries (m, d), (m, n_probe), ascending in each row."""
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
        """Slots and overlaps (m, k) of the best documents of the probed lists; -1 where there are fewer."""
        segments = self._unfiltered if allowed is None else self._native_segments(allowed)
        offsets, visits = self._visits(probes)
        return overlap_lists(segments, queries.active, offsets, visits, k, n_threads)

    @cached
    def _first_part(self) -> npt.NDArray[np.int64]:
        """Number of the first segment of each list, and the number of all segments at the end."""
        return np.cumsum([0, *(len(part.parts) for part in self.lists)])

    @cached
    def _unfiltered(self) -> _native.Segments:
        return self._native_segments(None)

    def to_arrays(self) -> Arrays:
        """Planes, centroids and assignment."""
        return plane_arrays(self.lists) | {"centroids": self.centroids, "assignment": self.assignment}

    @classmethod
    def from_arrays(cls, n_bits: int, n_columns: int, n: int, arrays: Arrays) -> InvertedLists:
        """Lists of ``n`` documents from the arrays of :meth:`to_arrays`; a ValueError if they are wrong."""
        flat = expect(arrays, "planes", np.uint64, (None,))
        table = expect(arrays, "parts", np.int64, (None, 4))
        centroids = expect(arrays, "centroids", np.float32, (None, n_columns))
        assignment = expect(arrays, "assignment", np.int32, (n,))
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
        return fields_of(self)

    def _native_segments(self, allowed: npt.NDArray[np.bool_] | None) -> _native.Segments:
        parts: list[Segment] = []
        slots: list[npt.NDArray[np.int64]] = []
        for own, numbers in zip(self.lists, self.slots, strict=True):
            parts += own.parts if allowed is None else own.filtered(allowed[numbers])
            slots += [numbers[slice_of(part)] for part in own.parts]
        return native_segments(parts, slots)

    def _visits(self, probes: npt.NDArray[np.uint16]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The segments of the probed lists of each query, as offsets (m + 1) and numbers."""
        starts, stops = self._first_part[probes], self._first_part[probes.astype(np.int64) + 1]
        counts = (stops - starts).ravel()
        ends = np.cumsum(counts)
        visits = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts - starts.ravel(), counts)
        offsets = np.concatenate([[0], ends.reshape(probes.shape)[:, -1]]) if len(probes) else np.zeros(1)
        return offsets.astype(np.int64), visits.astype(np.int32)


@dataclass(frozen=True, eq=False)
class ListIndex(CodeIndex):
    """Sparse codes in inverted lists: a search scans the lists whose centroids are nearest to the query."""

    lists: InvertedLists
    preprocess: Preprocess
    needs_training = True
    needs_vectors = True

    @classmethod
    def train(cls, hasher: Hasher[Any], options: IndexOptions, X: npt.NDArray[Any], n: int) -> Self:
        """Without documents, with centroids of vectors (m, d) for ``n`` documents to come."""
        n_lists = min(options.n_lists or min(65_536, -(-n // 1000)), n) or 1
        rng = np.random.default_rng(options.random_state)
        rows = np.sort(rng.permutation(len(X))[: _SAMPLE_PER_LIST * n_lists])
        centroids = train_centroids(hasher.preprocess_(X[rows]), n_lists, rng)
        return cls.with_trained_state(hasher, options, {"centroids": centroids})

    @classmethod
    def with_trained_state(cls, hasher: Hasher[Any], options: IndexOptions, state: Arrays) -> Self:
        """Without documents, with these centroids."""
        shape = (None, hasher.preprocess_.n_features_out)
        lists = InvertedLists.empty(hasher.n_bits, expect(state, "centroids", np.float32, shape))
        codes = by_slot(np.empty((0, options.document_active or 0), np.uint16))
        return cls(hasher.n_bits, *codes, lists, hasher.preprocess_)

    @classmethod
    def from_arrays(
        cls, hasher: Hasher[Any], options: IndexOptions, codes: npt.NDArray[Any], arrays: Arrays
    ) -> Self:
        """With documents, from codes and the arrays of the lists."""
        n_columns = hasher.preprocess_.n_features_out
        lists = InvertedLists.from_arrays(hasher.n_bits, n_columns, len(codes), arrays)
        return cls(hasher.n_bits, *by_slot(codes), lists, hasher.preprocess_)

    @classmethod
    def training_size(cls, options: IndexOptions, n: int) -> int:
        """50 vectors for each list."""
        return _SAMPLE_PER_LIST * (options.n_lists or n // 1000)

    @classmethod
    def kind(cls, options: IndexOptions, scoring: str | None) -> str:
        """As the scoring says."""
        return scoring or "overlap"

    def candidates(self, queries: Queries, params: SearchParams, allowed: Mask | None) -> SlotScores:
        """The best documents of the probed lists; asymmetric scores only reorder the best by overlap."""
        if params.scoring != "asymmetric":
            return self._by_overlap(queries, queries.codes(), params, allowed)
        tables = queries.tables()
        codes = Codes(kernels.winners(tables, queries.n_active or 1), self.n_bits)
        slots, _ = self._by_overlap(queries, codes, params.oversampled(self.n_live), allowed)
        scores = kernels.table_scores(self.codes.rows, tables, slots, n_threads=queries.n_threads)
        return SlotScores(*kernels.best_candidates(slots, scores, params.k, n_threads=queries.n_threads))

    def _by_overlap(
        self, queries: Queries, codes: Codes, params: SearchParams, allowed: Mask | None
    ) -> SlotScores:
        n_probe, n_threads = params.n_probe or len(self.lists.centroids), queries.n_threads
        probes = self.lists.probe(queries.vectors, self.preprocess, n_probe, n_threads=n_threads)
        found = self.lists.search(codes, params.k, probes, n_threads=n_threads, allowed=allowed)
        return SlotScores.of_counts(*found)

    @property
    def nbytes(self) -> int:
        """Memory of the lists."""
        return self.lists.nbytes

    def trained_state(self) -> Arrays:
        """The centroids."""
        return {"centroids": self.lists.centroids}

    def to_arrays(self) -> Arrays:
        """Planes, centroids and the list of each slot."""
        return self.lists.to_arrays()

    def with_codes(self, codes: AnyCodes | None, X: npt.NDArray[Any] | None) -> Self:
        """Add documents to the lists that are nearest to their vectors X (n, d)."""
        assert isinstance(codes, Codes)
        assert X is not None
        lists = self.lists.with_codes(codes, self.lists.nearest(X, self.preprocess))
        return replace(super().with_codes(codes, X), lists=lists)

    def without(self, slots: Slots) -> Self:
        """Remove the documents at these slots."""
        return replace(super().without(slots), lists=self.lists.without(slots))

    def compacted(self) -> Self:
        """The same documents in new slots, in the lists where they are."""
        compacted = super().compacted()
        codes = Codes.trusted(compacted.codes.rows, self.n_bits)
        return replace(compacted, lists=self.lists.rebuilt(codes, np.flatnonzero(self.live.rows)))
