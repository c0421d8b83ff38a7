"""How each set is made from its raw data and divided into base and queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from posh.datasets._cache import Arrays, is_stored, read_array, store, write_arrays
from posh.datasets._gist import gist
from posh.datasets._sources import CIFAR10, GLOVE, MNIST
from posh.datasets._split import Split, split_at_random, split_by_class

__all__ = ["Digits", "Recipe", "Stored", "cifar10_gist", "glove", "mnist", "mnist_gist"]


class Recipe(Protocol):
    """What the registry asks of a set; ``root`` is the data folder."""

    def is_ready(self, root: Path) -> bool:
        """Whether ``read`` would succeed without network and computation."""

    def prepare(self, root: Path) -> None:
        """Make the set ready."""

    def read(self, root: Path) -> Arrays:
        """Return the array fields of a Dataset."""


@dataclass(frozen=True)
class Digits:
    """The digits that come with scikit-learn: 20 queries per class."""

    def is_ready(self, root: Path) -> bool:
        """Return True: nothing has to be fetched."""
        return True

    def prepare(self, root: Path) -> None:
        """Do nothing."""

    def read(self, root: Path) -> Arrays:
        """Return base, queries and labels."""
        vectors, labels = load_digits(return_X_y=True)
        return _divide(vectors, labels, split_by_class(labels, np.full(10, 20)))


@dataclass(frozen=True)
class Stored:
    """A set kept as arrays in one sub-folder of the data folder."""

    folder: str
    make: Callable[[Path], object]
    arrange: Callable[[Path], Arrays]

    def is_ready(self, root: Path) -> bool:
        """Whether the sub-folder is complete."""
        return is_stored(root / self.folder)

    def prepare(self, root: Path) -> None:
        """Fetch and compute what is missing."""
        if not self.is_ready(root):
            self.make(root)

    def read(self, root: Path) -> Arrays:
        """Return the arrays in the fixed order of base and queries."""
        return self.arrange(root / self.folder)


def mnist() -> Stored:
    """Pixels of MNIST: 100 queries per class."""

    def arrange(folder: Path) -> Arrays:
        labels = read_array(folder / "labels.npy")
        pixels = read_array(folder / "images.npy", mmap=True).reshape(len(labels), -1)
        return _divide(pixels, labels, split_by_class(labels, np.full(10, 100)))

    return Stored(MNIST.folder, MNIST.fetch, arrange)


def mnist_gist() -> Stored:
    """GIST of MNIST: every tenth of a class is queries."""

    def make(root: Path) -> None:
        raw = MNIST.fetch(root)
        # The digits touch the frame of 28 x 28; 32 x 32 gives them a margin and the grid even cells.
        images = np.pad(read_array(raw / "images.npy"), ((0, 0), (2, 2), (2, 2)))
        _store_features(root / "mnist-gist.v1", gist(images), read_array(raw / "labels.npy"))

    return Stored("mnist-gist.v1", make, _arrange_features)


def cifar10_gist() -> Stored:
    """GIST of CIFAR-10: every tenth of a class is queries."""

    def make(root: Path) -> None:
        raw = CIFAR10.fetch(root)
        features = gist(read_array(raw / "images.npy"))
        _store_features(root / "cifar10-gist.v1", features, read_array(raw / "labels.npy"))

    return Stored("cifar10-gist.v1", make, _arrange_features)


def glove() -> Stored:
    """Word vectors: 1,000 words at random are queries."""

    def arrange(folder: Path) -> Arrays:
        vectors = read_array(folder / "vectors.npy", mmap=True)
        words = read_array(folder / "words.npy", mmap=True)
        split = split_at_random(len(vectors), 1000)
        return {
            "base": vectors[split.base],
            "queries": vectors[split.queries],
            "base_names": words[split.base],
            "query_names": words[split.queries],
        }

    return Stored(GLOVE.folder, GLOVE.fetch, arrange)


def _store_features(folder: Path, features: NDArray[Any], labels: NDArray[Any]) -> None:
    store(folder, lambda work: write_arrays(work, {"features": features, "labels": labels}))


def _arrange_features(folder: Path) -> Arrays:
    labels = read_array(folder / "labels.npy")
    features = read_array(folder / "features.npy", mmap=True)
    # KNNH's division: a tenth of each class, rounded down, hence 6,996 queries of MNIST.
    return _divide(features, labels, split_by_class(labels, np.bincount(labels) // 10))


def _divide(vectors: NDArray[Any], labels: NDArray[Any], split: Split) -> Arrays:
    return {
        "base": vectors[split.base],
        "queries": vectors[split.queries],
        "base_labels": labels[split.base],
        "query_labels": labels[split.queries],
    }
