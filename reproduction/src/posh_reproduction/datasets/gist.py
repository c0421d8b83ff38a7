"""Data sets of GIST features. Computing them takes minutes, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from posh.datasets._fetch import Arrays, read_array, store, write_arrays
from posh.datasets._recipes import MNIST, Stored, divide, split_by_class
from posh_reproduction.datasets.cifar10 import CIFAR10
from posh_reproduction.datasets.gist_features import compute_gist

__all__ = ["INTERPOLATIONS", "build_cifar10_gist", "build_mnist_gist", "compute_digits_gist"]

INTERPOLATIONS = ("nearest", "bilinear", "bicubic")
_IMAGES = 4096  # images enlarged at a time, which bounds the memory


def build_mnist_gist(side: int | None = None) -> Stored:
    """Build the recipe for GIST of MNIST, enlarged to ``side`` pixels: a tenth of each class is queries."""
    folder = "mnist-gist.v1" if side is None else f"mnist-gist-{side}.v1"

    def make(root: Path) -> None:
        raw = MNIST.fetch(root)
        features = compute_digits_gist(read_array(raw / "images.npy"), side)
        _store_features(root / folder, features, read_array(raw / "labels.npy"))

    return Stored(folder, make, _arrange_features)


def compute_digits_gist(
    images: NDArray[Any], side: int | None = None, interpolation: str = "bicubic", pad: int = 16
) -> NDArray[np.float32]:
    """Return GIST features (n, 512) of digits (n, 28, 28), enlarged to ``side`` pixels by an interpolation.

    Without ``side``, they get a margin instead: digits touch the frame of 28 x 28, and the cells of a grid
    over 32 x 32 are equal. ``pad`` is that of :func:`~posh_reproduction.datasets.gist_features.compute_gist`.

    >>> compute_digits_gist(np.zeros((2, 28, 28), np.uint8), 56).shape
    (2, 512)
    """
    if side is None:
        return compute_gist(np.pad(images, ((0, 0), (2, 2), (2, 2))), pad=pad)
    how = Image.Resampling[interpolation.upper()]
    parts = []
    for start in range(0, len(images), _IMAGES):
        some = images[start : start + _IMAGES]
        larger = np.stack([np.asarray(Image.fromarray(image).resize((side, side), how)) for image in some])
        parts.append(compute_gist(larger, pad=pad))
    return np.concatenate(parts)


def build_cifar10_gist() -> Stored:
    """Build the recipe for GIST of CIFAR-10: a tenth of each class is queries."""

    def make(root: Path) -> None:
        raw = CIFAR10.fetch(root)
        features = compute_gist(read_array(raw / "images.npy"))
        _store_features(root / "cifar10-gist.v1", features, read_array(raw / "labels.npy"))

    return Stored("cifar10-gist.v1", make, _arrange_features)


def _store_features(folder: Path, features: NDArray[Any], labels: NDArray[Any]) -> None:
    store(folder, lambda work: write_arrays(work, {"features": features, "labels": labels}))


def _arrange_features(folder: Path) -> Arrays:
    labels = read_array(folder / "labels.npy")
    features = read_array(folder / "features.npy", mmap=True)
    # KNNH's division: a tenth of each class, rounded down, hence 6,996 queries of MNIST.
    return divide(features, labels, split_by_class(labels, np.bincount(labels) // 10))
