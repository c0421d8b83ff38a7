"""The contract of a hasher: a scikit-learn transformer that learns one matrix.

``fit`` preprocesses the vectors (:mod:`posh.preprocess`) and asks the subclass for its weights, (n_bits, d').
``encode`` projects tile by tile (:mod:`posh.hashers._linalg`) and keeps the winners (sparse hashers) or the
signs (dense hashers). ``estimate_fit`` predicts the cost of a fit from the sizes of the data and the code.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from posh import kernels
from posh._durable import write_atomically
from posh._model_files import (
    Arrays,
    convert_format_errors,
    dump_model,
    parse_model,
    require_array,
)
from posh._runtime import resolve_threads
from posh._validate import (
    find_non_finite,
    keep_column_names,
    validate_choice,
    validate_code_shape,
    validate_integer,
    validate_n_bits,
    validate_vectors,
)
from posh.codes import Codes, PackedCodes
from posh.errors import FormatError
from posh.hashers._linalg import Projection, for_each_tile
from posh.preprocess import Float32, Preprocess, prepare_training

__all__ = ["DenseHasher", "EpochHasher", "FitCost", "Hasher", "SparseHasher", "estimate_procrustes"]

C = TypeVar("C", Codes, PackedCodes)
_CLASSES: dict[str, type[Hasher[Any]]] = {}
_REDUCE = ("auto", "paper")
_COMPONENTS = 128  # more did not find more neighbours, and take longer: see docs/decisions/0006-reduction.md
_ROWS = 4096  # vectors per step of the preprocessing

STEP_OPERATIONS = 1_000_000  # one step of a Python loop takes as long as this number of operations
ORTHOGONAL_BYTES = 36  # peak bytes per entry of a random orthogonal matrix or of a Procrustes step


@dataclass(frozen=True)
class FitCost:
    """Peak memory of a fit in ``bytes``, without its vectors, and its ``operations`` (multiply and add).

    Both should be right within a factor of three. A core does 10⁹ to 10¹⁰ operations per second.
    """

    bytes: int
    operations: int


class Hasher(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
    ABC,
    Generic[C],
):
    """Base of all hashers; see :class:`SparseHasher` and :class:`DenseHasher`.

    Fitted attributes: ``weights_`` float32 (n_bits, d'), ``preprocess_`` (mean, scale, PCA),
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
        registered = _CLASSES.get(cls.__name__)
        # A model file names its class. A user's class must not replace one of ours of the same name.
        if registered is None or not registered.__module__.startswith("posh."):
            _CLASSES[cls.__name__] = cls

    # Supplied by subclasses ----------------------------------------------------------------------

    @abstractmethod
    def _learn(self, Z: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        """Return weights (n_bits, d') and the objective per epoch, from preprocessed Z (n, d')."""

    @abstractmethod
    def encode(self, X: npt.ArrayLike, *, n_threads: int | None = None) -> C:
        """Return codes of vectors (n, d); ``n_threads`` (default: all cores) does not change the result."""

    @abstractmethod
    def _encode(self, X: npt.NDArray[Any], n_active: Any = None, n_threads: int | None = None) -> C:
        """Return codes of valid vectors (n, d); ``n_active`` is for sparse codes."""

    @abstractmethod
    def _check_params(self) -> None:
        """Raise ValueError or TypeError for invalid parameters."""

    @abstractmethod
    def _count_components(self) -> int:
        """Return the number of PCA components when there are more features than bits."""

    def _estimate_learning(self, n: int, d: int) -> FitCost:
        """Return the cost of learning from preprocessed vectors (n, d); by default that of random weights."""
        return FitCost(8 * self.n_bits * d, 20 * self.n_bits * d)

    # The public interface ------------------------------------------------------------------------

    def fit(self, X: npt.ArrayLike, y: Any = None) -> Self:
        """Learn from vectors (n, d); ``y`` is ignored, but scikit-learn's pipelines pass it."""
        preprocess, Z = self._prepare(X)
        weights, objective = self._learn(Z, self._make_rng())
        return self._set_learned(X, preprocess, weights, objective)

    def project(self, X: npt.ArrayLike) -> Float32:
        """Return the real-valued scores before winner-take-all, float32 (n, n_bits)."""
        array = self._validate_input(X, finite=False)
        with _explain_bad_values(array):
            return self._make_projection(len(array))(array)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted hasher to one safetensors file, atomically."""
        with write_atomically(path) as temporary:
            temporary.write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a hasher of this class; ``Hasher.load`` reads hashers of all classes."""
        return cls.from_bytes(Path(path).read_bytes(), path)

    def to_bytes(self) -> bytes:
        """Return the content of a model file."""
        self._require_fitted()
        params = self.get_params(deep=False)
        if not isinstance(params.get("random_state"), int | np.integer):
            params["random_state"] = None  # a generator cannot be saved, and the weights are final
        return dump_model(type(self).__name__, params, self._dump_state(), self._get_column_names())

    @classmethod
    def from_bytes(cls, content: bytes, path: str | os.PathLike[str]) -> Self:
        """Build a hasher from the content of a model file; ``path`` is for error messages."""
        model = parse_model(content, path)
        found = _CLASSES.get(model.name)
        if found is None:
            raise FormatError(
                f"{Path(path)}: expected a known hasher, found {model.name}: "
                "import the module that defines it first"
            )
        if not issubclass(found, cls):
            raise FormatError(f"{Path(path)}: expected a {cls.__name__}, found {model.name}")
        # Old files do not name the reduction: at that time, there was only the paper's.
        old = {"reduce": "paper"} if "reduce" in found._get_param_names() else {}
        with convert_format_errors(path):
            hasher = found(**old | model.params)._restore_state(model.arrays)
        if model.columns is not None:
            hasher.feature_names_in_ = np.array(model.columns, object)
        assert isinstance(hasher, cls)
        return hasher

    def estimate_fit(self, n: int, d: int) -> FitCost:
        """Return the estimated cost of ``fit`` on vectors (n, d) with the current parameters.

        >>> import posh
        >>> small, large = posh.BOSL(1024, 32), posh.BOSL(16_384, 32)
        >>> small.estimate_fit(1000, 128).bytes < 2**28, large.estimate_fit(1000, 128).bytes > 2**32
        (True, True)
        """
        self._check_params()
        n, d = validate_integer("n", n, 1), validate_integer("d", d, 1)
        n_left = min(self._count_components(), n, d) if d > self.n_bits else d
        before = _estimate_preprocessing(n, d, None if n_left == d else n_left)
        learning = self._estimate_learning(n, n_left)
        return FitCost(
            4 * n * n_left + max(before.bytes, learning.bytes), before.operations + learning.operations
        )

    # Implementation ------------------------------------------------------------------------------

    def _prepare(self, X: npt.ArrayLike) -> tuple[Preprocess, Float32]:
        """Validate parameters and vectors (n, d); return the fitted preprocessing and its result (n, d')."""
        self._check_params()
        array = prepare_training(validate_vectors(X, min_rows=2))
        n_components = self._count_components() if array.shape[1] > self.n_bits else None
        preprocess = Preprocess.fit(array, n_components)
        return preprocess, preprocess(array)

    def _set_learned(
        self, X: npt.ArrayLike, preprocess: Preprocess, weights: Float32, objective: list[float]
    ) -> Self:
        """Set the attributes that were learned from X."""
        # Sets n_features_in_ and feature_names_in_.
        validate_data(self, keep_column_names(X), reset=True, skip_check_array=True)
        self.preprocess_ = preprocess
        self.weights_ = np.ascontiguousarray(weights, np.float32)
        self.objective_ = np.asarray(objective, np.float64)
        self.n_iter_ = max(1, len(objective))
        return self

    def _make_rng(self) -> np.random.Generator:
        seed = check_random_state(self.random_state).randint(0, 2**31 - 1, size=4)
        return np.random.default_rng(seed)

    def _require_fitted(self) -> None:
        check_is_fitted(self, "weights_")
        self._check_params()
        if self.n_bits != len(self.weights_):
            raise ValueError(
                f"n_bits was {len(self.weights_)} when fitted and is now {self.n_bits}: fit again"
            )

    def _validate_input(self, X: Any, *, finite: bool = True) -> npt.NDArray[Any]:
        self._require_fitted()
        array = validate_vectors(X, self.n_features_in_, min_rows=0, model=type(self).__name__, finite=finite)
        if type(X) is not np.ndarray or hasattr(self, "feature_names_in_"):
            validate_data(self, keep_column_names(X), reset=False, skip_check_array=True)
        return array

    def _make_projection(self, n_rows: int) -> Projection:
        return Projection(self.preprocess_, self.weights_, n_rows)

    def _for_each_tile(
        self, X: npt.NDArray[Any], take: Callable[[Float32, slice], None], n_threads: int
    ) -> None:
        """Call ``take(scores, rows)`` for each tile of ``X``; it must not keep the scores."""
        with _explain_bad_values(X):
            for_each_tile(X, self._make_projection, take, n_threads)

    def _get_column_names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def _dump_state(self) -> Arrays:
        state = self.preprocess_.to_arrays()
        return state | {
            "weights_": self.weights_,
            "objective_": self.objective_,
            "n_iter": np.array(self.n_iter_),
        }

    def _restore_state(self, state: Arrays) -> Self:
        self._check_params()
        self.preprocess_ = Preprocess.from_arrays(state)
        shape = (self.n_bits, self.preprocess_.n_features_out)
        self.weights_ = require_array(state, "weights_", np.float32, shape)
        self.objective_ = require_array(state, "objective_", np.float64, (None,))
        self.n_iter_ = int(require_array(state, "n_iter", np.int64, (), low=1))
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
        """Return codes of vectors (n, d) as a SciPy CSR array (n, n_bits) of float32 ones."""
        return self.encode(X).to_csr()

    def _check_params(self) -> None:
        validate_code_shape(self.n_bits, self.n_active)
        validate_choice("reduce", self.reduce, _REDUCE)

    def _count_components(self) -> int:
        if self.reduce == "paper":
            return self.n_active
        return min(self.n_bits, max(self.n_active, _COMPONENTS))

    def encode(self, X: npt.ArrayLike, *, n_active: int | None = None, n_threads: int | None = None) -> Codes:
        """Return codes of vectors (n, d), with another number of set bits if ``n_active`` is given.

        ``n_threads`` (default: all cores) does not change the result.
        """
        if n_active is not None:
            validate_code_shape(self.n_bits, n_active)
        return self._encode(self._validate_input(X, finite=False), n_active, n_threads)

    def _encode(self, X: npt.NDArray[Any], n_active: Any = None, n_threads: int | None = None) -> Codes:
        """Return codes of valid vectors (n, d)."""
        n_chosen = n_active or self.n_active
        out = np.empty((len(X), n_chosen), np.uint16)

        def select(scores: Float32, rows: slice) -> None:
            kernels.winners(scores, n_chosen, out[rows])

        self._for_each_tile(X, select, resolve_threads(n_threads))
        return Codes.wrap(out, self.n_bits)


class EpochHasher(SparseHasher):
    """A sparse hasher whose ``fit`` passes over the data several times (epochs), usable after each one.

    >>> import posh
    >>> issubclass(posh.POSH, posh.EpochHasher)
    True
    """

    @abstractmethod
    def _run_epochs(self, Z: Float32, rng: np.random.Generator) -> Iterator[tuple[Float32, float]]:
        """Yield for each pass over Z (n, d') the weights (n_bits, d') after it and the objective in it."""

    def _learn(self, Z: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        objective, weights = [], np.empty((0, 0), np.float32)
        for weights, value in self._run_epochs(Z, rng):  # noqa: B007  # the last weights are returned
            objective.append(value)
        return weights, objective

    def fit_epochs(self, X: npt.ArrayLike) -> Iterator[Self]:
        """Learn as ``fit`` does and yield the hasher itself after each epoch, ready to encode.

        >>> import numpy as np, posh
        >>> X = np.random.default_rng(0).normal(size=(500, 16))
        >>> hasher = posh.SphericalHash(64, 4, n_epochs=3, random_state=0)
        >>> [len(state.objective_) for state in hasher.fit_epochs(X)]
        [1, 2, 3]
        """
        preprocess, Z = self._prepare(X)
        objective: list[float] = []
        for weights, value in self._run_epochs(Z, self._make_rng()):
            objective.append(value)
            yield self._set_learned(X, preprocess, weights, objective)


class DenseHasher(Hasher[PackedCodes]):
    """A hasher whose bits are the signs of the projection.

    >>> import posh
    >>> isinstance(posh.LSH(), posh.DenseHasher)
    True
    """

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[np.uint8]:
        """Return codes of vectors (n, d) as zeros and ones, uint8 (n, n_bits)."""
        return self.encode(X).to_dense()

    def _check_params(self) -> None:
        validate_n_bits(self.n_bits)

    def _count_components(self) -> int:
        return self.n_bits

    def encode(self, X: npt.ArrayLike, *, n_threads: int | None = None) -> PackedCodes:
        """Return codes of vectors (n, d); ``n_threads`` (default: all cores) does not change the result."""
        return self._encode(self._validate_input(X, finite=False), n_threads=n_threads)

    def _encode(self, X: npt.NDArray[Any], n_active: Any = None, n_threads: int | None = None) -> PackedCodes:
        """Return codes of valid vectors (n, d)."""
        out = np.empty((len(X), -(-self.n_bits // 8)), np.uint8)

        def pack_signs(scores: Float32, rows: slice) -> None:
            out[rows] = np.packbits(scores > 0, axis=1, bitorder="little")

        self._for_each_tile(X, pack_signs, resolve_threads(n_threads))
        return PackedCodes.wrap(out, self.n_bits)


@contextmanager
def _explain_bad_values(X: npt.NDArray[Any]) -> Iterator[None]:
    """Name the first NaN or inf in ``X`` if it caused a ValueError.

    Searching for it beforehand would cost a pass over the vectors.
    """
    try:
        yield
    except ValueError as error:
        raise find_non_finite(X) or error from None


def _estimate_preprocessing(n: int, d: int, n_components: int | None) -> FitCost:
    """Return the cost of preprocessing vectors (n, d): mean, scale, PCA, and centring."""
    scale = FitCost(4 * n * d + 24 * min(n, _ROWS) * d, 30 * n * d)
    if n_components is None:
        return scale
    smaller = min(n, d)
    # scikit-learn decomposes the covariance, a random projection or the whole matrix, depending on the shape.
    if d <= 1000 and n >= 10 * d:
        per_value, operations = 12, n * d * d + 20 * d**3
    elif max(n, d) > 500 and n_components < 0.8 * smaller:
        per_value, operations = 32, 20 * n * d * (n_components + 10)
    else:
        per_value, operations = 32, 20 * n * d * smaller
    return FitCost((4 + per_value) * n * d, scale.operations + 2 * operations)


def estimate_procrustes(n_bits: int, d: int) -> FitCost:
    """Return the cost of solving the Procrustes problem for M (n_bits, d) in float64."""
    return FitCost(ORTHOGONAL_BYTES * n_bits * d + 40 * d * d, 4 * n_bits * d * d + 20 * d**3)
