"""What happens to vectors before the projection: centring, scaling, and PCA when d > D.

The paper (appendix, "Preprocessing") subtracts a stored mean, and reduces by PCA when the data has
more dimensions than the code has bits; it takes both from the whole base, a hasher here from the vectors
that it is fitted on. The division by one global scale is ours: codes do not depend on the scale of the
data, so learning must not either.

So is :func:`training_rows`: one vector a million times as long as the others would decide the mean, the
principal directions and the sums that hashers learn from.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from posh import _native
from posh.store import Arrays, expect

_ROWS = 4096
_FAR = 1e15  # beyond it float32 scores would overflow
_EXTREME = 1000.0  # times as far out as others, or as much deviation: more than clusters and units explain
_SUSPECT = 8.0  # times as far from the mean, which extreme vectors pull: then the median is worth its time
_SAMPLE = 4096  # rows that the median is taken of

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

__all__ = ["Preprocess", "moved_in", "training_rows"]


@dataclass(frozen=True, eq=False)
class Preprocess:
    """Maps vectors (n, d) to ``((X - mean) / scale) @ components.T``, float32 (n, d').

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
        """Learn from vectors (n, d); with ``n_components``, also that many principal directions.

        Data that spans fewer directions (n or d is smaller) gives fewer components.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            mean = X.mean(axis=0, dtype=np.float64)
            scale = root_mean_square(X, mean)
        if not 1e-30 <= scale <= 1e30:
            raise ValueError(
                f"expected vectors whose deviation from their mean is within 1e-30 .. 1e30, got {scale:.3g}: "
                "rescale them"
            )
        if n_components is None:
            return cls(mean, scale)
        from sklearn.decomposition import PCA  # takes long to import, and few data sets need it

        pca = PCA(min(n_components, *X.shape), random_state=0).fit((X - mean) / scale)
        return cls(mean, scale, np.ascontiguousarray(pca.components_, np.float32))

    @property
    def n_features_out(self) -> int:
        """Number of columns of the result."""
        return len(self.mean) if self.components is None else len(self.components)

    def __call__(self, X: npt.NDArray[Any]) -> Float32:
        """Transform vectors (n, d)."""
        return self.reduce(self.centre(X, np.empty(X.shape, np.float32)))

    def centre(self, X: npt.NDArray[Any], out: Float32) -> Float32:
        """Write ``(X - mean) / scale`` to ``out``, float32 (n, d), and return it.

        float64 vectors are centred in float64, small integers in float32. NaN and inf are refused too, in
        the words for what is too large.
        """
        dtype = np.result_type(X.dtype, np.float32)
        rows = np.require(X, dtype, ["C_CONTIGUOUS", "ALIGNED"])
        largest = _native.centre(rows, self.mean.astype(dtype), 1.0 / self.scale, out)
        if not largest <= _FAR:
            raise ValueError(
                f"expected vectors on the scale of the training data (deviation {self.scale:.3g}), got one "
                f"{_FAR:g} times as large: use the same preprocessing for both"
            )
        return out

    def reduce(self, centred: Float32) -> Float32:
        """Apply PCA, if there is one, to the result of :meth:`centre`."""
        return centred if self.components is None else np.asarray(centred @ self.components.T)

    def inverse(self, Z: Float32) -> Float32:
        """Map float32 (n, d') back to vectors (n, d); what PCA dropped stays at the mean."""
        centred = Z if self.components is None else Z @ self.components
        return np.asarray(centred * self.scale + self.mean, np.float32)

    def state(self) -> Arrays:
        """Arrays from which :meth:`restore` makes the same object."""
        arrays: Arrays = {"mean": self.mean, "scale": np.array(self.scale)}
        return arrays if self.components is None else arrays | {"components": self.components}

    @classmethod
    def restore(cls, arrays: Arrays) -> Preprocess:
        """Check and take over the arrays of :meth:`state`."""
        mean = expect(arrays, "mean", np.float64, (None,))
        scale = float(expect(arrays, "scale", np.float64, ()))
        if scale <= 0.0:
            raise ValueError(f"expected a positive scale, found {scale}")
        components = arrays.get("components")
        if components is not None:
            components = expect(arrays, "components", np.float32, (None, len(mean)))
        return cls(mean, scale, components)


def root_mean_square(X: npt.NDArray[Any], mean: Float64) -> float:
    """Root of the mean square of ``X - mean``, or 1 if that is zero."""
    peak = max(float(np.max(X.max(axis=0) - mean)), float(np.max(mean - X.min(axis=0))))
    if peak == 0.0:
        return 1.0
    total = 0.0
    for start in range(
        0, len(X), _ROWS
    ):  # in chunks, and relative to the peak: neither memory nor range overflows
        total += float(np.square((X[start : start + _ROWS] - mean) / peak).sum())
    return peak * float(np.sqrt(total / X.size))


def training_rows(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Vectors (n, d) to learn from: X itself, or what :func:`moved_in` makes of it; warns of bad scaling."""
    rows = moved_in(X)
    _warn_of_one_column(rows)
    return rows


def moved_in(X: npt.NDArray[Any], centre: Float64 | None = None, typical: float = 0.0) -> npt.NDArray[Any]:
    """Vectors (n, d) with those that are extremely far out moved in, which warns; X itself if there are none.

    They are moved towards the ``centre`` until they are as far out as the farthest of the others. ``typical``
    is the usual distance from the centre; both are by default medians of X.

    >>> import numpy as np
    >>> X = np.array([[1.0], [2.0], [5.0]])
    >>> moved_in(X) is X
    True
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if centre is None:
            about_mean = _distances(X, X.mean(axis=0, dtype=np.float64))
            if not about_mean.max() > _SUSPECT * _median(about_mean):
                return X
            centre = np.median(_sample(X), axis=0).astype(np.float64)
        distance = _distances(X, centre)
        far = distance > _EXTREME * (typical or _median(distance))
        if not far.any():
            return X
        shrunk = distance[~far].max(initial=typical) / distance[far]
        moved = X.astype(np.result_type(X.dtype, np.float32))
        moved[far] = centre + (X[far] - centre) * shrunk[:, None]
        energy = np.square(distance / distance.max())
        share = energy[far].sum() / energy.sum()
    warnings.warn(
        f"{far.sum()} of {len(X)} training vectors are over {_EXTREME:.0f} times as far out as usual and "
        f"hold {share:.1%} of the energy: they were moved in, or nothing would be learned from the others. "
        "Leave them out if they are errors, else scale the vectors first, e.g. to unit length",
        UserWarning,
        stacklevel=5,
    )
    return moved


def _warn_of_one_column(X: npt.NDArray[Any]) -> None:
    rows = _sample(X)
    with np.errstate(over="ignore", invalid="ignore"):
        centred = rows - rows.mean(axis=0, dtype=np.float64)
        energy = np.square(centred / (np.abs(centred).max() or 1.0)).sum(axis=0)
        energy[rows.min(axis=0) == rows.max(axis=0)] = 0.0  # constant: what is left of it is rounding
        column, total = int(energy.argmax()), energy.sum()
        rest = np.delete(energy, column).sum()
    if not 0.0 < rest * _EXTREME**2 < energy[column]:
        return
    warnings.warn(
        f"column {column} of the training vectors holds nearly all of the energy, all others together only "
        f"{rest / total:.1g} of it: codes will tell of little else. Scale the columns first, e.g. by "
        "sklearn.preprocessing.StandardScaler, unless this is meant",
        UserWarning,
        stacklevel=5,
    )


def _sample(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return X[:: -(-len(X) // _SAMPLE)]


def _distances(X: npt.NDArray[Any], centre: Float64) -> Float64:
    """Distance of each row from a centre: in chunks, and relative to the peak as above."""
    out = np.empty(len(X))
    for start in range(0, len(X), _ROWS):
        centred = X[start : start + _ROWS] - centre
        peak = np.abs(centred).max() or 1.0
        centred /= peak
        out[start : start + _ROWS] = peak * np.sqrt(np.einsum("ij,ij->i", centred, centred))
    return out


def _median(distance: Float64) -> float:
    """Median of those that are not zero: most vectors of some data are equal."""
    positive = distance[distance > 0.0]
    return float(np.median(positive)) if len(positive) else 0.0
