"""Data sets, and the registry that describes, fetches and loads them by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posh._runtime import load_plugins, suggest_plugins
from posh.datasets._fetch import data_dir
from posh.datasets._recipes import DIGITS_RECIPE, GLOVE_RECIPE, MNIST_RECIPE, Recipe
from posh.files import SUFFIXES, read_vectors

__all__ = ["Dataset", "Entry", "Floats", "Info", "catalogue", "fetch", "is_cached", "load", "names"]

Floats: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]
Names: TypeAlias = NDArray[np.str_]

_GROUP = "posh.datasets"  # entry points of this group are dictionaries from names to entries


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Vectors to search in, vectors to search for, and their labels or names.

    All arrays are read-only. The base is in a random order that never changes, so that its first
    rows are a fair sample, and breaking ties by position favours no class.

    Attributes
    ----------
    name : the name of the data set.
    base : float32 (n, d), the vectors to search in.
    queries : float32 (m, d), the vectors to search for; none of them is a row of the base.
    base_labels : int64 (n,), the class of each base vector, or None.
    query_labels : int64 (m,), the class of each query, or None.
    base_names : str (n,), the meaning of each base vector (e.g. a word), or None.
    query_names : str (m,), the meaning of each query, or None.
    description : content and origin of the vectors, in one sentence.

    Examples
    --------
    >>> import numpy as np
    >>> from posh.datasets import Dataset
    >>> Dataset("toy", np.eye(4)[:3], np.eye(4)[3:])
    Dataset('toy', base=(3, 4), queries=(1, 4))

    """

    name: str
    base: Floats
    queries: Floats
    base_labels: Labels | None = None
    query_labels: Labels | None = None
    base_names: Names | None = None
    query_names: Names | None = None
    description: str = ""

    def __post_init__(self) -> None:
        for side in ("base", "queries"):
            self._freeze(side, np.float32, 2)
        if self.base.shape[1] != self.queries.shape[1]:
            raise ValueError(
                f"{self.name}: expected base and queries of the same width, got "
                f"{self.base.shape[1]} features in base and {self.queries.shape[1]} in queries"
            )
        for kind, dtype in (("labels", np.int64), ("names", np.str_)):
            self._freeze_pair(f"base_{kind}", f"query_{kind}", dtype)

    def head(self, n_base: int) -> Dataset:
        """Return a copy with only the first ``n_base`` vectors of the base.

        Examples
        --------
        >>> from posh.datasets import load
        >>> load("digits").head(100).base.shape
        (100, 64)

        """
        if not 1 <= n_base <= len(self.base):
            raise ValueError(f"{self.name}: n_base must be in 1..{len(self.base)}, got {n_base}")
        labels = None if self.base_labels is None else self.base_labels[:n_base]
        names = None if self.base_names is None else self.base_names[:n_base]
        return replace(self, base=self.base[:n_base], base_labels=labels, base_names=names)

    def __repr__(self) -> str:
        parts = [repr(self.name), f"base={self.base.shape}", f"queries={self.queries.shape}"]
        if self.base_labels is not None:
            parts.append(f"classes={np.unique(self.base_labels).size}")
        if self.base_names is not None:
            parts.append("named")
        return f"Dataset({', '.join(parts)})"

    def _freeze(self, field: str, dtype: Any, ndim: int) -> None:
        array = np.asarray(getattr(self, field), dtype=dtype).view()
        if array.ndim != ndim:
            raise ValueError(f"{self.name}: {field} must be {ndim}-D, got shape {array.shape}")
        array.flags.writeable = False
        object.__setattr__(self, field, array)

    def _freeze_pair(self, base_field: str, query_field: str, dtype: Any) -> None:
        is_set = [getattr(self, field) is not None for field in (base_field, query_field)]
        if not any(is_set):
            return
        if not all(is_set):
            raise ValueError(f"{self.name}: expected both {base_field} and {query_field} or neither, got one")
        for field, rows in ((base_field, len(self.base)), (query_field, len(self.queries))):
            self._freeze(field, dtype, 1)
            if len(getattr(self, field)) != rows:
                raise ValueError(
                    f"{self.name}: expected one of {field} per vector, {rows}, "
                    f"got {len(getattr(self, field))}"
                )


