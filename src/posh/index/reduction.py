"""What a search looks at of vectors with many columns: their principal components."""

from __future__ import annotations

import numpy as np

from posh._threads import no_fork
from posh.preprocess import Float32

__all__ = ["principal_rows"]

_WIDE = 512  # features from which on fewer numbers are faster: comparing all of them takes most of the time
_ENERGY = 0.9  # share of the squares that is kept
_STEP = 64  # columns that the kernels read at once
_ROWS = 20_000  # that decide


def principal_rows(residuals: Float32, rng: np.random.Generator) -> Float32 | None:
    """Orthonormal rows (m, d) whose products with residuals (n, d) keep nine tenths of their squares.

    The rows are principal components, turned at random: then all products are about equally large, which is
    best for 8-bit numbers. None if d is small, or if m would be more than half of d.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> flat = rng.standard_normal((1000, 40)) @ rng.standard_normal((40, 800))
    >>> principal_rows(flat.astype(np.float32), rng).shape
    (64, 800)
    """
    d = residuals.shape[1]
    if d < _WIDE or len(residuals) < 2:
        return None
    some = residuals[np.sort(rng.permutation(len(residuals))[:_ROWS])]
    with no_fork:
        energies, directions = np.linalg.eigh(some.T @ some)  # ascending
    shares = np.cumsum(energies[::-1].astype(np.float64)) / max(float(energies.sum()), np.finfo(float).tiny)
    needed = int(np.searchsorted(shares, _ENERGY)) + 1
    m = -(-needed // _STEP) * _STEP
    if 2 * m > d:
        return None
    turned, _ = np.linalg.qr(rng.standard_normal((m, m)))
    return np.ascontiguousarray(turned @ directions[:, -m:].T, np.float32)
