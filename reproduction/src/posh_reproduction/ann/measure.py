"""One measurement: the results of a search, and its time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from posh_reproduction.ann.contenders import BuiltIndex, Params, Search

__all__ = ["Measured", "Setting", "measure_search", "measure_searches"]

_WARM = 100  # queries of the unmeasured call before


class Setting(NamedTuple):
    """Results per query, queries per batch, and threads."""

    k: int
    batch: int
    threads: int


class Measured(NamedTuple):
    """Ids (m, k), -1 where nothing was found; wall time, and CPU time of all threads of this process."""

    ids: npt.NDArray[np.int64]
    seconds: float
    cpu_seconds: float


def measure_search(
    index: BuiltIndex, queries: npt.NDArray[np.float32], setting: Setting, params: Params
) -> Measured:
    """Search for all queries (m, d) in batches; a first call is not measured, since it fills caches."""
    batch = setting.batch
    pieces = [np.ascontiguousarray(queries[i : i + batch]) for i in range(0, len(queries), batch)]
    with threadpool_limits(setting.threads):  # faiss and NumPy call BLAS
        search = index.searching(setting.k, setting.threads, **params)
        return measure_searches([search] * len(pieces), pieces, setting.k)


def measure_searches(
    searches: Sequence[Search], pieces: Sequence[npt.NDArray[np.float32]], k: int
) -> Measured:
    """Call each search with its queries (m, d); the first call of a search is repeated before, unmeasured."""
    first = {id(search): (search, piece) for search, piece in zip(searches[::-1], pieces[::-1], strict=True)}
    for search, piece in first.values():
        search(piece[:_WARM])
    wall, cpu = time.perf_counter(), time.process_time()
    answers = [search(piece) for search, piece in zip(searches, pieces, strict=True)]
    took = time.perf_counter() - wall, time.process_time() - cpu
    ids = np.concatenate([_padded(np.asarray(answer), k) for answer in answers])
    return Measured(ids, *took)


def _padded(ids: npt.NDArray[np.integer], k: int) -> npt.NDArray[np.int64]:
    """Ids (m, k); libraries return fewer columns if they find less."""
    result = np.full((len(ids), k), -1, np.int64)
    result[:, : ids.shape[1]] = ids[:, :k]
    return result
