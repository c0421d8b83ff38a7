"""How each data set is made from its raw data and divided into base and queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from posh.datasets._cache import Arrays, is_stored, read_array
from posh.datasets._sources import GLOVE, MNIST
from posh.datasets._split import Split, split_at_random, split_by_class

__all__ = ["Digits", "Recipe", "Stored", "divide", "glove", "mnist"]


class Recipe(Protocol):
    """What the registry needs of a data set; ``root`` is the data folder."""

    def is_ready(self, root: Path) -> bool:
        """Whether ``read`` would succeed without network and computation."""

    def prepare(self, root: Path) -> None:
        """Fetch and compute what ``read`` needs."""

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
        from sklearn.datasets import load_digits  # slow to import, and only needed here

        vectors, labels = load_digits(return_X_y=True)
        return divide(vectors, labels, split_by_class(labels, np.full(10, 20)))


@dataclass(frozen=True)
class Stored:
    """A data set kept as arrays in one sub-folder of the data folder."""

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
        return divide(pixels, labels, split_by_class(labels, np.full(10, 100)))

    return Stored(MNIST.folder, MNIST.fetch, arrange)


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


def divide(vectors: NDArray[Any], labels: NDArray[Any], split: Split) -> Arrays:
    """Return base, queries and labels: vectors (n, d) and labels (n,) in the order of a split."""
    return {
        "base": vectors[split.base],
        "queries": vectors[split.queries],
        "base_labels": labels[split.base],
        "query_labels": labels[split.queries],
    }
