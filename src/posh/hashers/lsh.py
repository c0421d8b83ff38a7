"""LSH: signs of random projections (Gionis et al. 1999; Charikar 2002)."""

from __future__ import annotations

from typing import Any

import numpy as np

from posh.hashers.base import DenseHasher
from posh.preprocess import Float32

__all__ = ["LSH"]


class LSH(DenseHasher):
    """``n_bits`` signs of Gaussian projections of the centred data; nothing else is learned.

    With more features than bits, PCA to ``n_bits`` components comes first, as in the paper's protocol.

    Examples
    --------
    >>> import numpy as np, posh
    >>> X = np.random.default_rng(0).normal(size=(100, 16))
    >>> posh.LSH(n_bits=8, random_state=0).fit(X).encode(X)
    PackedCodes(n=100, n_bits=8)

    """

    def __init__(self, n_bits: int = 64, *, random_state: Any = None) -> None:
        self.n_bits = n_bits
        self.random_state = random_state

    def _learn(self, Z: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        return rng.standard_normal((self.n_bits, Z.shape[1]), np.float32), []
