"""One measurement: the results of a search, and its time."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from posh_reproduction.ann.contenders import BuiltIndex, Params

__all__ = ["Measured", "Setting", "measure_search"]

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
        search(pieces[0][:_WARM])
        wall, cpu = time.perf_counter(), time.process_time()
        answers = [search(piece) for piece in pieces]
        took = time.perf_counter() - wall, time.process_time() - cpu
    ids = np.concatenate([_padded(np.asarray(answer), setting.k) for answer in answers])
    return Measured(ids, *took)


def _padded(ids: npt.NDArray[np.integer], k: int) -> npt.NDArray[np.int64]:
    """Ids (m, k); libraries return fewer columns if they find less."""
    result = np.full((len(ids), k), -1, np.int64)
    result[:, : ids.shape[1]] = ids[:, :k]
    return result
