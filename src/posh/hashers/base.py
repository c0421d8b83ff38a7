"""The contract of a hasher: a scikit-learn transformer that learns one matrix.

``fit`` centres the data (:mod:`posh.preprocess`) and asks the subclass for its weights, (n_bits, d');
``encode`` projects a tile of rows at a time (:mod:`posh.hashers._tiles`) and keeps the winners (sparse
methods) or the signs (dense methods).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from posh import _validate, kernels, store
from posh._threads import cores
from posh.codes import Codes, PackedCodes
from posh.hashers._tiles import Projection, for_each_tile
from posh.hashers.cost import EstimatesFit
from posh.preprocess import Float32, Preprocess, training_rows

__all__ = ["DenseHasher", "Hasher", "SparseHasher"]

C = TypeVar("C", Codes, PackedCodes)
_CLASSES: dict[str, type[Hasher[Any]]] = {}


class Hasher(
    EstimatesFit,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
    ABC,
    Generic[C],
):
    """Base of all hashers; see :class:`SparseHasher` and :class:`DenseHasher`.

    Learned attributes: ``weights_`` float32 (n_bits, d'), ``preprocess_`` (mean, scale, PCA),
    ``objective_`` (one value per epoch, empty for random methods), ``n_iter_`` and ``n_features_in_``.
    A fit that fails or is interrupted leaves what was learned before as it was.

    >>> import posh
    >>> issubclass(posh.POSH, posh.Hasher)
    True
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
        own = _CLASSES.get(cls.__name__)
        if own is None or not own.__module__.startswith("posh."):  # a file of ours loads as ours
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

    # What users call -----------------------------------------------------------------------------

    def fit(self, X: npt.ArrayLike, y: Any = None) -> Self:
        """Learn from vectors (n, d); ``y`` is ignored, for scikit-learn's sake."""
        preprocess, Z = self._prepared(X)
        weights, objective = self._learn(Z, self._rng())
        return self._learned(X, preprocess, weights, objective)

    @abstractmethod
    def encode(self, X: npt.ArrayLike, *, n_threads: int | None = None) -> C:
        """Codes of vectors (n, d); ``n_threads`` (default: all cores) changes the time, never the result."""

    def project(self, X: npt.ArrayLike) -> Float32:
        """Real-valued scores before winner-take-all, float32 (n, n_bits)."""
        array = self._checked(X, finite=False)
        with _bad_values_named(array):
            return self._projection(len(array))(array)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted hasher to one safetensors file, atomically."""
        with store.atomic_write(path) as temporary:
            temporary.write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a hasher of this class; ``Hasher.load`` reads any."""
        return cls.from_bytes(Path(path).read_bytes(), path)

    def to_bytes(self) -> bytes:
        """The content of a model file."""
        self._require_fitted()
        params = self.get_params(deep=False)
        if not isinstance(params.get("random_state"), int | np.integer):
            params["random_state"] = None  # a generator object: what it gave is in the weights already
        return store.dump_model(type(self).__name__, params, self._state(), self._column_names())

    @classmethod
    def from_bytes(cls, content: bytes, path: str | os.PathLike[str]) -> Self:
        """Make a hasher of the content of a model file; ``path`` is for messages."""
        model = store.parse_model(content, path)
        found = _CLASSES.get(model.name)
        if found is None:
            raise store.FormatError(
                f"{Path(path)}: expected a hasher that is known here, found {model.name}: "
                "import the module that defines it first"
            )
        if not issubclass(found, cls):
            raise store.FormatError(f"{Path(path)}: expected a {cls.__name__}, found {model.name}")
        hasher = store.checked(path, lambda: found(**model.params)._restore(model.arrays))
        if model.columns is not None:
            hasher.feature_names_in_ = np.array(model.columns, object)
        assert isinstance(hasher, cls)
        return hasher

    # How it is done ------------------------------------------------------------------------------

    def _prepared(self, X: npt.ArrayLike) -> tuple[Preprocess, Float32]:
        """Check parameters and vectors (n, d); return what happens to them first, and its result (n, d')."""
        self._check_params()
        array = training_rows(_validate.vectors(X, min_rows=2))
        n_components = self._n_components() if array.shape[1] > self.n_bits else None
        preprocess = Preprocess.fit(array, n_components)
        return preprocess, preprocess(array)

    def _learned(
        self, X: npt.ArrayLike, preprocess: Preprocess, weights: Float32, objective: list[float]
    ) -> Self:
        """Adopt what was learned from X."""
        validate_data(self, X, reset=True, skip_check_array=True)  # column names and n_features_in_
        self.preprocess_ = preprocess
        self.weights_ = np.ascontiguousarray(weights, np.float32)
        self.objective_ = np.asarray(objective, np.float64)
        self.n_iter_ = max(1, len(objective))
        return self

    def _rng(self) -> np.random.Generator:
        seed = check_random_state(self.random_state).randint(0, 2**31 - 1, size=4)
        return np.random.default_rng(seed)

    def _require_fitted(self) -> None:
        check_is_fitted(self, "weights_")
        self._check_params()
        if self.n_bits != len(self.weights_):
            raise ValueError(
                f"n_bits was {len(self.weights_)} when fitted and is now {self.n_bits}: fit again"
            )

    def _checked(self, X: Any, *, finite: bool = True) -> npt.NDArray[Any]:
        self._require_fitted()
        array = _validate.vectors(
            X, self.n_features_in_, min_rows=0, model=type(self).__name__, finite=finite
        )
        if type(X) is not np.ndarray or hasattr(self, "feature_names_in_"):
            validate_data(self, X, reset=False, skip_check_array=True)  # column names
        return array

    def _projection(self, n_rows: int) -> Projection:
        return Projection(self.preprocess_, self.weights_, n_rows)

    def _each_tile(self, X: npt.NDArray[Any], take: Callable[[Float32, slice], None], n_threads: int) -> None:
        """Hand the scores of each tile of ``X`` and its rows to ``take``; they last until it returns."""
        with _bad_values_named(X):
            for_each_tile(X, self._projection, take, n_threads)

    def _column_names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

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
        self.n_iter_ = int(store.expect(state, "n_iter", np.int64, (), low=1))
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
    """A hasher whose codes have exactly ``n_active`` of ``n_bits`` bits set (winner-take-all).

    >>> import posh
    >>> isinstance(posh.FruitFly(), posh.SparseHasher)
    True
    """

    n_active: int

    def transform(self, X: npt.ArrayLike) -> sp.csr_array:
        """Codes of vectors (n, d) as a SciPy CSR array (n, n_bits) of float32 ones."""
        return self.encode(X).to_csr()

    def _check_params(self) -> None:
        _validate.code_shape(self.n_bits, self.n_active)

    def _n_components(self) -> int:
        return self.n_active

    def encode(self, X: npt.ArrayLike, *, n_active: int | None = None, n_threads: int | None = None) -> Codes:
        """Codes of vectors (n, d), with another number of set bits if ``n_active`` is given.

        ``n_threads`` (default: all cores) changes the time, never the result.
        """
        array = self._checked(X, finite=False)
        _, wanted = _validate.code_shape(self.n_bits, self.n_active if n_active is None else n_active)
        out = np.empty((len(array), wanted), np.uint16)

        def winners(scores: Float32, rows: slice) -> None:
            kernels.winners(scores, wanted, out[rows])

        self._each_tile(array, winners, cores(n_threads))
        return Codes.trusted(out, self.n_bits)


class DenseHasher(Hasher[PackedCodes]):
    """A hasher whose bits are the signs of the projection.

    >>> import posh
    >>> isinstance(posh.LSH(), posh.DenseHasher)
    True
    """

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[np.uint8]:
        """Codes of vectors (n, d) as zeros and ones, uint8 (n, n_bits)."""
        return self.encode(X).to_dense()

    def _check_params(self) -> None:
        _validate.code_length(self.n_bits)

    def _n_components(self) -> int:
        return self.n_bits

    def encode(self, X: npt.ArrayLike, *, n_threads: int | None = None) -> PackedCodes:
        """Codes of vectors (n, d); ``n_threads`` (default: all cores) changes the time, never the result."""
        array = self._checked(X, finite=False)
        out = np.empty((len(array), -(-self.n_bits // 8)), np.uint8)

        def signs(scores: Float32, rows: slice) -> None:
            out[rows] = np.packbits(scores > 0, axis=1, bitorder="little")

        self._each_tile(array, signs, cores(n_threads))
        return PackedCodes.trusted(out, self.n_bits)


@contextmanager
def _bad_values_named(X: npt.NDArray[Any]) -> Iterator[None]:
    """Say where NaN or inf is if that is why ``X`` was refused: looking for it first would cost a pass."""
    try:
        yield
    except ValueError as error:
        raise _validate.not_finite(X) or error from None
