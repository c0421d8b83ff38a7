"""The data sets by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from posh._plugins import hint, plugins
from posh.datasets import _recipes
from posh.datasets._cache import data_dir
from posh.datasets._dataset import Dataset
from posh.datasets._recipes import Recipe

__all__ = ["Entry", "Info", "cached", "catalogue", "fetch", "load", "names"]

_GROUP = "posh.datasets"  # entry points of this group are dictionaries from names to entries


@dataclass(frozen=True)
class Info:
    """What is known of a data set before it is loaded; None where only its files can tell.

    Attributes
    ----------
    name : what to pass to ``load``.
    n_base : number of base vectors.
    n_queries : number of queries.
    n_features : width of both.
    labelled : whether the vectors have classes.
    description : what the vectors are and where they come from.
    cached : whether ``load`` needs neither network nor computation.

    """

    name: str
    n_base: int | None
    n_queries: int | None
    n_features: int
    labelled: bool
    description: str
    cached: bool


@dataclass(frozen=True)
class Entry:
    """A data set that can be loaded: its shape, its origin, and the recipe that makes it."""

    n_base: int | None
    n_queries: int | None
    n_features: int
    labelled: bool
    description: str
    recipe: Recipe


_ENTRIES: dict[str, Entry] = {
    "digits": Entry(
        1597, 200, 64, True, "8 x 8 pixels of handwritten digits, from scikit-learn", _recipes.Digits()
    ),
    "mnist": Entry(
        69_000, 1000, 784, True, "28 x 28 pixels (0..255) of handwritten digits, from MNIST", _recipes.mnist()
    ),
    "glove-100": Entry(
        340_479, 1000, 100, False, "GloVe 6B vectors of English words, as in winkNLP", _recipes.glove()
    ),
}


def names() -> tuple[str, ...]:
    """Return the names that ``load`` knows, with those that other distributions add.

    Examples
    --------
    >>> from posh.datasets import names
    >>> "mnist" in names()
    True

    """
    return tuple(_entries())


def catalogue(root: str | Path | None = None) -> tuple[Info, ...]:
    """Describe every data set: shape, origin and whether it is in the data folder ``root``.

    Examples
    --------
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
        for name, entry in _entries().items()
    )


def cached(name: str, root: str | Path | None = None) -> bool:
    """Whether ``load(name, root)`` needs neither network nor computation.

    Examples
    --------
    >>> from posh.datasets import cached
    >>> cached("digits")
    True

    """
    return _entry(name).recipe.is_ready(data_dir(root))


def fetch(name: str, root: str | Path | None = None) -> None:
    """Make sure that a data set is in the data folder; fetch and compute it if it is not.

    Raises
    ------
    DataUnavailableError : no source could be reached, or files that only you can get are missing.

    Examples
    --------
    >>> from posh.datasets import fetch
    >>> fetch("digits")

    """
    _entry(name).recipe.prepare(data_dir(root))


def load(name: str, root: str | Path | None = None, *, n_base: int | None = None) -> Dataset:
    """Load a data set by name; the first time, fetch it.

    Parameters
    ----------
    name
        One of ``names()``.
    root
        The data folder, by default ``data_dir()``.
    n_base
        How many base vectors to keep, the first of the fixed random order; by default all.

    Returns
    -------
    The vectors, float32 (n, d) and (m, d), and their labels or names where there are any.

    Examples
    --------
    >>> from posh.datasets import load
    >>> load("digits")
    Dataset('digits', base=(1597, 64), queries=(200, 64), classes=10)

    """
    entry = _entry(name)
    fetch(name, root)
    dataset = Dataset(name, description=entry.description, **entry.recipe.read(data_dir(root)))
    return dataset if n_base is None else dataset.head(n_base)


def _entry(name: str) -> Entry:
    """The entry of a name; other distributions are asked only for a name that is not ours."""
    entry = _ENTRIES.get(name) or _entries().get(name)
    if entry is None:
        raise ValueError(f"unknown data set {name!r}; choose from {', '.join(_entries())}{hint(_GROUP)}")
    return entry


def _entries() -> dict[str, Entry]:
    """All entries; one of ours wins over one of the same name from another distribution."""
    others = {name: entry for added in plugins(_GROUP).values() for name, entry in added.items()}
    return _ENTRIES | others | _ENTRIES
