"""The vectors of documents by slot, for the last step of a search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh.errors import FormatError
from posh.index.append_only import AppendOnlyArray
from posh.index.code_index import SlotScores
from posh.index.metric import Metric
from posh.index.sliced import Slots
from posh.model_files import Arrays, expect
from posh.preprocess import Float32

__all__ = ["STORES", "Stored", "bytes_per_number", "require_precision", "strange_slot"]

STORES = {
    "float32": "4 bytes a number: exact",
    "float16": "2 bytes a number: 3 digits",
    "int8": "none beside the blocks, which have 1 byte a number",
}
_COARSE = 0.01  # errors of scores, compared with their spread: 2 to 5 times that share of neighbours is lost
_ENOUGH = 100  # vectors that tell the spread
_QUERIES, _DOCUMENTS = 64, 1000  # that are compared for it
_DTYPES = {"float32": np.float32, "float16": np.float16}


def strange_slot() -> FormatError:
    """The error for blocks that have a slot without a document: slots are read where they are needed."""
    return FormatError(
        "expected blocks with the slots of documents, found another slot: the saved index is damaged: "
        "load it with verify=True to learn which file, and build it again"
    )


def bytes_per_number(store: str) -> int:
    """What a number of a vector takes, beside its byte in a block."""
    return np.dtype(_DTYPES[store]).itemsize if store in _DTYPES else 0


def require_precision(store: str, metric: Metric, sample: Float32) -> None:
    """Raise a ValueError if float16 is too coarse for the scores of vectors like these, stored ones (n, d).

    That happens with products and cosines of vectors that have a large offset in common, compared with their
    differences: float16 rounds the offset.

    >>> X = np.random.default_rng(0).normal(size=(200, 8))
    >>> require_precision("float16", Metric.of("cosine", X), Metric.of("cosine", X).stored(X))
    """
    if store != "float16" or len(sample) < _ENOUGH:
        return
    some = sample[:: -(-len(sample) // _DOCUMENTS)]
    queries = metric.like_queries(some[:: -(-len(some) // _QUERIES)]).astype(np.float64)
    exact = some.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        halves = some.astype(np.float16).astype(np.float64)
        scores, rounded = (
            2.0 * queries @ rows.T - metric.is_distance * (rows**2).sum(axis=1) for rows in (exact, halves)
        )
        errors, spreads = (rounded - scores).std(axis=1), scores.std(axis=1)
    if np.median(errors - _COARSE * spreads) > 0:
        raise ValueError(
            f"expected vectors whose {metric.name} scores float16 tells apart, got errors of "
            f"{np.median(errors) / max(np.median(spreads), 1e-300):.2g} of the spread of scores: use "
            "store='float32', or subtract the mean of all vectors from them"
        )


@dataclass(frozen=True, eq=False)
class Stored:
    """Vectors (n_slots, d); (n_slots, 0) for ``"int8"``, with which blocks have all that is known."""

    store: str
    rows: AppendOnlyArray

    @classmethod
    def empty(cls, store: str, n_features: int) -> Stored:
        """Without documents."""
        columns = n_features if store in _DTYPES else 0
        return cls(store, AppendOnlyArray.of(np.empty((0, columns), _DTYPES.get(store, np.float32))))

    @property
    def n_slots(self) -> int:
        """Slots in use."""
        return self.rows.n

    @property
    def has_vectors(self) -> bool:
        """Whether vectors are there."""
        return self.store in _DTYPES

    def with_rows(self, stored: Float32) -> Stored:
        """Add vectors (n, d)."""
        if self.store == "float16":
            with np.errstate(over="ignore"):
                halves = stored.astype(np.float16)
            if not np.isfinite(halves).all():
                raise ValueError(
                    f"expected vectors that fit into float16, got {np.abs(stored).max():.3g} times the scale "
                    "of the first ones: use store='float32'"
                )
            return replace(self, rows=self.rows.with_rows(halves))
        rows = stored if self.has_vectors else np.empty((len(stored), 0), np.float32)
        return replace(self, rows=self.rows.with_rows(rows))

    def restored(self, arrays: Arrays, n: int) -> Stored:
        """The vectors of n documents of a file; a ValueError if they are wrong."""
        kept = self.rows.buffer
        vectors = expect(arrays, "vectors", kept.dtype, (n, kept.shape[1]))
        return replace(self, rows=AppendOnlyArray.of(np.ascontiguousarray(vectors)))

    def detached(self) -> Stored:
        """The same vectors, to which one may add what these never see."""
        return replace(self, rows=self.rows.detached())

    def some(self, slots: Slots) -> Float32:
        """Vectors by slot, float32."""
        return np.asarray(self.rows.rows[slots], np.float32)

    def search(
        self,
        blocks: _native.Blocks,
        settings: _native.BlockSettings,
        queries: Float32,
        k: int,
        n_threads: int = 1,
    ) -> SlotScores:
        """The k best documents of blocks for prepared queries, with scores from these vectors."""
        found = SlotScores(np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32))
        kernel = kernels.active()
        try:
            blocks.search(settings, queries, self.native, None, *found, n_threads, kernel)
        except IndexError as error:
            raise strange_slot() from error
        return found

    @cached_property
    def native(self) -> _native.BlockVectors:
        """The same for the kernels."""
        rows: npt.NDArray[Any] = self.rows.rows
        floats = rows if self.store == "float32" else None
        halves = rows.view(np.uint16) if self.store == "float16" else None
        return _native.BlockVectors(floats, halves, self.n_slots)

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: without the kernels' object."""
        return {name: value for name, value in vars(self).items() if name != "native"}