# Registry -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Info:
    """A description of a data set that is not loaded.

    Attributes
    ----------
    name : the name to pass to ``load``.
    n_base : number of base vectors; None if it depends on the user's files.
    n_queries : number of queries; None if it depends on the user's files.
    n_features : width of both.
    labelled : whether the vectors have classes.
    description : content and origin of the vectors.
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
    """A registered data set: its shape, its origin, and its recipe."""

    n_base: int | None
    n_queries: int | None
    n_features: int
    labelled: bool
    description: str
    recipe: Recipe


_ENTRIES: dict[str, Entry] = {
    "digits": Entry(
        1597, 200, 64, True, "8 x 8 pixels of handwritten digits, from scikit-learn", DIGITS_RECIPE
    ),
    "mnist": Entry(
        69_000, 1000, 784, True, "28 x 28 pixels (0..255) of handwritten digits, from MNIST", MNIST_RECIPE
    ),
    "glove-100": Entry(
        340_479, 1000, 100, False, "GloVe 6B vectors of English words, as in winkNLP", GLOVE_RECIPE
    ),
}


def names() -> tuple[str, ...]:
    """Return the names of all data sets, including those that other distributions add.

    Examples
    --------
    >>> from posh.datasets import names
    >>> "mnist" in names()
    True

    """
    return tuple(_list_entries())


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
            cached=is_cached(name, root),
        )
        for name, entry in _list_entries().items()
    )


def is_cached(name: str, root: str | Path | None = None) -> bool:
    """Whether ``load(name, root)`` needs neither network nor computation.

    Examples
    --------
    >>> from posh.datasets import is_cached
    >>> is_cached("digits")
    True

    """
    return _find_entry(name).recipe.is_ready(data_dir(root))


def fetch(name: str, root: str | Path | None = None) -> None:
    """Fetch and compute a data set unless it is in the data folder already.

    Raises
    ------
    DataUnavailableError : no source could be reached, or files that only the user can provide are missing.

    Examples
    --------
    >>> from posh.datasets import fetch
    >>> fetch("digits")

    """
    _find_entry(name).recipe.prepare(data_dir(root))


def load(name: str | Path, root: str | Path | None = None, *, n_base: int | None = None) -> Dataset:
    """Load a data set by name, fetching it the first time, or from a file of ann-benchmarks.

    Parameters
    ----------
    name
        One of ``names()``, or the path of a file with the arrays ``train`` (the base) and ``test`` (the
        queries), such as the HDF5 files of ann-benchmarks.
    root
        The data folder, by default ``data_dir()``.
    n_base
        Number of base vectors to keep, the first of the fixed random order; by default all.

    Returns
    -------
    The vectors, float32 (n, d) and (m, d), and their labels or names if they have any.

    Examples
    --------
    >>> from posh.datasets import load
    >>> load("digits")
    Dataset('digits', base=(1597, 64), queries=(200, 64), classes=10)
    >>> load("sift-128-euclidean.hdf5")  # doctest: +SKIP
    Dataset('sift-128-euclidean', base=(1000000, 128), queries=(10000, 128))

    """
    if isinstance(name, Path) or Path(name).suffix.lower() in SUFFIXES:
        dataset = _load_file(Path(name))
    else:
        entry = _find_entry(name)
        fetch(name, root)
        dataset = Dataset(name, description=entry.description, **entry.recipe.read(data_dir(root)))
    return dataset if n_base is None else dataset.head(n_base)


def _load_file(path: Path) -> Dataset:
    base, queries = (read_vectors(path, key) for key in ("train", "test"))
    return Dataset(path.stem, base, queries, description=f"the vectors of {path.name}")


def _find_entry(name: str) -> Entry:
    """Return the entry of a name; entry points are loaded only for a name that is not built in."""
    entry = _ENTRIES.get(name) or _list_entries().get(name)
    if entry is None:
        raise ValueError(
            f"unknown data set {name!r}; choose from {', '.join(_list_entries())}{suggest_plugins(_GROUP)}"
        )
    return entry


def _list_entries() -> dict[str, Entry]:
    """Return all entries; built-in entries take precedence over plugins of the same name."""
    others = {name: entry for added in load_plugins(_GROUP).values() for name, entry in added.items()}
    return _ENTRIES | others | _ENTRIES
