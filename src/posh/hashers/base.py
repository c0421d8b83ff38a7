"""The contract of a hasher: a scikit-learn transformer that learns one matrix.

``fit`` centres the data (:mod:`posh.preprocess`) and asks the subclass for its weights, (n_bits, d');
``encode`` projects a tile of rows at a time and keeps the winners (sparse methods) or the signs (dense
methods). The (n, n_bits) scores of the whole data never exist: encoding needs memory for a tile.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import ThreadpoolController

from posh import _validate, kernels, store
from posh.codes import Codes, PackedCodes
from posh.preprocess import Float32, Preprocess

__all__ = ["DenseHasher", "Hasher", "SparseHasher"]

_TILE = 256  # rows: the scores of a tile (1 MB at 1024 bits) stay in cache until the winners are taken
_PAD = 16  # BLAS computes a row alike wherever it stands, if the number of rows is a multiple of its blocking

C = TypeVar("C", Codes, PackedCodes)
_CLASSES: dict[str, type[Hasher[Any]]] = {}


class Hasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC, Generic[C]):  # type: ignore[misc]
    """Base of all hashers; see :class:`SparseHasher` and :class:`DenseHasher`.

    Learned attributes: ``weights_`` float32 (n_bits, d'), ``preprocess_`` (mean, scale, PCA),
    ``objective_`` (one value per epoch, empty for random methods), ``n_iter_`` and ``n_features_in_``.
    """

    n_bits: int
    random_state: Any
    weights_: Float32
    preprocess_: Preprocess
    objective_: npt.NDArray[np.float64]
    n_iter_: int
    n_features_in_: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _CLASSES[cls.__name__] = cls

    # What a subclass supplies ------------------------------------------------------------------

    @abstractmethod
    def _learn(self, Z: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        """Return weights (n_bits, d') and the objective per epoch, from preprocessed Z (n, d')."""

    @abstractmethod
    def _check_params(self) -> None:
        """Raise for parameters that make no sense."""

    @abstractmethod
    def _n_components(self) -> int:
        """Return the number of PCA components when there are more features than bits."""

    @abstractmethod
    def _empty(self, n: int) -> npt.NDArray[Any]:
        """Allocate the code array of n vectors."""

    @abstractmethod
    def _binarize(self, scores: Float32, out: npt.NDArray[Any]) -> None:
        """Write the codes of a tile of scores (rows, n_bits)."""

    @abstractmethod
    def _wrap(self, array: npt.NDArray[Any]) -> C:
        """Make the value type of a complete code array."""

    # What users call -----------------------------------------------------------------------------

    def fit(self, X: npt.ArrayLike, y: Any = None) -> Self:
        """Learn from vectors (n, d); ``y`` is ignored, for scikit-learn's sake."""
        self._check_params()
        X = self._check_vectors(X, reset=True, min_rows=2)
        n_components = self._n_components() if X.shape[1] > self.n_bits else None
        self.preprocess_ = Preprocess.fit(X, n_components)
        weights, objective = self._learn(self.preprocess_(X), self._rng())
        self.weights_ = np.ascontiguousarray(weights, np.float32)
        self.objective_ = np.asarray(objective, np.float64)
        self.n_iter_ = max(1, len(objective))
        return self

    def encode(self, X: npt.ArrayLike, *, n_threads: int | None = None) -> C:
        """Codes of vectors (n, d); ``n_threads`` (default: all cores) changes the time, never the result."""
        check_is_fitted(self, "weights_")
        X = self._check_vectors(X, reset=False, min_rows=0)
        out = self._empty(len(X))
        _for_each_tile(lambda rows: self._binarize(self._project(X[rows]), out[rows]), len(X), n_threads)
        return self._wrap(out)

    def project(self, X: npt.ArrayLike) -> Float32:
        """Real-valued scores before winner-take-all, float32 (n, n_bits)."""
        check_is_fitted(self, "weights_")
        return self._project(self._check_vectors(X, reset=False, min_rows=0))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted hasher to one safetensors file, atomically."""
        check_is_fitted(self, "weights_")
        store.save_model(path, type(self).__name__, self.get_params(deep=False), self._state())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a hasher of this class; ``Hasher.load`` reads any."""
        name, params, state = store.load_model(path)
        found = _CLASSES.get(name)
        if found is None or not issubclass(found, cls):
            raise store.FormatError(f"{Path(path)}: expected a {cls.__name__}, found {name}")
        hasher = store.checked(path, lambda: found(**params)._restore(state))
        assert isinstance(hasher, cls)
        return hasher

    # How it is done ------------------------------------------------------------------------------

    def _rng(self) -> np.random.Generator:
        seed = check_random_state(self.random_state).randint(0, 2**31 - 1, size=4)
        return np.random.default_rng(seed)

    def _check_vectors(self, X: Any, *, reset: bool, min_rows: int) -> npt.NDArray[Any]:
        expected = None if reset else self.n_features_in_
        array = _validate.vectors(X, expected, min_rows=min_rows, model=type(self).__name__)
        validate_data(self, X, reset=reset, skip_check_array=True)  # column names and n_features_in_
        return array

    def _project(self, X: npt.NDArray[Any]) -> Float32:
        Z = self.preprocess_(_padded(X))
        return np.asarray(Z @ self.weights_.T)[: len(X)]

    def _state(self) -> store.Arrays:
        state = self.preprocess_.state()
        return state | {
            "weights_": self.weights_,
            "objective_": self.objective_,
            "n_iter": np.array(self.n_iter_),
        }

    def _restore(self, state: store.Arrays) -> Self:
        self._check_params()
        self.preprocess_ = Preprocess.restore(state)
        shape = (self.n_bits, self.preprocess_.n_features_out)
        self.weights_ = store.expect(state, "weights_", np.float32, shape)
        self.objective_ = store.expect(state, "objective_", np.float64, (None,))
        self.n_iter_ = int(store.expect(state, "n_iter", np.int64, ()))
        self.n_features_in_ = len(self.preprocess_.mean)
        return self

    @property
    def _n_features_out(self) -> int:
        return len(self.weights_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


class SparseHasher(Hasher[Codes]):
    """A hasher whose codes have exactly ``n_active`` of ``n_bits`` bits set (winner-take-all)."""

    n_active: int

    def transform(self, X: npt.ArrayLike) -> sp.csr_array:
        """Codes of vectors (n, d) as a SciPy CSR array (n, n_bits) of float32 ones."""
        return self.encode(X).to_csr()

    def _check_params(self) -> None:
        _validate.code_shape(self.n_bits, self.n_active)

    def _n_components(self) -> int:
        return self.n_active

    def _empty(self, n: int) -> npt.NDArray[np.uint16]:
        return np.empty((n, self.n_active), np.uint16)

    def _binarize(self, scores: Float32, out: npt.NDArray[np.uint16]) -> None:
        kernels.winners(scores, self.n_active, out)

    def _wrap(self, array: npt.NDArray[np.uint16]) -> Codes:
        return Codes(array, self.n_bits)


class DenseHasher(Hasher[PackedCodes]):
    """A hasher whose bits are the signs of the projection."""

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[np.uint8]:
        """Codes of vectors (n, d) as zeros and ones, uint8 (n, n_bits)."""
        return self.encode(X).to_dense()

    def _check_params(self) -> None:
        _validate.code_length(self.n_bits)

    def _n_components(self) -> int:
        return self.n_bits

    def _empty(self, n: int) -> npt.NDArray[np.uint8]:
        return np.empty((n, -(-self.n_bits // 8)), np.uint8)

    def _binarize(self, scores: Float32, out: npt.NDArray[np.uint8]) -> None:
        out[:] = np.packbits(scores > 0, axis=1, bitorder="little")

    def _wrap(self, array: npt.NDArray[np.uint8]) -> PackedCodes:
        return PackedCodes(array, self.n_bits)


def _padded(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    missing = -len(X) % _PAD
    return np.concatenate([X, np.repeat(X[-1:], missing, axis=0)]) if missing else X


def _for_each_tile(work: Callable[[slice], None], n: int, n_threads: int | None) -> None:
    threads = (
        len(os.sched_getaffinity(0)) if n_threads is None else _validate.integer("n_threads", n_threads, 1)
    )
    tiles = [slice(start, min(start + _TILE, n)) for start in range(0, n, _TILE)]
    if len(tiles) <= 1:
        for tile in tiles:
            work(tile)
        return
    # Rows are shared out among our threads and BLAS runs single: two thread pools would fight for the cores.
    with ThreadpoolController().limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, tiles):
            pass
