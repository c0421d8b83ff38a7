"""Coarse quantizer: documents in lists by nearest centroid, of which a search visits the nearest.

The paper's "Performance". Lists have the bit-sliced layout of :mod:`posh.index.segments`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh._bitsliced import Segment, handed_over, overlap_lists
from posh._progress import progress
from posh._threads import cores
from posh.codes import Codes
from posh.hashers._tiles import Projection, for_each_tile
from posh.hashers._units import nearest_units, unit_rows
from posh.index.segments import Segments, cached, fields_of, slice_of
from posh.preprocess import Float32, Preprocess

__all__ = ["Lists", "train_centroids"]

_EPOCHS = 10


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
class Lists:
    """Documents by list, immutable: ``slots[i]`` are the slots of list i, ascending."""

    n_bits: int
    centroids: Float32
    lists: tuple[Segments, ...]
    slots: tuple[npt.NDArray[np.int64], ...]
    assignment: npt.NDArray[np.int32]  # list of each slot

    @classmethod
    def empty(cls, n_bits: int, centroids: Float32) -> Lists:
        """Lists without documents."""
        nothing = tuple(np.empty(0, np.int64) for _ in centroids)
        return cls(
            n_bits, centroids, tuple(Segments(n_bits) for _ in centroids), nothing, np.empty(0, np.int32)
        )

    def __len__(self) -> int:
        """Slots in use, removed documents included."""
        return len(self.assignment)

    @property
    def nbytes(self) -> int:
        """Memory of planes, bitmaps, slots and centroids."""
        return self.centroids.nbytes + sum(
            p.nbytes + s.nbytes for p, s in zip(self.lists, self.slots, strict=True)
        )

    def rebuilt(self, codes: Codes, slots: npt.NDArray[np.int64]) -> Lists:
        """Lists of only the documents at these slots, whose codes are given."""
        return Lists.empty(self.n_bits, self.centroids).with_codes(codes, self.assignment[slots])

    def with_codes(self, codes: Codes, assignment: npt.NDArray[np.int32]) -> Lists:
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

    def without(self, slots: npt.NDArray[np.int64]) -> Lists:
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
        segments = self._unfiltered if allowed is None else self._handed_over(allowed)
        offsets, visits = self._visits(probes)
        return overlap_lists(segments, queries.active, offsets, visits, k, n_threads)

    @cached
    def _first_part(self) -> npt.NDArray[np.int64]:
        """Number of the first segment of each list, and the number of all segments at the end."""
        return np.cumsum([0, *(len(part.parts) for part in self.lists)])

    @cached
    def _unfiltered(self) -> _native.Segments:
        return self._handed_over(None)

    def __getstate__(self) -> dict[str, Any]:
        return fields_of(self)

    def _handed_over(self, allowed: npt.NDArray[np.bool_] | None) -> _native.Segments:
        parts: list[Segment] = []
        slots: list[npt.NDArray[np.int64]] = []
        for own, numbers in zip(self.lists, self.slots, strict=True):
            parts += own.parts if allowed is None else own.filtered(allowed[numbers])
            slots += [numbers[slice_of(part)] for part in own.parts]
        return handed_over(parts, slots)

    def _visits(self, probes: npt.NDArray[np.uint16]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The segments of the probed lists of each query, as offsets (m + 1) and numbers."""
        starts, stops = self._first_part[probes], self._first_part[probes.astype(np.int64) + 1]
        counts = (stops - starts).ravel()
        ends = np.cumsum(counts)
        visits = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts - starts.ravel(), counts)
        offsets = np.concatenate([[0], ends.reshape(probes.shape)[:, -1]]) if len(probes) else np.zeros(1)
        return offsets.astype(np.int64), visits.astype(np.int32)
