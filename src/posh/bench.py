"""Measurements of fitting, encoding and searching on this machine, compared with faiss and a matrix product.

The contenders of a measurement run in turns, on one thread unless stated otherwise, and the best time of each
counts. Quote a number only together with :func:`environment`.
"""

from __future__ import annotations

import importlib
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy
from threadpoolctl import threadpool_info

from posh import kernels
from posh._runtime import one_blas_thread, resolve_threads, track_progress
from posh.codes import Codes, PackedCodes
from posh.hashers import Hasher
from posh.hashers._linalg import TILE
from posh.index.codes.bitsliced import SlicedCodes
from posh.index.codes.index import CodeIndex

__all__ = ["best_times", "environment", "measure_encode", "measure_fit", "measure_search", "seconds"]

AnyCodes: TypeAlias = Codes | PackedCodes
Float32: TypeAlias = npt.NDArray[np.float32]

_SINGLES = 100  # queries asked one by one
_PACKED = 65_536  # codes expanded together for faiss


def environment() -> dict[str, str]:
    """Return chip, threads, kernel and versions."""
    blas = [f"{pool['internal_api']} {pool['version']} x{pool['num_threads']}" for pool in threadpool_info()]
    return {
        "chip": _read_chip(),
        "cores": str(resolve_threads()),
        "kernel": kernels.active(),
        "posh": version("posh-ann"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "thread pools": ", ".join(sorted(set(blas))),
    }


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_times(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the shortest time of each; they run in turns, so that a slow phase of the machine affects all.

    >>> sorted(best_times({"sleep": lambda: time.sleep(0.001), "nothing": lambda: None}, rounds=2))
    ['nothing', 'sleep']
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in track_progress(range(rounds), "measuring", "round"):
        for name, work in works.items():
            times[name].append(seconds(work))
    return {name: min(values) for name, values in times.items()}


def measure_fit(hasher: Hasher[Any], X: Float32, rounds: int) -> dict[str, Any]:
    """Measure ``fit`` for vectors (n, d), with any number of threads."""
    return {"n_vectors": len(X), "seconds": best_times({"fit": lambda: hasher.fit(X)}, rounds)["fit"]}


def measure_encode(hasher: Hasher[Any], X: Float32, rounds: int) -> dict[str, Any]:
    """Measure the encoding of vectors (n, d), compared with the float32 matrix product that it contains.

    ``fraction_of_product`` is the rate of ``encode`` relative to the bare product of the same tiles;
    ``speedup`` is the gain from using all cores.
    """
    Z = hasher.preprocess_(X)
    out = np.empty((TILE, hasher.n_bits), np.float32)

    def multiply() -> None:
        for start in range(0, len(Z), TILE):
            rows = Z[start : start + TILE]
            np.matmul(rows, hasher.weights_.T, out=out[: len(rows)])

    works = {
        "product": multiply,
        "encode": lambda: hasher.encode(X, n_threads=1),
        "all": lambda: hasher.encode(X, n_threads=resolve_threads()),
    }
    with one_blas_thread:
        best = best_times(works, rounds)
    return {
        "n_vectors": len(X),
        "encode_per_second": len(X) / best["encode"],
        "product_per_second": len(X) / best["product"],
        "fraction_of_product": best["product"] / best["encode"],
        "threads": resolve_threads(),
        "speedup": best["encode"] / best["all"],
    }


def measure_search(
    hasher: Hasher[Any], base: Float32, queries: Float32, k: int, rounds: int
) -> dict[str, Any]:
    """Measure exact search for the codes of queries (m, d) among those of the base (n, d), and faiss.

    ``batch`` searches for all queries in one call and ``single`` one by one. ``with_encoding_per_second`` is
    the rate of ``CodeIndex.search`` for the batch of vectors. Values that need faiss are None without it.
    """
    faiss = _import_faiss()
    index = CodeIndex(hasher).add(base)
    documents, asked = hasher.encode(base), hasher.encode(queries)
    contenders = {"posh": _make_posh_contender(documents, k)}
    if faiss is not None:
        contenders["faiss"] = _make_faiss_contender(faiss, documents, k)
    works: dict[str, Callable[[], object]] = {"index": lambda: index.search(queries, k, n_threads=1)}
    for name, contender in contenders.items():
        works |= _make_works(name, contender, asked)
    with one_blas_thread, _limit_faiss(faiss):
        best = best_times(works, rounds)
        found = [contender.distances(contender.prepare(asked)) for contender in contenders.values()]
    return {
        "n_documents": len(base),
        "k": k,
        "threads": 1,
        "faiss": faiss and faiss.__version__,
        "batch": _compute_rates(len(asked), best, "batch"),
        "single": _compute_rates(min(len(asked), _SINGLES), best, "single"),
        "with_encoding_per_second": len(asked) / best["index"],
        "same_distances": faiss and np.array_equal(found[0], found[-1]),
    }


class _Contender(NamedTuple):
    """A search: ``distances(prepare(codes))`` are the Hamming distances (m, k) of its results."""

    prepare: Callable[[AnyCodes], Any]
    distances: Callable[[Any], npt.NDArray[Any]]


def _make_works(name: str, contender: _Contender, asked: AnyCodes) -> dict[str, Callable[[], object]]:
    batch = contender.prepare(asked)
    singles = [contender.prepare(asked[row]) for row in range(min(len(asked), _SINGLES))]

    def search_one_by_one() -> None:
        for query in singles:
            contender.distances(query)

    return {f"{name} batch": lambda: contender.distances(batch), f"{name} single": search_one_by_one}


def _compute_rates(n: int, best: Mapping[str, float], way: str) -> dict[str, Any]:
    posh, faiss = best[f"posh {way}"], best.get(f"faiss {way}")
    return {
        "n_queries": n,
        "posh_per_second": n / posh,
        "faiss_per_second": faiss and n / faiss,
        "ratio": faiss and faiss / posh,
    }


def _make_posh_contender(documents: AnyCodes, k: int) -> _Contender:
    n_bits = documents.n_bits
    if isinstance(documents, PackedCodes):
        bits = documents.bits
        return _Contender(
            _pack_codes, lambda queries: n_bits - kernels.hamming_topk(bits, queries, n_bits, k)[1]
        )
    n_active, segments = documents.n_active, SlicedCodes(n_bits).with_codes(documents)
    return _Contender(
        lambda codes: codes,
        lambda queries: 2 * (n_active - segments.search(queries, k, n_threads=1)[1]),
    )


def _make_faiss_contender(faiss: Any, documents: AnyCodes, k: int) -> _Contender:
    index = faiss.IndexBinaryFlat(-(-documents.n_bits // 8) * 8)
    for start in range(0, len(documents), _PACKED):
        index.add(_pack_codes(documents[start : start + _PACKED]))
    return _Contender(_pack_codes, lambda queries: np.asarray(index.search(queries, k)[0]))


def _pack_codes(codes: AnyCodes) -> npt.NDArray[np.uint8]:
    return (codes.to_packed() if isinstance(codes, Codes) else codes).bits


def _import_faiss() -> Any:
    """Return the module, or None if it is not installed."""
    try:
        return importlib.import_module("faiss")
    except ImportError:
        return None


@contextmanager
def _limit_faiss(faiss: Any) -> Iterator[None]:
    """Limit faiss, if it is installed, to one thread."""
    if faiss is None:
        yield
        return
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _read_chip() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
