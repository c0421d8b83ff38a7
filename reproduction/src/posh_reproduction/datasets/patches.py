"""Millions of real vectors from a small download: colour patches of the CIFAR-10 images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from posh._runtime import track_progress
from posh.datasets._fetch import Arrays, read_array, store
from posh.datasets._recipes import Stored, permute
from posh.datasets._registry import Floats
from posh_reproduction.datasets.cifar10 import CIFAR10

__all__ = ["N_BASE", "N_FEATURES", "N_LARGE", "N_QUERIES", "build_cifar10_patches", "build_large_patches"]

N_BASE, N_QUERIES, N_FEATURES = 2_428_372, 10_000, 128
N_LARGE = 1_000_000
_SIDE, _LARGE_SIDE = 8, 16
_QUERY_IMAGES = 1000
_PCA_SAMPLE = 100_000
_CHUNK = 50_000

Cut: TypeAlias = Callable[[int, int], NDArray[np.uint8]]
"""From i and j to the patches i..j-1."""


def build_cifar10_patches() -> Stored:
    """Build the recipe for patches of 59,000 images as base and of 1,000 others as queries, after PCA."""
    folder = "cifar10-patches.v1"

    def make(root: Path) -> None:
        images = read_array(CIFAR10.fetch(root) / "images.npy")
        store(root / folder, lambda work: write_patches(work, images, N_BASE, N_QUERIES, _QUERY_IMAGES))

    return Stored(folder, make, _arrange)


def build_large_patches() -> Stored:
    """Build the recipe for the pixels of a million patches of 16 x 16, which are stored as uint8."""
    folder = "cifar10-patches-768.v1"

    def make(root: Path) -> None:
        images = read_array(CIFAR10.fetch(root) / "images.npy")
        store(root / folder, lambda work: write_pixels(work, images, N_LARGE, N_QUERIES, _QUERY_IMAGES))

    return Stored(folder, make, _arrange)


def _arrange(folder: Path) -> Arrays:
    return {part: read_array(folder / f"{part}.npy", mmap=True) for part in ("base", "queries")}


def write_patches(
    folder: Path, images: NDArray[np.uint8], n_base: int, n_queries: int, n_query_images: int
) -> None:
    """Write ``base.npy`` (n_base, 128) and ``queries.npy`` (n_queries, 128), a chunk at a time.

    Positions are distinct, and base and queries come from different images.
    """
    base, queries = _choose_both(images, _SIDE, n_base, n_queries, n_query_images)
    project = _fit_pca(base(0, _PCA_SAMPLE).astype(np.float32))
    for name, cut, count in (("base", base, n_base), ("queries", queries, n_queries)):
        out = open_memmap(folder / f"{name}.npy", mode="w+", dtype=np.float32, shape=(count, N_FEATURES))
        for start, patches in _cut_all(cut, count, name):
            out[start : start + len(patches)] = project(patches.astype(np.float32))
        out.flush()


def write_pixels(
    folder: Path, images: NDArray[np.uint8], n_base: int, n_queries: int, n_query_images: int
) -> None:
    """Write ``base.npy`` (n_base, 768) and ``queries.npy`` (n_queries, 768), a chunk at a time.

    Positions are distinct, and base and queries come from different images.
    """
    base, queries = _choose_both(images, _LARGE_SIDE, n_base, n_queries, n_query_images)
    for name, cut, count in (("base", base, n_base), ("queries", queries, n_queries)):
        shape = (count, 3 * _LARGE_SIDE**2)
        out = open_memmap(folder / f"{name}.npy", mode="w+", dtype=np.uint8, shape=shape)
        for start, patches in _cut_all(cut, count, name):
            out[start : start + len(patches)] = patches
        out.flush()


def _cut_all(cut: Cut, count: int, name: str) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield chunks of patches, each with the number of its first."""
    for start in track_progress(range(0, count, _CHUNK), f"patches, {name}", "block"):
        yield start, cut(start, min(start + _CHUNK, count))


def _choose_both(
    images: NDArray[np.uint8], side: int, n_base: int, n_queries: int, n_query_images: int
) -> tuple[Cut, Cut]:
    """Choose patches of the base, and patches of other images as queries."""
    order = permute(len(images))
    base = _choose_patches(images[order[n_query_images:]], side, n_base)
    return base, _choose_patches(images[order[:n_query_images]], side, n_queries)


def _choose_patches(images: NDArray[np.uint8], side: int, count: int) -> Cut:
    """Choose ``count`` random positions; return a function that cuts patches i..j-1, (j - i, 3 * side²)."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (side, side), axis=(1, 2))
    positions = permute(int(np.prod(windows.shape[:3])))[:count]

    def cut(start: int, stop: int) -> NDArray[np.uint8]:
        image, y, x = np.unravel_index(positions[start:stop], windows.shape[:3])
        return windows[image, y, x].reshape(len(image), -1)

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
