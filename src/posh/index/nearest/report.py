"""Summarise an index: structure, measured recall, time per query, bytes per vector."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from posh.index.nearest.measuring import measure_filtered
from posh.index.nearest.options import NearestParams
from posh.index.nearest.queries import NO_WATCH

if TYPE_CHECKING:
    from posh.index.nearest.snapshot import NearestSnapshot

__all__ = ["IndexReport", "make_report"]

_QUERIES, _SINGLE = 1000, 100  # that are timed, in one batch and one by one
_K = 10
_FILTERS = (0.5, 0.1, 0.01)  # shares of documents that pass


@dataclass(frozen=True)
class IndexReport:
    """The summary that :meth:`posh.Index.report` returns; ``print`` shows it as text.

    ``recall`` is the share of the true 10 nearest that was found, with its standard ``error``: None if it was
    not measured, 1.0 if all documents are compared. ``ks``, ``recalls`` and ``errors`` have the same for
    several numbers of results. Measured with ``n_queries`` queries among ``n_measured`` documents;
    ``n_written`` were added or deleted since. The queries are documents that were held out from training. If
    the user gave ``n_given`` queries, they are some of these, and others chose the effort. ``filter_recalls``
    and ``filter_errors`` are measured now, with 10 results and random filters that the shares ``filters`` of
    the documents pass; they are empty if no vectors are stored. A search for 10 visits ``lists_visited``
    lists on average, or ``nodes_visited`` nodes of a graph, which is built if the local ``dimension`` of the
    documents is low enough. Times are of one thread, now, on this machine.
    """

    n_documents: int
    n_features: int
    metric: str
    store: str
    dimension: float | None
    n_lists: int
    n_bits: int
    n_active: int
    asked: float
    recall: float | None
    error: float | None
    ks: list[int]
    recalls: list[float]
    errors: list[float]
    filters: list[float]
    filter_recalls: list[float]
    filter_errors: list[float]
    n_queries: int
    n_given: int
    n_measured: int
    n_written: int
    lists_visited: float | None
    slack: float | None
    oversample: float | None
    nodes_visited: float | None
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
                *([("filtered", self._describe_filters())] if self.filters else []),
                *([("measured", self._describe_measurement())] if self.ks else []),
                ("time", self._time()),
                ("memory", f"{self.bytes_per_document:,.0f} bytes for each vector, kept as {self.store}"),
            )
        )

    def _structure(self) -> str:
        graph = "a graph, and " if self.nodes_visited is not None else ""
        is_known = self.dimension is not None and np.isfinite(self.dimension)
        why = f"; local dimension: {self.dimension:.0f}" if is_known else ""
        return f"{graph}{self.n_lists:,} lists; codes with {self.n_active} of {self.n_bits} bits set{why}"

    def _search(self) -> str:
        if self.nodes_visited is not None:
            return f"visits {self.nodes_visited:.3g} nodes of the graph on average"
        if self.lists_visited is None:
            return "compares all vectors"
        lists = f"visits {self.lists_visited:.3g} lists on average"
        return f"{lists}, slack {self.slack:g}, compares {self.oversample:g} vectors per result"

    def _recall(self) -> str:
        asked = f"; asked for: {self.asked:g}"
        if self.lists_visited is None and self.nodes_visited is None:
            return f"1, since all vectors are compared{asked}"
        if self.recall is None:
            return f"not measured with so few documents{asked}"
        rows = zip(self.ks, self.recalls, self.errors, strict=True)
        return ", ".join(f"k={k}: {recall:.3f} ± {error:.3f}" for k, recall, error in rows) + asked

    def _describe_measurement(self) -> str:
        if self.n_given:
            queries = f"{self.n_queries:,} of your {self.n_given:,} queries, which tuned nothing"
        else:
            queries = f"{self.n_queries:,} held-out documents"
        return f"on {queries}, among {self.n_measured:,} documents; {self.n_written:,} written since"

    def _describe_filters(self) -> str:
        rows = zip(self.filters, self.filter_recalls, self.filter_errors, strict=True)
        return f"k={_K}: " + ", ".join(
            f"{recall:.3f} ± {error:.3f} if {share:.0%} pass" for share, recall, error in rows
        )

    def _time(self) -> str:
        batch, alone = (f"{1e6 * seconds:,.0f} µs" for seconds in (self.seconds_in_batch, self.seconds_alone))
        return f"{batch} a query in a batch of {_QUERIES:,}, {alone} one by one, on one thread"


def make_report(snapshot: NearestSnapshot) -> IndexReport:
    """Summarise a snapshot and time its searches; raise ValueError if it has no documents."""
    lists = snapshot.lists
    if lists is None or not lists.n_live:
        raise ValueError("expected an index with documents to report on, got one without: add some first")
    params = NearestParams(_K, n_threads=1)
    in_graph = lists.choose_graph_effort(params)
    effort = None if in_graph else lists.choose_effort(params)
    compares_all = in_graph is None and effort is None
    rows = [] if compares_all else lists.measured_rows()
    typical = next((row for row in rows if row.k == _K), None)
    live = np.flatnonzero(snapshot.live)
    some = lists.space.metric.restore(lists.vectors(live[:: max(1, len(live) // _QUERIES)][:_QUERIES]))
    timed = replace(snapshot, lists=replace(lists, watch=NO_WATCH))  # these are not searches of the user
    filtered = [] if compares_all else measure_filtered(lists, _FILTERS, _K)
    return IndexReport(
        n_documents=lists.n_live,
        n_features=some.shape[1],
        metric=lists.space.metric.name,
        store=snapshot.options.store,
        dimension=None if lists.tuning is None else lists.tuning.dimension,
        n_lists=lists.space.n_lists,
        n_bits=lists.space.shape.n_bits,
        n_active=lists.space.shape.n_active,
        asked=snapshot.options.recall,
        recall=1.0 if compares_all else None if typical is None else typical.recall,
        error=0.0 if compares_all else None if typical is None else typical.error,
        ks=[row.k for row in rows],
        recalls=[row.recall for row in rows],
        errors=[row.error for row in rows],
        filters=[share for share, _, _ in filtered],
        filter_recalls=[recall for _, recall, _ in filtered],
        filter_errors=[error for _, _, error in filtered],
        n_queries=0 if lists.tuning is None else lists.tuning.n_queries,
        n_given=0 if lists.queries is None else lists.queries.n_given,
        n_measured=lists.n_measured,
        n_written=lists.drift.n_written,
        lists_visited=None if effort is None else effort.n_probe or effort.reach.share * lists.space.n_lists,
        slack=None if effort is None else effort.slack,
        oversample=None if effort is None else effort.oversample,
        nodes_visited=None
        if in_graph is None or lists.graph is None
        else lists.graph.count_visits(_K, in_graph),
        bytes_per_document=snapshot.memory_usage()["total"] / lists.n_live,
        seconds_in_batch=_time_searches(timed, params, [some]) / len(some),
        seconds_alone=_time_searches(timed, params, list(some[:_SINGLE, None])) / len(some[:_SINGLE]),
    )


def _time_searches(
    snapshot: NearestSnapshot, params: NearestParams, batches: list[npt.NDArray[Any]]
) -> float:
    """Return the seconds of searching for all batches, the best of three."""

    def once() -> float:
        start = time.perf_counter()
        for batch in batches:
            snapshot.search_slots(batch, params)
        return time.perf_counter() - start

    return min(once() for _ in range(3))
