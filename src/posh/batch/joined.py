"""Several shards searched as if they were one index: queries are encoded once, and limits carry over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from posh.batch.merging import Ids, merged
from posh.index.code_index import Queries, SlotScores
from posh.index.hits import Hits
from posh.index.params import SearchParams
from posh.index.search import padded
from posh.index.sliced import SlicedCodes
from posh.index.snapshot import IndexSnapshot
from posh.preprocess import Float32

__all__ = ["search_all"]


def search_all(snapshots: Sequence[IndexSnapshot], vectors: Float32, params: SearchParams) -> Hits:
    """The best documents of all snapshots, which were trained alike, for vectors (m, d)."""
    complete = params.completed(snapshots[0].options, snapshots[0].hasher)
    joined = _joined(snapshots) if complete.scoring == "overlap" else None
    if joined is None:
        found = [snapshot.search(vectors, params) for snapshot in snapshots]
        best: tuple[Ids, Float32] = found[0].ids, found[0].scores
        for hits in found[1:]:
            best = merged(best, (hits.ids, hits.scores), params.k)
        return Hits(*best, found[0].kind)
    segments, ids = joined
    for snapshot in snapshots:
        assert snapshot.documents is not None
        snapshot.documents.require_files()
    options = snapshots[0].options
    queries = Queries(vectors, snapshots[0].hasher, options.query_active, complete.threads)
    k = min(params.k, len(ids))
    counted = segments.search(queries.codes(), k, n_threads=queries.n_threads)
    slots, scores = SlotScores.of_counts(*counted)
    numbers = np.where(slots < 0, -1, ids[slots])
    return Hits(*padded(numbers, scores, params.k), "overlap").above(params.min_score)


def _joined(snapshots: Sequence[IndexSnapshot]) -> tuple[SlicedCodes, Ids] | None:
    """All segments, one after the other, and the ids of their slots; None if that is not the same search.

    Equal scores are in the order of slots. So ids must ascend, through all shards.
    """
    parts, ids, n = [], [np.empty(0, np.int64)], 0
    for snapshot in snapshots:
        documents = snapshot.documents
        segments = None if documents is None else documents.structure.all_segments
        if documents is None or segments is None or snapshot.refiner is not None:
            return None
        parts += [part._replace(first_slot=part.first_slot + n) for part in segments.parts]
        ids.append(np.asarray(documents.ids.rows))
        n += len(segments)
    every_id = np.concatenate(ids)
    if not n or (every_id[1:] <= every_id[:-1]).any():
        return None
    return replace(SlicedCodes(snapshots[0].hasher.n_bits), parts=tuple(parts)), every_id
