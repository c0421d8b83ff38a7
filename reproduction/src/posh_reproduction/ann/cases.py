"""The data of the comparison: a base, queries to choose parameters with, other queries to report.

For the metric "cosine" all vectors have unit length. Patches are turned at random: distances stay as they
are, but product quantization, which cuts vectors along their axes, does badly on principal components.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from posh import datasets, metrics
from posh.datasets._fetch import is_stored, read_array, store, write_arrays
from posh.datasets._registry import Floats
from posh.index.brute_force import measure_distances, measure_true_distances
from posh.preprocess import normalize_rows
from posh_reproduction.experiments.guard import in_base

__all__ = ["CASES", "DEPTH", "HALVES", "Case", "Prepared", "case_of"]

HALVES = ("choose", "report")
"""Parameters are chosen on the first half of the queries; the second is reported."""

DEPTH = 100  # true neighbours that are kept
_METRICS = ("cosine", "euclidean")
_HALF = 1000  # queries in each half
_SMALLEST = 10  # both halves together have at most one vector in ten


@dataclass(frozen=True)
class Case:
    """A data set, how much of it, and the metric."""

    name: str
    data: str
    metric: str
    n_base: int | None = None
    turned: bool = False

    def prepared(self) -> Prepared:
        """Load the data and the true neighbours; computed once, then read from the data folder."""
        data = datasets.load(self.data)
        base, queries = _divided(data.base, data.queries, self.n_base)
        base, queries = self._arranged(base), self._arranged(queries)
        middle = len(queries) // 2
        halves = dict(zip(HALVES, (queries[:middle], queries[middle:]), strict=True))
        content = _content(base, queries)
        true = {half: _true(base, asked, f"{content}-{half}") for half, asked in halves.items()}
        return Prepared(self, base, halves, true, content)

    def _arranged(self, X: Floats) -> Floats:
        """Copy vectors (n, d) as every contender gets them."""
        if self.turned:
            X = X @ _rotation(X.shape[1])
        return np.ascontiguousarray(normalize_rows(X) if self.metric == "cosine" else X, np.float32)


@dataclass(frozen=True)
class Prepared:
    """The vectors of a case (n, d), the two halves of its queries (m, d) and their true neighbours."""

    case: Case
    base: Floats
    queries: dict[str, Floats]
    true: dict[str, np.ndarray]  # half: distances (m, DEPTH), nearest first
    content: str

    def recall(self, half: str, ids: np.ndarray, k: int) -> float:
        """Share of the true k nearest among ids (m, k); an id that comes twice counts once, -1 never."""
        order = np.sort(np.asarray(ids, np.int64)[:, :k], axis=1)
        order[:, 1:][order[:, 1:] == order[:, :-1]] = -1
        # Unit vectors are ordered alike by cosine and by distance.
        found = measure_distances(self.base, self.queries[half], order, "euclidean")
        return float(metrics.recall_by_distance(found, self.true[half][:, :k]).mean())


_TABLE = (
    Case("glove-100", "glove-100", "cosine"),
    Case("wordnet-minilm", "wordnet-minilm", "cosine"),
    Case("wordnet-ood", "wordnet-ood", "cosine"),
    Case("mnist", "mnist", "euclidean"),
    Case("cifar10-patches-1m", "cifar10-patches", "euclidean", 1_000_000, turned=True),
    Case("cifar10-patches-768", "cifar10-patches-768", "euclidean"),
    Case("cifar10-patches", "cifar10-patches", "euclidean", turned=True),
)
CASES = {case.name: case for case in _TABLE}


def case_of(name: str, metric: str | None = None, n_base: int | None = None) -> Case:
    """The case of a name, or one made of any data set, with another metric or the first vectors only.

    >>> case_of("digits")
    Case(name='digits', data='digits', metric='euclidean', n_base=None, turned=False)
    """
    if name not in CASES and name not in datasets.names():
        raise ValueError(
            f"unknown data {name!r}; choose from {', '.join(CASES)} or the data sets of 'posh data list'"
        )
    case = CASES.get(name) or Case(name, name, "euclidean")
    if metric is not None and metric not in _METRICS:
        raise ValueError(f"expected a metric of {', '.join(_METRICS)}, got {metric!r}")
    return replace(case, metric=metric or case.metric, n_base=n_base or case.n_base)


def _divided(base: Floats, queries: Floats, n_base: int | None) -> tuple[Floats, Floats]:
    """Base and queries: if there are too few queries, the last vectors of the base are queries too.

    The base is in random order, so its last vectors are a fair sample. Queries that are also in the base are
    left out.
    """
    base = base[:n_base]
    wanted = 2 * min(_HALF, (len(base) + len(queries)) // (2 * _SMALLEST))
    missing = max(0, wanted - len(queries))
    if missing:
        base, queries = base[:-missing], np.concatenate([queries, base[-missing:]])
    queries = queries[:wanted]
    return base, queries[~in_base(datasets.Dataset("queries", base, queries))]


def _rotation(d: int) -> Floats:
    """A random orthogonal matrix (d, d), always the same."""
    return np.linalg.qr(np.random.default_rng(0).standard_normal((d, d)))[0].astype(np.float32)


def _content(*arrays: Floats) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()[:24]


def _true(base: Floats, queries: Floats, content: str) -> np.ndarray:
    """Distances (m, DEPTH) of the nearest, from the data folder if they are there."""
    folder = datasets.data_dir() / f"true-neighbours-{DEPTH}.v1" / content
    if not is_stored(folder):
        found = measure_true_distances(base, queries, min(DEPTH, len(base)), "euclidean")
        store(folder, lambda work: write_arrays(work, {"distances": found}))
    return read_array(folder / "distances.npy")
