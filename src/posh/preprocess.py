"""Preprocessing of vectors before the projection: centring, scaling, and PCA when d > D.

The paper (appendix, "Preprocessing") subtracts a mean, and applies PCA when the data has more dimensions than
the code has bits. It computes both from the whole base. Here a hasher computes them from the vectors that it
is fitted on, and keeps more components than the paper does by default (``reduce``).

Two steps are not in the paper. We divide by one global scale: codes do not depend on the scale of the data,
so learning must not depend on it either. And :func:`prepare_training` moves extreme vectors in: a single
vector that is a million times as long as the others would determine the mean, the principal directions and
the sums that hashers learn from.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from posh import _native
from posh._model_files import Arrays, require_array
from posh._runtime import one_blas_thread

_log = logging.getLogger("posh")

_ROWS = 4096  # vectors per step, which bounds the temporary memory
_FAR = 1e15  # largest entry of a centred vector; with larger ones, float32 scores would overflow
# A vector is extreme if it is this many times as far out as usual; a column, if its deviation is this many
# times that of all others together. Clusters, or columns in different units, do not explain such a ratio.
_EXTREME = 1000.0
# Extreme vectors pull the mean towards them, so their distance from it is smaller than from the median. If no
# vector is this many times as far from the mean as usual, none is extreme, and the slow median is not needed.
_SUSPECT = 8.0
_SAMPLE = 4096  # vectors from which the median is estimated

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

__all__ = ["Preprocess", "move_extremes_in", "normalize_rows", "prepare_training"]


def normalize_rows(X: npt.NDArray[Any]) -> Float32:
    """Return the rows of X (n, d) with unit length, float32; rows of zeros stay zero.

    Rows whose squared length would overflow or vanish in float32 are scaled by a power of two first.

    >>> normalize_rows(np.array([[3.0, 4.0], [0.0, 0.0], [1e200, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ],
           [1. , 0. ]], dtype=float32)
    """
    if X.dtype == np.float32:
        rows = X
    else:
        with np.errstate(over="ignore"):
            rows = np.asarray(X, np.float32)
    squares = np.einsum("ij,ij->i", rows, rows)
    if len(rows) and squares.min() > 1e-30 and squares.max() < 1e30:  # almost always
        return np.asarray(rows / np.sqrt(squares)[:, None])
    lengths = np.sqrt(squares)[:, None]
    is_odd = ~((lengths >= 1e-15) & (lengths <= 1e15))[:, 0]
    if is_odd.any():
        odd = np.asarray(X[is_odd], np.result_type(X.dtype, np.float32))
        _, exponents = np.frexp(np.abs(odd).max(axis=1, keepdims=True))
        rows = rows.copy()
        rows[is_odd] = np.ldexp(odd, -exponents)
        lengths[is_odd] = np.sqrt(np.einsum("ij,ij->i", rows[is_odd], rows[is_odd]))[:, None]
    return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0))


@dataclass(frozen=True, eq=False)
class Preprocess:
    """Mapping of vectors (n, d) to ``((X - mean) / scale) @ components.T``, float32 (n, d').

    ``mean`` is float64 (d,), ``scale`` the root mean square of the centred training data, and
    ``components`` float32 (d', d) with orthonormal rows, or ``None`` when no PCA is needed.

    >>> import numpy as np
    >>> Preprocess.fit(np.array([[1.0, 0.0], [3.0, 0.0]]))(np.array([[2.0, 1.0]])).round(3)
    array([[0.   , 1.414]], dtype=float32)
    """

    mean: Float64
    scale: float
    components: Float32 | None = None

    @classmethod
    def fit(cls, X: npt.NDArray[Any], n_components: int | None = None) -> Preprocess:
        """Learn from vectors (n, d); with ``n_components``, also that number of principal directions.

        There are fewer components if n or d is smaller.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            mean = X.mean(axis=0, dtype=np.float64)
            scale = compute_root_mean_square(X, mean)
        if not 1e-30 <= scale <= 1e30:
            raise ValueError(
                f"expected vectors whose deviation from their mean is within 1e-30 .. 1e30, got {scale:.3g}: "
                "rescale them"
            )
        if n_components is None:
            return cls(mean, scale)
        from sklearn.decomposition import PCA  # slow to import, and rarely needed

        with one_blas_thread:  # with more threads, the rounding would depend on their number
            pca = PCA(min(n_components, *X.shape), random_state=0).fit((X - mean) / scale)
        components = np.ascontiguousarray(pca.components_, np.float32)
        share = pca.explained_variance_ratio_.sum()
        _log.info(
            "%d features: PCA keeps %d components, %.1f %% of the variance",
            X.shape[1],
            len(components),
            100 * share,
        )
        return cls(mean, scale, components)

    @property
    def n_features_out(self) -> int:
        """The number of columns of the result."""
        return len(self.mean) if self.components is None else len(self.components)

    def __call__(self, X: npt.NDArray[Any]) -> Float32:
        """Transform vectors (n, d)."""
        return self.reduce(self.centre(X, np.empty(X.shape, np.float32)))

    def centre(self, X: npt.NDArray[Any], out: Float32) -> Float32:
        """Write ``(X - mean) / scale`` to ``out``, float32 (n, d), and return it.

        float64 vectors are centred in float64, small integers in float32. NaN and inf raise the same error as
        vectors that are too large.
        """
        dtype = np.result_type(X.dtype, np.float32)
        rows = np.require(X, dtype, ["C_CONTIGUOUS", "ALIGNED"])
        largest = _native.centre(rows, self.mean.astype(dtype), 1.0 / self.scale, out)
        if not largest <= _FAR:
            raise ValueError(
                f"expected vectors on the scale of the training data (deviation {self.scale:.3g}), got one "
                f"{_FAR:g} times as large: scale both alike"
            )
        return out

    def reduce(self, centred: Float32) -> Float32:
        """Apply PCA to the result of :meth:`centre`, if there are components."""
        return centred if self.components is None else np.asarray(centred @ self.components.T)

    def invert(self, Z: Float32) -> Float32:
        """Map float32 (n, d') back to vectors (n, d); directions that PCA dropped get the mean."""
        centred = Z if self.components is None else Z @ self.components
        return np.asarray(centred * self.scale + self.mean, np.float32)

    def to_arrays(self) -> Arrays:
        """Return the arrays from which :meth:`from_arrays` builds the same object."""
        arrays: Arrays = {"mean": self.mean, "scale": np.array(self.scale)}
        return arrays if self.components is None else arrays | {"components": self.components}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Preprocess:
        """Validate the arrays of :meth:`to_arrays` and build an object from them."""
        mean = require_array(arrays, "mean", np.float64, (None,))
        scale = float(require_array(arrays, "scale", np.float64, ()))
        if scale <= 0.0:
            raise ValueError(f"expected a positive scale, found {scale}")
        components = arrays.get("components")
        if components is not None:
            components = require_array(arrays, "components", np.float32, (None, len(mean)))
        return cls(mean, scale, components)


def compute_root_mean_square(X: npt.NDArray[Any], mean: Float64) -> float:
    """Return the root of the mean square of ``X - mean``, or 1 if that is zero."""
    peak = max(float(np.max(X.max(axis=0) - mean)), float(np.max(mean - X.min(axis=0))))
    if peak == 0.0:
        return 1.0
    total = 0.0
    for start in range(0, len(X), _ROWS):  # in steps, to bound the memory
        # Relative to the peak, so that squares do not overflow.
        total += float(np.square((X[start : start + _ROWS] - mean) / peak).sum())
    return peak * float(np.sqrt(total / X.size))


def prepare_training(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return X (n, d) with extreme vectors moved in, for training; warn of bad scaling."""
    rows = move_extremes_in(X)
    _warn_of_dominant_column(rows)
    return rows


def move_extremes_in(
    X: npt.NDArray[Any], centre: Float64 | None = None, typical: float = 0.0
) -> npt.NDArray[Any]:
    """Return X (n, d) with extreme vectors moved in, and warn; return X itself if no vector is extreme.

    A vector is extreme if it is over 1,000 times as far from ``centre`` as ``typical``, the usual distance.
    It is moved towards the centre until it is as far out as the farthest vector that is not extreme. By
    default, the centre and the typical distance are medians of X.

    >>> import numpy as np
    >>> X = np.array([[1.0], [2.0], [5.0]])
    >>> move_extremes_in(X) is X
    True
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if centre is None:
            about_mean = _measure_distances(X, X.mean(axis=0, dtype=np.float64))
            if not about_mean.max() > _SUSPECT * _take_median(about_mean):
                return X
            centre = np.median(_take_sample(X), axis=0).astype(np.float64)
        distance = _measure_distances(X, centre)
        far = distance > _EXTREME * (typical or _take_median(distance))
        if not far.any():
            return X
        shrunk = distance[~far].max(initial=typical) / distance[far]
        moved = X.astype(np.result_type(X.dtype, np.float32))
        moved[far] = centre + (X[far] - centre) * shrunk[:, None]
        energy = np.square(distance / distance.max())
        share = energy[far].sum() / energy.sum()
    warnings.warn(
        f"{far.sum()} of {len(X)} training vectors are over {_EXTREME:.0f} times as far out as usual and "
        f"hold {share:.1%} of the energy: they were moved in, because otherwise nothing would be learned "
        "from the others. Remove them if they are errors, else scale the vectors first, e.g. to unit length",
        UserWarning,
        stacklevel=5,
    )
    return moved


def _warn_of_dominant_column(X: npt.NDArray[Any]) -> None:
    rows = _take_sample(X)
    with np.errstate(over="ignore", invalid="ignore"):
        centred = rows - rows.mean(axis=0, dtype=np.float64)
        energy = np.square(centred / (np.abs(centred).max() or 1.0)).sum(axis=0)
        energy[rows.min(axis=0) == rows.max(axis=0)] = 0.0  # constant columns: nothing but rounding errors
        column, total = int(energy.argmax()), energy.sum()
        rest = np.delete(energy, column).sum()
    if not 0.0 < rest * _EXTREME**2 < energy[column]:
        return
    warnings.warn(
        f"column {column} of the training vectors holds nearly all of the energy, all others together only "
        f"{rest / total:.1g} of it: codes will represent little else. Scale the columns first, e.g. "
        "by sklearn.preprocessing.StandardScaler, unless this is intended",
        UserWarning,
        stacklevel=5,
    )


def _take_sample(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return X[:: -(-len(X) // _SAMPLE)]


def _measure_distances(X: npt.NDArray[Any], centre: Float64) -> Float64:
    """Return the distance of each vector from a centre, computed like :func:`compute_root_mean_square`."""
    out = np.empty(len(X))
    for start in range(0, len(X), _ROWS):
        centred = X[start : start + _ROWS] - centre
        peak = np.abs(centred).max() or 1.0
        centred /= peak
        out[start : start + _ROWS] = peak * np.sqrt(np.einsum("ij,ij->i", centred, centred))
    return out


def _take_median(distance: Float64) -> float:
    """Return the median of the distances that are not zero: in some data, most vectors are equal."""
    positive = distance[distance > 0.0]
    return float(np.median(positive)) if len(positive) else 0.0
