"""The sets by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from posh.datasets import _knnh, _patches, _recipes
from posh.datasets._cache import data_dir
from posh.datasets._dataset import Dataset
from posh.datasets._recipes import Recipe

__all__ = ["Info", "cached", "catalogue", "fetch", "load", "names"]


@dataclass(frozen=True)
class Info:
    """What is known of a set before it is loaded; None where only its files can tell.

    Attributes:
        name: what to pass to ``load``.
        n_base: number of base vectors.
        n_queries: number of queries.
        n_features: width of both.
        labelled: whether the vectors have classes.
        description: what the vectors are and where they come from.
        cached: whether ``load`` needs neither network nor computation.

    """

    name: str
    n_base: int | None
    n_queries: int | None
    n_features: int
    labelled: bool
    description: str
    cached: bool


@dataclass(frozen=True)
class _Entry:
    n_base: int | None
    n_queries: int | None
    n_features: int
    labelled: bool
    description: str
    recipe: Recipe


def _from_knnh(n_features: int, content: str, recipe: Recipe) -> _Entry:
    return _Entry(None, None, n_features, True, f"{content}, from the authors of KNNH", recipe)


_ENTRIES: dict[str, _Entry] = {
    "digits": _Entry(
        1597, 200, 64, True, "8 x 8 pixels of handwritten digits, from scikit-learn", _recipes.Digits()
    ),
    "mnist": _Entry(
        69_000, 1000, 784, True, "28 x 28 pixels (0..255) of handwritten digits, from MNIST", _recipes.mnist()
    ),
    "mnist-gist": _Entry(
        63_004, 6996, 512, True, "our GIST features of the MNIST images", _recipes.mnist_gist()
    ),
    "cifar10-gist": _Entry(
        54_000, 6000, 512, True, "our GIST features of the CIFAR-10 images", _recipes.cifar10_gist()
    ),
    "glove-100": _Entry(
        340_479, 1000, 100, False, "GloVe 6B vectors of English words, as in winkNLP", _recipes.glove()
    ),
    "cifar10-patches": _Entry(
        _patches.N_BASE,
        _patches.N_QUERIES,
        _patches.N_FEATURES,
        False,
        "8 x 8 colour patches of the CIFAR-10 images, reduced by PCA",
        _patches.cifar10_patches(),
    ),
    "mnist-gist-knnh": _from_knnh(512, "GIST of MNIST", _knnh.train_and_test("mnist_gist512")),
    "cifar10-gist-knnh": _from_knnh(512, "GIST of CIFAR-10", _knnh.train_and_test("cifar10_gist512")),
    "cifar10-vgg": _from_knnh(4096, "VGG fc7 of CIFAR-10", _knnh.train_and_test("cifar10_vggfc7")),
    "labelme-gist": _from_knnh(512, "GIST of LabelMe", _knnh.train_and_test("labelme_gist512")),
    "labelme-vgg": _from_knnh(4096, "VGG fc7 of LabelMe", _knnh.train_and_test("labelme_vggfc7")),
    "places205": _from_knnh(128, "features of Places205", _knnh.places205()),
}


def names() -> tuple[str, ...]:
    """Return the names that ``load`` knows.

    Example:
        >>> from posh.datasets import names
        >>> "mnist" in names()
        True

    """
    return tuple(_ENTRIES)


def catalogue(root: str | Path | None = None) -> tuple[Info, ...]:
    """Describe every set: shape, origin and whether it is in the data folder ``root``.

    Example:
        >>> from posh.datasets import catalogue
        >>> info = catalogue()[0]
        >>> info.name, info.n_base, info.n_features, info.cached
        ('digits', 1597, 64, True)

    """
    return tuple(
        Info(
            name=name,
            n_base=entry.n_base,
            n_queries=entry.n_queries,
            n_features=entry.n_features,
            labelled=entry.labelled,
            description=entry.description,
            cached=cached(name, root),
        )
        for name, entry in _ENTRIES.items()
    )


def cached(name: str, root: str | Path | None = None) -> bool:
    """Whether ``load(name, root)`` needs neither network nor computation.

    Example:
        >>> from posh.datasets import cached
        >>> cached("digits")
        True

    """
    return _entry(name).recipe.is_ready(data_dir(root))


def fetch(name: str, root: str | Path | None = None) -> None:
    """Make sure that the set is in the data folder, fetching and computing it if need be.

    Raises:
        DataUnavailableError: no source could be reached, or files that only you can get are missing.

    Example:
        >>> from posh.datasets import fetch
        >>> fetch("digits")

    """
    _entry(name).recipe.prepare(data_dir(root))


def load(name: str, root: str | Path | None = None, *, n_base: int | None = None) -> Dataset:
    """Load a set by name, fetching it the first time.

    Args:
        name: one of ``names()``.
        root: the data folder, by default ``data_dir()``.
        n_base: how many base vectors to keep, the first of the fixed random order; by default all.

    Returns:
        The vectors, float32 (n, d) and (m, d), and their labels or names where there are any.

    Example:
        >>> from posh.datasets import load
        >>> load("digits")
        Dataset('digits', base=(1597, 64), queries=(200, 64), classes=10)

    """
    entry = _entry(name)
    fetch(name, root)
    dataset = Dataset(name, description=entry.description, **entry.recipe.read(data_dir(root)))
    return dataset if n_base is None else dataset.head(n_base)


def _entry(name: str) -> _Entry:
    try:
        return _ENTRIES[name]
    except KeyError:
        raise ValueError(f"unknown data set {name!r}; choose from {', '.join(_ENTRIES)}") from None
