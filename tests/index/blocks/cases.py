"""Random spaces, documents and queries, and how the native classes are called with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from posh import _native, kernels
from tests.index.blocks import specification as spec
from tests.index.blocks.search_specification import Settings
from tests.index.blocks.specification import Floats, Space, f32

KERNELS = kernels.available()
METRICS = ["cosine", "euclidean", "dot"]
KINDS = ["normal", "duplicates", "integers", "zeros", "constant", "clusters"]
SCALES = [1.0, 1e-3, 1e17, 1e-17, 1e-30, 1e-43]  # squares of 1e17 do not overflow; 1e-43 is subnormal
STORED = ["float32", "float16", "residuals"]


def vectors_of(rng: np.random.Generator, kind: str, n: int, d: int) -> Floats:
    """Vectors (n, d) of about length 1 to sqrt(d)."""
    vectors = rng.normal(size=(n, d))
    if kind == "duplicates":
        vectors = vectors[rng.integers(0, max(1, n // 5), n)]
    elif kind == "integers":
        vectors = rng.integers(-1, 2, size=(n, d)).astype(float)
    elif kind == "zeros":
        vectors[rng.random(n) < 0.3] = 0
    elif kind == "constant":
        vectors[:] = rng.normal(size=d)
    elif kind == "clusters":
        vectors = 3 * rng.normal(size=(4, d))[rng.integers(0, 4, n)] + 0.3 * vectors
    return vectors.astype(f32)


def unit_length(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(f32)


@dataclass
class Case:
    """Documents and queries of one metric, in lists."""

    metric: str
    vectors: Floats
    queries: Floats
    lists: npt.NDArray[np.int32]
    space: Space

    def native_space(self) -> _native.BlockSpace:
        return _native.BlockSpace(**vars(self.space))


def random_case(
    rng: np.random.Generator,
    metric: str,
    kind: str = "normal",
    scale: float = 1.0,
    n: int = 300,
    d: int = 20,
    n_lists: int = 5,
    n_queries: int = 3,
    n_bits: int = 64,
    learned: bool = False,
    n_reduced: int | None = None,
) -> Case:
    both = vectors_of(rng, kind, n + n_queries, d)
    both = unit_length(both) if metric == "cosine" else (both.astype(np.float64) * scale).astype(f32)
    vectors, queries = np.ascontiguousarray(both[:n]), np.ascontiguousarray(both[n:])
    centroids = vectors[rng.integers(0, n, n_lists)] if n else np.zeros((n_lists, d), f32)
    lists = rng.integers(0, n_lists, n).astype(np.int32)
    with np.errstate(all="ignore"):
        space = space_of(rng, metric, vectors, centroids, lists, n_bits, learned, n_reduced)
    return Case(metric, vectors, queries, lists, space)


def space_of(
    rng: np.random.Generator,
    metric: str,
    vectors: Floats,
    centroids: Floats,
    lists: npt.NDArray[np.int32],
    n_bits: int,
    learned: bool,
    n_reduced: int | None,
) -> Space:
    n_lists = len(centroids)
    lengths = np.linalg.norm(centroids, axis=1).astype(f32)
    routing, bias = centroids, np.zeros(n_lists, f32)
    if metric == "euclidean":
        bias = -f32(0.5) * lengths * lengths
    elif metric == "cosine":
        routing = unit_length(centroids)
    reduction = None
    if n_reduced is not None:
        reduction = rng.normal(size=(n_reduced, centroids.shape[1])).astype(f32)
        routing = routing @ reduction.T
    n_columns = routing.shape[1]
    size = int(rng.choice([size for size in (1, 2, 32, 64, 128, 256) if n_bits % size == 0]))
    signs = rng.choice(np.array([-1, 1], f32), (n_bits // size, n_columns))
    return Space(
        n_bits,
        int(rng.integers(1, n_bits + 1)),
        np.ascontiguousarray(centroids),
        np.ascontiguousarray(routing),
        bias,
        rng.normal(size=(n_bits, n_columns)).astype(f32) if learned else None,
        None if learned else signs,
        reduction,
        metric == "euclidean",
    )


def random_settings(rng: np.random.Generator, case: Case, k: int) -> Settings:
    """Any settings that the bindings accept, most of them sensible."""
    space = case.space
    plane_counts = range(0, min(space.n_bits, 240) + 1, 16)
    n_plus = int(rng.choice(plane_counts))
    n_minus = int(rng.choice(plane_counts[n_plus == 0 :]))
    n_scanned = int(rng.integers(max(n_plus, n_minus), space.n_bits + 1))
    first = None
    if rng.random() < 0.4 and len(case.vectors):
        products = case.queries.astype(np.float64) @ case.vectors.astype(np.float64).T
        if space.is_distance:
            products = products - 0.5 * (case.vectors.astype(np.float64) ** 2).sum(axis=1)
            products = products - 0.5 * (case.queries.astype(np.float64) ** 2).sum(axis=1)[:, None]
        quantile = float(f32(np.quantile(products, rng.uniform(0.5, 1))))
        first = quantile, float(rng.choice([0.0, 0.0, 0.5]))
    return Settings(
        n_probe=int(rng.integers(0, len(space.centroids) + 1)) * int(rng.integers(0, 2)),
        n_plus=n_plus,
        n_minus=n_minus,
        n_scanned=space.n_bits if rng.random() < 0.5 else n_scanned,
        n_keep=k + int(rng.choice([0, 4, 50])),
        thresholds=random_thresholds(rng, n_plus + n_minus),
        threshold_scale=float(f32(rng.choice([0.0, 0.3, 1.0, 3.0, -1.0]))),
        half_margin=float(f32(rng.choice([0.0, 1.5, 4.0]))),
        first=first,
        by_list=bool(rng.random() < 0.5),
        power=int(rng.choice([1, 2, 6, 12, 37])),
        bound=float(f32(rng.choice([0.0, 1e-6, 1e-3, 0.02, 0.5, 3.0]))),
        spread=float(f32(rng.choice([0.0, 0.1, 1.0, 30.0]))),
    )


def random_thresholds(rng: np.random.Generator, n_planes: int) -> npt.NDArray[np.int32]:
    """Counts that ascend from 0, up to one that no document reaches."""
    n = int(rng.choice([2, 3, 64, 256]))
    most = int(rng.choice([0, n_planes // 2, n_planes, n_planes + 1]))
    counts = np.sort(rng.integers(0, most + 1, n)).astype(np.int32)
    counts[0] = 0
    return counts


def native_settings(settings: Settings) -> _native.BlockSettings:
    arguments = dict(vars(settings))
    min_shared = 0.0 if arguments.pop("by_list") else 1e9
    return _native.BlockSettings(**arguments, min_shared=min_shared)


def native_search(
    blocks: _native.Blocks,
    case: Case,
    settings: Settings,
    k: int,
    kernel: str,
    n_threads: int = 1,
    vectors: npt.NDArray[np.generic] | None = None,
    allowed: npt.NDArray[np.bool_] | None = None,
    n_slots: int | None = None,
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Vectors of float16 are handed over as halves; None compares with the decoded residuals."""
    n = len(case.queries)
    ids, scores = np.full((n, k), -7, np.int64), np.full((n, k), np.nan, f32)
    blocks.search(
        native_settings(settings),
        case.queries,
        native_vectors(vectors, len(case.vectors) if n_slots is None else n_slots),
        None if allowed is None else allowed.view(np.uint8),
        ids,
        scores,
        n_threads,
        kernel,
    )
    return ids, scores


def native_vectors(vectors: npt.NDArray[np.generic] | None, n_slots: int) -> _native.BlockVectors:
    floats = vectors if vectors is not None and vectors.dtype == f32 else None
    halves = vectors.view(np.uint16) if vectors is not None and vectors.dtype == np.float16 else None
    return _native.BlockVectors(floats, halves, n_slots)


def stored(case: Case, kind: str) -> npt.NDArray[np.generic] | None:
    if kind == "residuals":
        return None
    return case.vectors if kind == "float32" else np.clip(case.vectors, -65504, 65504).astype(np.float16)


def native_blocks(case: Case, kernel: str, n_threads: int = 1) -> _native.Blocks:
    """All documents in blocks."""
    slots = np.arange(len(case.vectors), dtype=np.uint32)
    empty = _native.Blocks(case.native_space())
    return empty.with_documents(case.vectors, case.lists, slots, n_threads, kernel)


def specified_blocks(case: Case) -> list[spec.Block]:
    slots = np.arange(len(case.vectors), dtype=np.uint32)
    return spec.with_documents(case.space, [], case.vectors, case.lists, slots)


seeds = st.integers(0, 2**32 - 1)
