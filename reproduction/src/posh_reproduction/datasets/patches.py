"""Millions of real vectors from a small download: 8 x 8 colour patches of the CIFAR-10 images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from posh._runtime import track_progress
from posh.datasets._fetch import Arrays, read_array, store
from posh.datasets._recipes import Stored, permute
from posh.datasets._registry import Floats
from posh_reproduction.datasets.cifar10 import CIFAR10

__all__ = ["N_BASE", "N_FEATURES", "N_QUERIES", "build_cifar10_patches"]

N_BASE, N_QUERIES, N_FEATURES = 2_428_372, 10_000, 128
_SIDE = 8
_QUERY_IMAGES = 1000
_PCA_SAMPLE = 100_000
_CHUNK = 50_000


def build_cifar10_patches() -> Stored:
    """Build the recipe for patches of 59,000 images as base and of 1,000 others as queries, after PCA."""
    folder = "cifar10-patches.v1"

    def make(root: Path) -> None:
        images = read_array(CIFAR10.fetch(root) / "images.npy")
        store(root / folder, lambda work: write_patches(work, images, N_BASE, N_QUERIES, _QUERY_IMAGES))

    def arrange(folder: Path) -> Arrays:
        return {part: read_array(folder / f"{part}.npy", mmap=True) for part in ("base", "queries")}

    return Stored(folder, make, arrange)


def write_patches(
    folder: Path, images: NDArray[np.uint8], n_base: int, n_queries: int, n_query_images: int
) -> None:
    """Write ``base.npy`` (n_base, 128) and ``queries.npy`` (n_queries, 128), a chunk at a time.

    Positions are distinct, and base and queries come from different images.
    """
    order = permute(len(images))
    base = _choose_patches(images[order[n_query_images:]], n_base)
    queries = _choose_patches(images[order[:n_query_images]], n_queries)
    project = _fit_pca(base(0, _PCA_SAMPLE))
    for name, patches, count in (("base", base, n_base), ("queries", queries, n_queries)):
        out = open_memmap(folder / f"{name}.npy", mode="w+", dtype=np.float32, shape=(count, N_FEATURES))
        for start in track_progress(range(0, count, _CHUNK), f"patches, {name}", "block"):
            out[start : start + _CHUNK] = project(patches(start, start + _CHUNK))
        out.flush()


def _choose_patches(images: NDArray[np.uint8], count: int) -> Callable[[int, int], Floats]:
    """Choose ``count`` random positions; return a function that cuts patches i..j-1, (j - i, 192)."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (_SIDE, _SIDE), axis=(1, 2))
    positions = permute(int(np.prod(windows.shape[:3])))[:count]

    def cut(start: int, stop: int) -> Floats:
        image, y, x = np.unravel_index(positions[start:stop], windows.shape[:3])
        return windows[image, y, x].reshape(len(image), -1).astype(np.float32)

    return cut


def _fit_pca(sample: Floats) -> Callable[[Floats], NDArray[Any]]:
    """Fit PCA on (n, 192); return a function that maps (m, 192) to the first 128 components."""
    mean = sample.mean(axis=0, dtype=np.float64)
    centred = sample - mean
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, : -N_FEATURES - 1 : -1]
    # An eigenvector's sign is arbitrary: let its largest entry be positive on every machine.
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(N_FEATURES)])
    shift, turn = mean.astype(np.float32), axes.astype(np.float32)
    return lambda patches: (patches - shift) @ turn
