"""Documents in blocks: the nearest by a metric, found by codes and 8-bit numbers before vectors are compared.

The algorithm is in ``native/blocks.h`` and ``native/block_search.h``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh._threads import cores
from posh.hashers.base import Hasher
from posh.index.block_search import FEW, SearchableBlocks
from posh.index.block_vectors import erase_deleted
from posh.index.calibration import Calibration, calibrate, evenly, with_limits
from posh.index.code_index import AnyCodes, by_slot, without_deleted
from posh.index.drift import Drift
from posh.index.measuring import mean_residual, measure, visited_share
from posh.index.metric import Metric
from posh.index.reach import ALL_LISTS
from posh.index.samples import is_held_out
from posh.index.sliced import Slots, fields_of
from posh.index.space import CodeShape, Space, code_shape, default_lists
from posh.index.stored import Stored, require_precision
from posh.index.tuning import Effort, Tuning
from posh.model_files import Arrays, expect
from posh.preprocess import Float32

if TYPE_CHECKING:
    from posh.index.options import IndexOptions

__all__ = ["BlockIndex"]

_NONE = np.empty((0, 1))  # no vectors, of whatever width
_OUTGROWN = 4.0  # times the documents that lists were trained for, until they are trained again
_MISFIT = 1.5  # times the documents that a search visited after training, until lists are trained again
_DEEP = 1001  # documents that are found to learn first limits from
_FEW_VISITED = 0.02  # share of documents: lists that need no more fit
_BLOCK_ARRAYS: dict[str, Any] = {
    "blocks": (np.uint8, (None,)),
    "block_table": (np.int64, (None, 3)),
    "block_groups": (np.float32, (None, 24)),
    "block_live": (np.uint64, (None,)),
}


@dataclass(frozen=True, eq=False)
class BlockIndex(SearchableBlocks):
    """Documents in lists of blocks: how they are made, changed, measured and kept in files."""

    needs_training: ClassVar[bool] = True
    needs_vectors: ClassVar[bool] = True
    has_codes: ClassVar[bool] = False
    rows_at_once: ClassVar[int] = 524_288  # an addition copies the blocks that it extends

    # Making ----------------------------------------------------------------------------------------

    @classmethod
    def train(cls, hasher: Hasher[Any], options: IndexOptions, X: npt.NDArray[Any], n: int) -> Self:
        """Without documents, with lists for ``n`` documents like the vectors X (m, d)."""
        return cls._trained(code_shape(hasher, options.document_active), options, X, n)

    @classmethod
    def _trained(
        cls,
        shape: CodeShape,
        options: IndexOptions,
        X: npt.NDArray[Any],
        n: int,
        also: npt.NDArray[Any] = _NONE,
    ) -> Self:
        """The same by the shape of codes; vectors ``also`` (l, d) must fit into the metric, too."""
        assert options.metric is not None
        rng = np.random.default_rng(options.random_state)
        n_lists = cls.n_lists_for(options, n)
        known = _not_held_out(np.arange(len(X)))
        sample = X[np.sort(rng.permutation(known)[: cls.training_size(options, n)])]
        metric = Metric.of(options.metric, sample).fitting(also)
        stored = metric.stored(sample)
        require_precision(options.store, metric, stored)
        may_reduce = options.store != "int8"
        space = Space.train(metric, shape, stored, n_lists, n, rng, may_reduce)
        return cls._empty(space, options, X.shape[1])

    @classmethod
    def with_trained_state(cls, hasher: Hasher[Any], options: IndexOptions, state: Arrays) -> Self:
        """Without documents, with lists that were trained, and searches that were measured, before."""
        assert options.metric is not None
        d = hasher.n_features_in_
        space = Space.from_arrays(options.metric, code_shape(hasher, options.document_active), d, state)
        empty = cls._empty(space, options, d)
        if "drift" not in state:  # files of older versions: measured again when documents are there
            return empty
        calibration = Calibration.from_arrays(state) if "calibration" in state else None
        tuning = Tuning.from_arrays(state) if "tuned_with" in state else None
        drift, was_measured = Drift.from_arrays(state), calibration is not None
        return replace(empty, calibration=calibration, tuning=tuning, drift=drift, was_measured=was_measured)

    @classmethod
    def _empty(cls, space: Space, options: IndexOptions, n_features: int) -> Self:
        codes = by_slot(np.empty((0, 0), np.uint8))
        stored = Stored.empty(options.store, n_features)
        blocks = _native.Blocks(space.native)
        return cls(space.shape.n_bits, *codes, space, blocks, stored, None, None, options)

    @classmethod
    def n_lists_for(cls, options: IndexOptions, n: int) -> int:
        """One if everything is to be scanned."""
        return 1 if options.structure == "exact" else min(options.n_lists or default_lists(n), max(1, n))

    @classmethod
    def training_size(cls, options: IndexOptions, n: int) -> int:
        """Enough vectors for each list, and for the calibration."""
        return max(10_000, 100 * cls.n_lists_for(options, n))

    # Changing --------------------------------------------------------------------------------------

    def with_codes(self, codes: AnyCodes | None, X: npt.NDArray[Any] | None) -> Self:
        """Add documents by their vectors X (n, d)."""
        assert X is not None
        own = self._with_scale_of(X) if self._has_scale_of_few(X) else self
        stored = own.space.metric.stored(X)
        residual = mean_residual(own, stored, np.arange(len(stored)))
        slots = np.arange(len(own), len(own) + len(X), dtype=np.uint32)
        return replace(
            own,
            codes=own.codes.with_rows(np.empty((len(X), 0), np.uint8)),
            live=own.live.with_rows(np.ones(len(X), bool)),
            n_live=own.n_live + len(X),
            blocks=own._with_blocks(own.blocks, stored, slots),
            stored=own.stored.with_rows(stored),
            drift=own.drift.with_added(len(X), residual),
        )

    def _has_scale_of_few(self, X: npt.NDArray[Any]) -> bool:
        """Whether vectors are stored in another scale than that of X, although X are more than these."""
        if not 0 < self.n_live < len(X) or not self.stored.has_vectors:
            return False
        metric = self.space.metric
        return not metric.is_like(Metric.of(metric.name, X[evenly(len(X))]))

    def _with_scale_of(self, X: npt.NDArray[Any]) -> Self:
        """The same documents at the same slots, for an index of documents like X."""
        vectors = self.space.metric.restored(self.stored.some(np.arange(len(self))))
        new = self._trained(self.space.shape, self.options, X, self.n_live + len(X), vectors)
        stored, live = new.space.metric.stored(vectors), np.flatnonzero(self.live.rows)
        return replace(
            self,
            space=new.space,
            blocks=new._with_blocks(new.blocks, stored[live], live.astype(np.uint32)),
            stored=new.stored.with_rows(stored),
            calibration=None,
            tuning=None,
        )

    def measured(self, added: npt.NDArray[Any] | None = None) -> Self:
        """Measure again if the documents have changed, and train lists again if they no longer fit."""
        if self._is_outgrown():
            return self._with_new_lists()
        if not self.is_due:
            return self
        measured = self._calibrated(added)
        return measured._with_new_lists() if measured._has_misfit() else measured

    @property
    def is_due(self) -> bool:
        """Whether the documents have changed so much that searches must be measured again."""
        return self._needs_calibration(self.n_live) and (self.calibration is None or self.drift.is_due)

    @property
    def is_overdue(self) -> bool:
        """Whether the last measurement says nothing about the present documents."""
        return self.is_due and (self.calibration is None or self.drift.is_overdue)

    def with_writes(self, n_added: int, n_deleted: int) -> Self:
        """Count these as the writes since the last measurement."""
        before = Drift(self.drift.n_docs, self.drift.residual)
        return replace(self, drift=before.with_added(n_added, before.residual).with_deleted(n_deleted))

    def with_measurements(self, before: Self, measured: Self) -> Self | None:
        """Take over the lists and measurements that an earlier state, with the same slots, was given."""
        if self.calibration is not before.calibration:
            return None
        blocks = self.blocks
        added = np.arange(len(before), len(self))
        if measured.space is not self.space:
            added = added[self.live.rows[added]]
            blocks = measured._with_blocks(measured.blocks, self.stored.some(added), added.astype(np.uint32))
            blocks = blocks.without((~self.live.rows).view(np.uint8))
        n_deleted = before.n_live + len(self) - len(before) - self.n_live
        return replace(
            self,
            space=measured.space,
            blocks=blocks,
            calibration=measured.calibration,
            tuning=measured.tuning,
            drift=measured.drift,
        ).with_writes(len(self) - len(before), n_deleted)

    @property
    def n_measured(self) -> int:
        """Documents that the calibration is of."""
        return 0 if self.calibration is None else self.calibration.n_docs

    def _has_misfit(self) -> bool:
        """Whether other lists would serve the documents better."""
        if not self.stored.has_vectors or self.space.n_lists == 1:
            return False
        if self.tuning is None:
            return self.drift.residual > _MISFIT * self.space.mean_square
        share = visited_share(self.tuning, self.space, self.options.recall or 0.0)
        return share > max(_FEW_VISITED, _MISFIT * self.tuning.trained_share)

    def _is_outgrown(self) -> bool:
        """Whether there are so many documents that more lists would serve them better."""
        is_fixed = self.options.structure == "exact" or self.options.n_lists is not None
        grown = self.n_live > max(FEW, _OUTGROWN * self.space.n_docs)
        return grown and not is_fixed and self.stored.has_vectors

    def _with_new_lists(self) -> Self:
        """The same documents in lists that are trained on them."""
        rng = np.random.default_rng(self.options.random_state)
        live = np.flatnonzero(self.live.rows)
        known = _not_held_out(live)
        chosen = np.sort(rng.permutation(known)[: self.training_size(self.options, self.n_live)])
        n_lists = self.n_lists_for(self.options, self.n_live)
        sample, old = self.stored.some(chosen), self.space
        space = Space.train(old.metric, old.shape, sample, n_lists, self.n_live, rng, may_reduce=True)
        empty = replace(self, space=space, blocks=_native.Blocks(space.native), calibration=None, tuning=None)
        blocks = empty.blocks
        for start in range(0, len(live), self.rows_at_once):
            slots = live[start : start + self.rows_at_once]
            blocks = empty._with_blocks(blocks, self.stored.some(slots), slots.astype(np.uint32))
        return replace(empty, blocks=blocks)._calibrated()

    def without(self, slots: Slots) -> Self:
        """Remove the documents at these slots."""
        removed = np.zeros(len(self), np.uint8)
        removed[slots] = 1
        drift = self.drift.with_deleted(len(slots))
        return replace(super().without(slots), blocks=self.blocks.without(removed), drift=drift)

    def compacted(self) -> Self:
        """The same documents in new slots, without those of deleted ones."""
        vectors = self.vectors(np.flatnonzero(self.live.rows))
        slots = np.arange(len(vectors), dtype=np.uint32)
        return replace(
            super().compacted(),
            blocks=self._with_blocks(_native.Blocks(self.space.native), vectors, slots),
            stored=Stored.empty(self.stored.store, vectors.shape[1]).with_rows(vectors),
        )

    def detached(self) -> Self:
        """The same documents, to which one may add what this index never sees."""
        return replace(super().detached(), stored=self.stored.detached())

    def _with_blocks(
        self, blocks: _native.Blocks, stored: Float32, slots: npt.NDArray[np.uint32]
    ) -> _native.Blocks:
        lists = self.space.lists_of(stored)
        vectors = np.ascontiguousarray(stored)
        return blocks.with_documents(vectors, lists, slots, cores(), kernels.active())

    def _calibrated(self, added: npt.NDArray[Any] | None = None) -> Self:
        documents = self._typical(added)
        queries = self.space.metric.like_queries(documents)
        residual = mean_residual(self, documents, np.arange(len(documents)))
        known = replace(self, calibration=calibrate(self.space, self.blocks, queries, self.n_live))
        tuning = None
        if self.options.recall is not None and self.n_live > FEW:
            calibration, tuning = measure(known, self.options.recall)
        else:
            calibration = known._with_found_limits(queries)
        drift = Drift(self.n_live, residual)
        return replace(known, calibration=calibration, tuning=tuning, drift=drift, was_measured=True)

    def _with_found_limits(self, queries: Float32) -> Calibration:
        """Return the calibration with first limits from searches, which find the queries themselves, too."""
        assert self.calibration is not None
        k = min(_DEEP, self.n_live)
        effort = Effort(min(self.options.n_probe, self.space.n_lists), ALL_LISTS, 3.0, 1.0)
        found = self.stored.search(self.blocks, self.settings(k, effort), queries, k)
        return with_limits(self.calibration, self.space, queries, found.scores[:, 1:])

    def _typical(self, added: npt.NDArray[Any] | None) -> Float32:
        """Some documents to calibrate with; where none are stored, of those that were just added."""
        if not self.stored.has_vectors and added is not None and len(added) >= len(evenly(self.n_live)):
            return self.space.metric.stored(added[evenly(len(added))])
        return self.vectors(np.flatnonzero(self.live.rows)[evenly(self.n_live)])

    def _needs_calibration(self, n_live: int) -> bool:
        """Whether a search may visit blocks: without vectors, every search does."""
        return n_live > (FEW if self.stored.has_vectors else 0)

    # Memory and files ------------------------------------------------------------------------------

    def trained_state(self) -> Arrays:
        """Lists and projection, and what was measured."""
        arrays = self.space.to_arrays()
        for measured in (self.calibration, self.tuning):
            arrays |= {} if measured is None else measured.to_arrays()
        return arrays | self.drift.to_arrays()

    def to_arrays(self) -> Arrays:
        """The trained state, the blocks, the vectors, with zeros in place of deleted documents."""
        blocks: Arrays = dict(zip(_BLOCK_ARRAYS, self.blocks.to_arrays(), strict=True))
        if self.n_live < len(self):
            erase_deleted(self.space, blocks["blocks"], blocks["block_table"], blocks["block_live"])
        vectors = without_deleted(self.stored.rows.rows, self.live.rows)
        return self.trained_state() | blocks | {"vectors": vectors}

    @classmethod
    def from_arrays(
        cls, hasher: Hasher[Any], options: IndexOptions, codes: npt.NDArray[Any], arrays: Arrays
    ) -> Self:
        """With documents, from the arrays of :meth:`to_arrays`."""
        empty = cls.with_trained_state(hasher, options, arrays)
        n = len(codes)
        parts = [expect(arrays, name, *like) for name, like in _BLOCK_ARRAYS.items()]
        blocks = _native.Blocks.from_arrays(empty.space.native, *parts)
        stored = empty.stored.restored(arrays, n)
        rows, live, n_live = by_slot(codes)
        filled = replace(empty, codes=rows, live=live, n_live=n_live, blocks=blocks, stored=stored)
        if empty.calibration is None and empty._needs_calibration(n - len(arrays["removed"])):
            if "drift" in arrays:
                raise ValueError("the calibration is missing")
            return filled.without(arrays["removed"])._calibrated()
        return filled

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: arrays in place of the kernels' object."""
        return fields_of(self) | {"blocks": self.blocks.to_arrays()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, blocks=_native.Blocks.from_arrays(state["space"].native, *state["blocks"]))


def _not_held_out(slots: Slots) -> Slots:
    """Return the documents to train lists on: all if they are few."""
    known = slots[~is_held_out(slots)]
    return known if len(known) else slots
