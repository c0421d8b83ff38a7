"""The data sets of GIST features; the first use computes them, which takes minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posh.datasets._cache import Arrays, read_array, store, write_arrays
from posh.datasets._recipes import Stored, divide
from posh.datasets._sources import MNIST
from posh.datasets._split import split_by_class
from posh_reproduction.datasets.cifar10 import CIFAR10
from posh_reproduction.datasets.gist_features import gist

__all__ = ["cifar10_gist", "mnist_gist"]


def mnist_gist() -> Stored:
    """GIST of MNIST: a tenth of each class is queries."""

    def make(root: Path) -> None:
        raw = MNIST.fetch(root)
        # The digits touch the frame of 28 x 28; 32 x 32 gives them a margin and the grid even cells.
        images = np.pad(read_array(raw / "images.npy"), ((0, 0), (2, 2), (2, 2)))
        _store_features(root / "mnist-gist.v1", gist(images), read_array(raw / "labels.npy"))

    return Stored("mnist-gist.v1", make, _arrange_features)


def cifar10_gist() -> Stored:
    """GIST of CIFAR-10: a tenth of each class is queries."""

    def make(root: Path) -> None:
        raw = CIFAR10.fetch(root)
        features = gist(read_array(raw / "images.npy"))
        _store_features(root / "cifar10-gist.v1", features, read_array(raw / "labels.npy"))

    return Stored("cifar10-gist.v1", make, _arrange_features)


def _store_features(folder: Path, features: NDArray[Any], labels: NDArray[Any]) -> None:
    store(folder, lambda work: write_arrays(work, {"features": features, "labels": labels}))


def _arrange_features(folder: Path) -> Arrays:
    labels = read_array(folder / "labels.npy")
    features = read_array(folder / "features.npy", mmap=True)
    # KNNH's division: a tenth of each class, rounded down, hence 6,996 queries of MNIST.
    return divide(features, labels, split_by_class(labels, np.bincount(labels) // 10))
