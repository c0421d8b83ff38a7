"""What happens to vectors before the projection: centring, scaling, and PCA when d > D.

The paper (appendix, "Preprocessing") subtracts a stored mean, and reduces by PCA when the data has
more dimensions than the code has bits; it takes both from the whole base, a hasher here from the vectors
that it is fitted on. The division by one global scale is ours: codes do not depend on the scale of the
data, so learning must not either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA

from posh import _native
from posh.store import Arrays, expect

_ROWS = 4096
_FAR = 1e15  # beyond it float32 scores would overflow

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

__all__ = ["Preprocess"]


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
