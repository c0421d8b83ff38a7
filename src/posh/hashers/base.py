"""The contract of a hasher: a scikit-learn transformer that learns one matrix.

``fit`` preprocesses the vectors (:mod:`posh.preprocess`) and asks the subclass for its weights, (n_bits, d').
``encode`` projects tile by tile (:mod:`posh.hashers._tiles`) and keeps the winners (sparse hashers) or the
signs (dense hashers).
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

from posh import _files, _validate, kernels, model_files
from posh._matrix import named_columns
from posh._threads import cores
from posh.codes import Codes, PackedCodes
from posh.hashers._tiles import Projection, for_each_tile
from posh.hashers.cost import EstimatesFit
from posh.preprocess import Float32, Preprocess, training_vectors

__all__ = ["DenseHasher", "Hasher", "SparseHasher"]

C = TypeVar("C", Codes, PackedCodes)
_CLASSES: dict[str, type[Hasher[Any]]] = {}
_REDUCE = ("auto", "paper")
_COMPONENTS = 128  # more did not find more neighbours, and take longer: see ARCHITECTURE.md, "Reduction"


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
    A fit that fails or is interrupted changes none of them.

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
        # A model file names its class. A user's class of the same name must not replace ours.
        if own is None or not own.__module__.startswith("posh."):
            _CLASSES[cls.__name__] = cls

    # What a subclass supplies ------------------------------------------------------------------

    @abstractmethod
    def _learn(self, Z: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        """Return weights (n_bits, d') and the objective per epoch, from preprocessed Z (n, d')."""

    @abstractmethod
    def encode(self, X: npt.ArrayLike, *, n_threads: int | None = None) -> C:
        """Codes of vectors (n, d); ``n_threads`` (default: all cores) changes the time, never the result."""

    # What users call -----------------------------------------------------------------------------

    def fit(self, X: npt.ArrayLike, y: Any = None) -> Self:
        """Learn from vectors (n, d); ``y`` is ignored, but scikit-learn's pipelines pass it."""
        preprocess, Z = self._prepared(X)
        weights, objective = self._learn(Z, self._rng())
        return self._learned(X, preprocess, weights, objective)

    def project(self, X: npt.ArrayLike) -> Float32:
        """Real-valued scores before winner-take-all, float32 (n, n_bits)."""
        array = self._checked(X, finite=False)
        with _name_bad_values(array):
            return self._projection(len(array))(array)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted hasher to one safetensors file, atomically."""
        with _files.atomic_write(path) as temporary:
            temporary.write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a hasher of this class; ``Hasher.load`` reads hashers of all classes."""
        return cls.from_bytes(Path(path).read_bytes(), path)

    def to_bytes(self) -> bytes:
        """The content of a model file."""
        self._require_fitted()
        params = self.get_params(deep=False)
        if not isinstance(params.get("random_state"), int | np.integer):
            params["random_state"] = None  # a generator cannot be saved, and the weights are final
        return model_files.dump_model(type(self).__name__, params, self._state(), self._column_names())

    @classmethod
    def from_bytes(cls, content: bytes, path: str | os.PathLike[str]) -> Self:
        """Make a hasher from the content of a model file; ``path`` is for error messages."""
        model = model_files.parse_model(content, path)
        found = _CLASSES.get(model.name)
        if found is None:
            raise model_files.FormatError(
                f"{Path(path)}: expected a hasher that is known here, found {model.name}: "
                "import the module that defines it first"
            )
        if not issubclass(found, cls):
            raise model_files.FormatError(f"{Path(path)}: expected a {cls.__name__}, found {model.name}")
        # Files that do not name the reduction were written when there was only the paper's.
        old = {"reduce": "paper"} if "reduce" in found._get_param_names() else {}
        hasher = model_files.checked(path, lambda: found(**old | model.params)._restore(model.arrays))
        if model.columns is not None:
            hasher.feature_names_in_ = np.array(model.columns, object)
        assert isinstance(hasher, cls)
        return hasher

    # How it is done ------------------------------------------------------------------------------

    def _prepared(self, X: npt.ArrayLike) -> tuple[Preprocess, Float32]:
        """Check parameters and vectors (n, d); return the fitted preprocessing and its result (n, d')."""
        self._check_params()
        array = training_vectors(_validate.vectors(X, min_rows=2))
        n_components = self._n_components() if array.shape[1] > self.n_bits else None
        preprocess = Preprocess.fit(array, n_components)
        return preprocess, preprocess(array)

    def _learned(
        self, X: npt.ArrayLike, preprocess: Preprocess, weights: Float32, objective: list[float]
    ) -> Self:
        """Set the attributes that were learned from X."""
        validate_data(self, named_columns(X), reset=True, skip_check_array=True)  # sets n_features_in_, too
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
            validate_data(self, named_columns(X), reset=False, skip_check_array=True)
        return array

    def _projection(self, n_rows: int) -> Projection:
        return Projection(self.preprocess_, self.weights_, n_rows)

    def _each_tile(self, X: npt.NDArray[Any], take: Callable[[Float32, slice], None], n_threads: int) -> None:
        """Call ``take(scores, rows)`` for each tile of ``X``; it must not keep the scores."""
        with _name_bad_values(X):
            for_each_tile(X, self._projection, take, n_threads)

    def _column_names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def _state(self) -> model_files.Arrays:
        state = self.preprocess_.state()
        return state | {
            "weights_": self.weights_,
            "objective_": self.objective_,
            "n_iter": np.array(self.n_iter_),
        }

    def _restore(self, state: model_files.Arrays) -> Self:
        self._check_params()
        self.preprocess_ = Preprocess.restore(state)
        shape = (self.n_bits, self.preprocess_.n_features_out)
        self.weights_ = model_files.expect(state, "weights_", np.float32, shape)
        self.objective_ = model_files.expect(state, "objective_", np.float64, (None,))
        self.n_iter_ = int(model_files.expect(state, "n_iter", np.int64, (), low=1))
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

    If the vectors have more features than ``n_bits``, PCA reduces them: see ``reduce`` of :class:`POSH`.

    >>> import posh
    >>> isinstance(posh.FruitFly(), posh.SparseHasher)
    True
    """

    n_active: int
    reduce: str = "auto"  # for subclasses without this parameter

    def transform(self, X: npt.ArrayLike) -> sp.csr_array:
        """Codes of vectors (n, d) as a SciPy CSR array (n, n_bits) of float32 ones."""
        return self.encode(X).to_csr()

    def _check_params(self) -> None:
        _validate.code_shape(self.n_bits, self.n_active)
        _validate.choice("reduce", self.reduce, _REDUCE)

    def _n_components(self) -> int:
        if self.reduce == "paper":
            return self.n_active
        return min(self.n_bits, max(self.n_active, _COMPONENTS))

    def encode(self, X: npt.ArrayLike, *, n_active: int | None = None, n_threads: int | None = None) -> Codes:
        """Codes of vectors (n, d), with another number of set bits if ``n_active`` is given.

        ``n_threads`` (default: all cores) changes the time, never the result.
        """
        if n_active is not None:
            _validate.code_shape(self.n_bits, n_active)
        array, n_chosen = self._checked(X, finite=False), n_active or self.n_active
        out = np.empty((len(array), n_chosen), np.uint16)

        def winners(scores: Float32, rows: slice) -> None:
            kernels.winners(scores, n_chosen, out[rows])

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
def _name_bad_values(X: npt.NDArray[Any]) -> Iterator[None]:
    """If ``X`` is refused because of NaN or inf, name the first one.

    Looking for it beforehand would cost a pass over the vectors.
    """
    try:
        yield
    except ValueError as error:
        raise _validate.not_finite(X) or error from None
