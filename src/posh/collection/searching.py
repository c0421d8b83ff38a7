"""The search of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from posh.collection.base import NO_HASHER
from posh.collection.snapshot import CollectionSnapshot, Mask
from posh.index.hits import Hits
from posh.index.params import SearchParams
from posh.preprocess import Float32

__all__ = ["nearest"]


def nearest(
    snapshot: CollectionSnapshot, vectors: Float32, params: SearchParams, allowed: Mask | None
) -> Hits:
    """The hits among the allowed slots of a snapshot."""
    if snapshot.index is None:
        return _nothing(len(vectors), params, snapshot.options)
    slots, scores, kind = snapshot.index.nearest(vectors, params, allowed)
    return Hits(snapshot.slot_table.ids_of(slots), scores, kind).above(params.min_score)


def _nothing(n_queries: int, params: SearchParams, options: Mapping[str, Any]) -> Hits:
    """The hits in a collection that has a metric and never had an item."""
    if options.get("metric") is None:
        raise ValueError(NO_HASHER)
    shape = (n_queries, params.k)
    return Hits(np.full(shape, None, object), np.full(shape, -np.inf, np.float32), options["metric"])
