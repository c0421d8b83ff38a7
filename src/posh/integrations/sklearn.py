"""Neighbours for scikit-learn: transformers from vectors to the graph of their neighbours.

Estimators with ``metric="precomputed"`` can follow them in a pipeline.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from posh._validate import validate_choice, validate_integer, validate_real
from posh.index.nearest.index import Index

__all__ = ["KNeighborsTransformer", "RadiusNeighborsTransformer"]

MODES = ("distance", "connectivity")
METRICS = ("euclidean", "cosine")
_ROUNDING = 1e-6  # of scores in float32

Rows = npt.NDArray[np.int64]


class KNeighborsTransformer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Transformer from vectors to the graph of their nearest neighbours, found by :meth:`posh.Index.build`.

    It replaces scikit-learn's estimator of the same name. Up to 2,048 vectors are compared exactly. With
    more, a search finds the fraction ``recall`` of the true neighbours, see :meth:`posh.Index.build`. Vectors
    are compared in float32.

    Parameters
    ----------
    mode : str
        Entries of the graph: ``"distance"``, or ``"connectivity"``, which is 1 for neighbours.
    n_neighbors : int
        Neighbours of each vector. With ``mode="distance"`` :meth:`transform` returns one more, because a
        vector of the training set is its own nearest neighbour.
    metric : str
        ``"euclidean"``, or ``"cosine"``, which is 1 minus the cosine, and 1 for a zero vector.
    recall : float
        Fraction of the true nearest neighbours to find, in (0, 1].
    random_state : int, RandomState or None
        Seed for the training of the index.

    Attributes
    ----------
    index_ : posh.Index
        Index of the training set; its ids are row numbers.
    n_samples_fit_ : int
        Number of vectors in the training set.
    n_features_in_, feature_names_in_ : int, array
        Number of columns of the training set, and their names if it has any.

    Examples
    --------
    >>> from posh.integrations.sklearn import KNeighborsTransformer
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> X, y = load_digits(return_X_y=True)
    >>> graph = KNeighborsTransformer(n_neighbors=5).fit_transform(X)
    >>> graph.shape, graph.nnz // len(X)
    ((1797, 1797), 6)
    >>> model = make_pipeline(
    ...     KNeighborsTransformer(n_neighbors=5), KNeighborsClassifier(n_neighbors=5, metric="precomputed")
    ... )
    >>> bool(model.fit(X[:1500], y[:1500]).score(X[1500:], y[1500:]) > 0.95)
    True

    """

    index_: Index
    n_samples_fit_: int
    _training_set: npt.NDArray[Any]

    def __init__(
        self,
        *,
        mode: str = "distance",
        n_neighbors: int = 5,
        metric: str = "euclidean",
        recall: float = 0.95,
        random_state: Any = 0,
    ) -> None:
        self.mode = mode
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.recall = recall
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: Any = None) -> Self:
        """Index the training set (n, d); ``y`` is ignored, but scikit-learn's pipelines pass it."""
        validate_choice("mode", self.mode, MODES)
        validate_choice("metric", self.metric, METRICS)
        validate_integer("n_neighbors", self.n_neighbors, 1)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        array = _validate(self, X, reset=True)
        self.index_ = Index.build(array, metric=self.metric, recall=self.recall, random_state=seed)
        self.n_samples_fit_ = self._n_features_out = len(array)
        self._training_set = array
        return self

    def fit_transform(self, X: npt.ArrayLike, y: Any = None) -> sp.csr_matrix:
        """Fit on vectors (n, d), and return the graph (n, n) as :meth:`transform` does.

        Each vector is its own first neighbour, even if a search with this recall would miss it.
        """
        self.fit(X, y)
        n_others = self.n_neighbors - (self.mode == "connectivity")
        distances, rows = self._find_nearest(None, n_others)
        self_rows = np.arange(self.n_samples_fit_)[:, None]
        zeros = np.zeros(self_rows.shape, distances.dtype)
        return self._build_graph(np.hstack([zeros, distances]), np.hstack([self_rows, rows]), self.mode)

    def transform(self, X: npt.ArrayLike) -> sp.csr_matrix:
        """Return the graph (m, n) from vectors (m, d) to their neighbours in the training set.

        Each row has ``n_neighbors`` entries, or one more with ``mode="distance"``, the nearest first.
        """
        check_is_fitted(self)
        n_neighbors = self.n_neighbors + (self.mode == "distance")
        return self.kneighbors_graph(X, n_neighbors, self.mode)

    def kneighbors(
        self, X: npt.ArrayLike | None = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Return distances and rows of the nearest neighbours, both (m, n_neighbors), the nearest first.

        Without vectors X (m, d), the neighbours of the training set are returned, where no vector is its own
        neighbour. ``return_distance=False`` returns the rows only.
        """
        check_is_fitted(self)
        k = validate_integer("n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors, 1)
        distances, rows = self._find_nearest(None if X is None else _validate(self, X, reset=False), k)
        return (distances, rows) if return_distance else rows

    def kneighbors_graph(
        self, X: npt.ArrayLike | None = None, n_neighbors: int | None = None, mode: str = "connectivity"
    ) -> sp.csr_matrix:
        """Return the neighbours as a sparse matrix (m, n) of ones or distances, by ``mode``."""
        validate_choice("mode", mode, MODES)
        distances, rows = self.kneighbors(X, n_neighbors)
        return self._build_graph(distances, rows, mode)

    def _find_nearest(self, queries: npt.NDArray[Any] | None, k: int) -> tuple[npt.NDArray[Any], Rows]:
        """Return distances and rows (m, k) of the nearest vectors; None searches for the training set."""
        is_training_set = queries is None
        if k + is_training_set > self.n_samples_fit_:
            raise ValueError(
                f"expected n_neighbors <= {self.n_samples_fit_ - is_training_set}, because n_samples_fit = "
                f"{self.n_samples_fit_}, got {k}: request fewer neighbours, or fit on more vectors"
            )
        vectors = self._training_set if queries is None else queries
        rows, scores = self.index_.search(vectors, k + is_training_set)
        if is_training_set:
            others = _mask_others(rows)
            rows, scores = (values[others].reshape(len(rows), k) for values in (rows, scores))
        return _convert_scores(scores, self.metric, vectors.dtype), rows

    def _build_graph(self, distances: npt.NDArray[Any], rows: Rows, mode: str) -> sp.csr_matrix:
        m, k = rows.shape
        values = distances if mode == "distance" else np.ones_like(distances)
        starts = np.arange(0, m * k + 1, k)
        return sp.csr_matrix((values.ravel(), rows.ravel(), starts), shape=(m, self.n_samples_fit_))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class RadiusNeighborsTransformer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Transformer from vectors to the graph of all neighbours within a radius.

    It replaces scikit-learn's estimator of the same name, for example before ``DBSCAN`` with
    ``metric="precomputed"``. Neighbours are found by :meth:`posh.Index.search_radius`. Up to 2,048 vectors
    are compared exactly. With more, a search finds the fraction ``recall`` of the true neighbours. Vectors
    are compared in float32.

    Parameters
    ----------
    mode : str
        Entries of the graph: ``"distance"``, or ``"connectivity"``, which is 1 for neighbours.
    radius : float
        Largest distance of neighbours.
    metric : str
        ``"euclidean"``, or ``"cosine"``, which is 1 minus the cosine, and 1 for a zero vector.
    recall : float
        Fraction of the true neighbours to find, in (0, 1].
    random_state : int, RandomState or None
        Seed for the training of the index.

    Attributes
    ----------
    index_ : posh.Index
        Index of the training set; its ids are row numbers.
    n_samples_fit_ : int
        Number of vectors in the training set.
    n_features_in_, feature_names_in_ : int, array
        Number of columns of the training set, and their names if it has any.

    Examples
    --------
    >>> from posh.integrations.sklearn import RadiusNeighborsTransformer
    >>> from sklearn.cluster import DBSCAN
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(300, centers=[[0, 0], [5, 5]], cluster_std=0.5, random_state=0)
    >>> graph = RadiusNeighborsTransformer(radius=0.7).fit_transform(X)
    >>> labels = DBSCAN(eps=0.7, metric="precomputed").fit_predict(graph)
    >>> bool((labels == DBSCAN(eps=0.7).fit_predict(X)).all())
    True

    """

    index_: Index
    n_samples_fit_: int
    _training_set: npt.NDArray[Any]

    def __init__(
        self,
        *,
        mode: str = "distance",
        radius: float = 1.0,
        metric: str = "euclidean",
        recall: float = 0.95,
        random_state: Any = 0,
    ) -> None:
        self.mode = mode
        self.radius = radius
        self.metric = metric
        self.recall = recall
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: Any = None) -> Self:
        """Index the training set (n, d); ``y`` is ignored, but scikit-learn's pipelines pass it."""
        validate_choice("mode", self.mode, MODES)
        validate_choice("metric", self.metric, METRICS)
        validate_real("radius", self.radius, 0.0)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        array = _validate(self, X, reset=True)
        self.index_ = Index.build(
            array, metric=self.metric, recall=self.recall, random_state=seed, optimize="build"
        )
        self.n_samples_fit_ = self._n_features_out = len(array)
        self._training_set = array
        return self

    def fit_transform(self, X: npt.ArrayLike, y: Any = None) -> sp.csr_matrix:
        """Fit on vectors (n, d), and return the graph (n, n) as :meth:`transform` does.

        Each vector is its own first neighbour, even if a search with this recall would miss it.
        """
        self.fit(X, y)
        others = self.radius_neighbors_graph(None, mode=self.mode)
        n = self.n_samples_fit_
        values = np.insert(others.data, others.indptr[:-1], float(self.mode == "connectivity"))
        columns = np.insert(others.indices, others.indptr[:-1], np.arange(n))
        return sp.csr_matrix((values, columns, others.indptr + np.arange(n + 1)), shape=(n, n))

    def transform(self, X: npt.ArrayLike) -> sp.csr_matrix:
        """Return the graph (m, n) from vectors (m, d) to their neighbours in the training set.

        The entries of a row begin with the nearest.
        """
        check_is_fitted(self)
        return self.radius_neighbors_graph(X, mode=self.mode)

    def radius_neighbors(
        self, X: npt.ArrayLike | None = None, radius: float | None = None, return_distance: bool = True
    ) -> Any:
        """Return distances and rows of all neighbours: two arrays (m,) of arrays, the nearest first.

        Without vectors X (m, d), the neighbours of the training set are returned, where no vector is its own
        neighbour. ``return_distance=False`` returns the rows only.
        """
        graph = self.radius_neighbors_graph(X, radius, mode="distance")
        rows, distances = np.empty((2, graph.shape[0]), object)
        for i, (start, end) in enumerate(pairwise(graph.indptr)):
            rows[i], distances[i] = graph.indices[start:end].astype(np.int64), graph.data[start:end]
        return (distances, rows) if return_distance else rows

    def radius_neighbors_graph(
        self, X: npt.ArrayLike | None = None, radius: float | None = None, mode: str = "connectivity"
    ) -> sp.csr_matrix:
        """Return all neighbours as a sparse matrix (m, n) of ones or distances, by ``mode``."""
        check_is_fitted(self)
        validate_choice("mode", mode, MODES)
        most = validate_real("radius", self.radius if radius is None else radius, 0.0)
        vectors = self._training_set if X is None else _validate(self, X, reset=False)
        wide = most * (1 + _ROUNDING) + _ROUNDING  # scores are rounded to float32
        hits = self.index_.search_radius(
            vectors, min_score=-(wide**2) if self.metric == "euclidean" else 1.0 - wide
        )
        distances = _convert_scores(hits.scores, self.metric, vectors.dtype)
        chosen = distances <= np.float32(most) if vectors.dtype == np.float32 else distances <= most
        if X is None:
            chosen &= hits.ids != hits.queries
        near = hits.select(chosen)
        values = distances[chosen] if mode == "distance" else np.ones(len(near.ids), vectors.dtype)
        return sp.csr_matrix((values, near.ids, near.offsets), shape=(len(vectors), self.n_samples_fit_))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _validate(estimator: BaseEstimator, X: npt.ArrayLike, *, reset: bool) -> npt.NDArray[Any]:
    """Return vectors (n, d) as float32 or float64; with ``reset=False`` they must match the training set."""
    array: npt.NDArray[Any] = validate_data(estimator, X, reset=reset, dtype=(np.float64, np.float32))
    return array


def _mask_others(rows: Rows) -> npt.NDArray[np.bool_]:
    """Return a mask that leaves k of the neighbours (n, k + 1) of all n vectors: not the vector itself.

    If the search missed a vector itself, e.g. because many are equal to it, the last neighbour is masked.
    """
    others: npt.NDArray[np.bool_] = rows != np.arange(len(rows))[:, None]
    others[others.all(axis=1), -1] = False
    return others


def _convert_scores(scores: npt.NDArray[Any], metric: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Convert scores (negated squares or cosines) to distances, clipped at 0 because of rounding."""
    wide = scores.astype(np.float64)
    if metric == "euclidean":
        return np.sqrt(np.maximum(0.0 - wide, 0.0)).astype(dtype)
    return np.maximum(1.0 - wide, 0.0).astype(dtype)
