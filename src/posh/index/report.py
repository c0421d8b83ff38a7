"""What an index is, what its searches find, and what they cost: measured, in a few lines for people."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from posh.index.blocks import BlockIndex
from posh.index.params import SearchParams

if TYPE_CHECKING:
    from posh.index.snapshot import IndexSnapshot

__all__ = ["IndexReport", "report_of"]

_QUERIES, _SINGLE = 1000, 100  # that are timed, in one batch and one by one
_K = 10


@dataclass(frozen=True)
class IndexReport:
    """What :meth:`posh.Index.report` tells; ``print`` shows it as text.

    ``recall`` is the share of the true 10 nearest that was found for ``n_measured`` documents that were held
    out from training, with its standard ``error``: None if it was not measured, 1.0 if all documents are
    compared. Times are of one thread, now, on this machine.
    """

    n_documents: int
    n_features: int
    metric: str
    store: str
    n_lists: int
    n_bits: int
    n_active: int
    asked: float | None
    recall: float | None
    error: float | None
    n_measured: int
    n_probe: int | None
    slack: float | None
    oversample: float | None
    bytes_per_document: float
    seconds_in_batch: float
    seconds_alone: float

    def __str__(self) -> str:
        return "\n".join(
            f"{title:<10} {text}"
            for title, text in (
                ("documents", f"{self.n_documents:,} vectors of {self.n_features:,} features, {self.metric}"),
                ("structure", self._structure()),
                ("search", self._search()),
                ("recall", self._recall()),
                ("time", self._time()),
                ("memory", f"{self.bytes_per_document:,.0f} bytes for each vector, kept as {self.store}"),
            )
        )

    def _structure(self) -> str:
        return f"{self.n_lists:,} lists; codes with {self.n_active} of {self.n_bits} bits set"

    def _search(self) -> str:
        if self.n_probe is None:
            return "compares all vectors"
        probes = f"visits {self.n_probe} list" + "s" * (self.n_probe > 1)
        return f"{probes}, slack {self.slack:g}, compares {self.oversample:g} vectors per result"

    def _recall(self) -> str:
        asked = "" if self.asked is None else f"; asked for: {self.asked:g}"
        if self.n_probe is None:
            return f"1, since all vectors are compared{asked}"
        if self.recall is None:
            few = f"not measured with so few documents{asked}"
            return "not measured: Index.build(X, recall=0.95) does it" if self.asked is None else few
        return (
            f"{self.recall:.3f} ± {self.error:.3f} of the true {_K} nearest, on {self.n_measured:,} "
            f"documents held out from training{asked}"
        )

    def _time(self) -> str:
        batch, alone = (f"{1e6 * seconds:,.0f} µs" for seconds in (self.seconds_in_batch, self.seconds_alone))
        return f"{batch} a query in a batch of {_QUERIES:,}, {alone} one by one, on one thread"


def report_of(snapshot: IndexSnapshot | None) -> IndexReport:
    """Look at a snapshot with documents and a metric, and time its searches; without, it is a ValueError."""
    documents = None if snapshot is None else snapshot.documents
    if (
        snapshot is None
        or documents is None
        or not isinstance(documents.structure, BlockIndex)
        or not documents.n_live
    ):
        raise ValueError(
            "expected an index with a metric and documents, got one without: "
            "posh.Index.build(X, metric='cosine') makes one"
        )
    index = documents.structure
    asked = snapshot.options.recall
    params = SearchParams(_K, n_threads=1).completed(snapshot.options, snapshot.hasher)
    effort = index.effort_for(params)
    row = None if effort is None or index.tuning is None else index.tuning.row_of(effort, _K)
    live = np.flatnonzero(documents.live)
    some = index.space.metric.restored(index.vectors(live[:: max(1, len(live) // _QUERIES)][:_QUERIES]))
    return IndexReport(
        n_documents=documents.n_live,
        n_features=some.shape[1],
        metric=index.space.metric.name,
        store=snapshot.options.store,
        n_lists=index.space.n_lists,
        n_bits=index.space.shape.n_bits,
        n_active=index.space.shape.n_active,
        asked=asked,
        recall=1.0 if effort is None else None if row is None else float(row[4]),
        error=0.0 if effort is None else None if row is None else float(row[5]),
        n_measured=0 if index.tuning is None else index.tuning.n_queries,
        n_probe=None if effort is None else effort.n_probe,
        slack=None if effort is None else effort.slack,
        oversample=None if effort is None else effort.oversample,
        bytes_per_document=snapshot.memory_usage()["total"] / documents.n_live,
        seconds_in_batch=_seconds(snapshot, params, [some]) / len(some),
        seconds_alone=_seconds(snapshot, params, list(some[:_SINGLE, None])) / len(some[:_SINGLE]),
    )


def _seconds(snapshot: IndexSnapshot, params: SearchParams, batches: list[npt.NDArray[Any]]) -> float:
    """The best of three."""

    def once() -> float:
        start = time.perf_counter()
        for batch in batches:
            snapshot.nearest(batch, params)
        return time.perf_counter() - start

    return min(once() for _ in range(3))
