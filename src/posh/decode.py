"""Decoders: from a code back to a vector (the paper's "Candidate refinement" and its appendix)."""

from __future__ import annotations

import collections
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.linalg
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from posh import _validate, kernels
from posh._progress import steps_of
from posh.codes import Codes
from posh.hashers._units import unit_rows
from posh.hashers.base import SparseHasher
from posh.preprocess import Float32, Float64

__all__ = ["SBIHT", "LinearDecoder"]

_ROWS = 8192
_TILE = 1024


class LinearDecoder(BaseEstimator):  # type: ignore[misc]
    """Least squares from codes to vectors: minimises Σ ‖xᵢ − μ − D hᵢ‖² in one pass (the paper's eq. 12).

    Parameters
    ----------
    ridge
        Weight of the penalty on D, relative to the mean diagonal of Σ h hᵀ. It makes D unique where the codes
        do not determine it: a bit that is never set adds nothing to a decoded vector.

    Attributes
    ----------
    weights_ : float32 (n_bits, n_features)
        The transpose of D.
    mean_ : float64 (n_features,)
        The mean μ of the vectors seen.

    Examples
    --------
    >>> import numpy as np, posh
    >>> X = np.random.default_rng(0).normal(size=(500, 16)).astype("float32")
    >>> codes = posh.POSH(n_bits=64, n_active=8, n_epochs=5, random_state=0).fit(X).encode(X)
    >>> restored = posh.LinearDecoder().fit(codes, X).decode(codes)
    >>> bool(np.square(X - restored).sum() < 0.5 * np.square(X).sum())
    True

    """

    weights_: Float32
    mean_: Float64
    _sums: _Sums

    def __init__(self, ridge: float = 1e-3) -> None:
        self.ridge = ridge

    def fit(self, codes: Codes, X: npt.ArrayLike) -> Self:
        """Learn from codes and their vectors (n, d); forget what was learned before."""
        return self._learn(codes, X, first=True)

    def partial_fit(self, codes: Codes, X: npt.ArrayLike) -> Self:
        """Learn from more codes and their vectors; the result equals one ``fit`` on all pairs seen so far."""
        return self._learn(codes, X, first=not hasattr(self, "weights_"))

    def decode(self, codes: Codes) -> Float32:
        """Vectors of the codes, float32 (n, d)."""
        check_is_fitted(self, "weights_")
        codes = _sparse(codes, len(self.weights_))
        return np.asarray(codes.to_csr() @ self.weights_ + self.mean_, np.float32)

    def _learn(self, codes: Codes, X: npt.ArrayLike, *, first: bool) -> Self:
        _validate.real("ridge", self.ridge, 0.0, open_low=True)
        codes = _sparse(codes, None if first else len(self._sums.counts))
        array = _validate.vectors(X, None if first else len(self.mean_))
        if len(array) != len(codes):
            raise ValueError(f"expected as many vectors as codes ({len(codes)}), got {len(array)}")
        sums = _Sums.zero(codes.n_bits, array.shape[1]) if first else copy.deepcopy(self._sums)
        for start in steps_of(range(0, len(array), _ROWS)):
            sums.add(codes[start : start + _ROWS], array[start : start + _ROWS])
        self.weights_ = sums.solve(self.ridge)
        self.mean_ = sums.total / sums.n
        self._sums = sums
        return self


@dataclass
class _Sums:
    """The sums that least squares need: n, Σx, Σh, Σhhᵀ, Σhxᵀ."""

    n: int
    total: Float64
    counts: Float64
    gram: Float64
    cross: Float64

    @classmethod
    def zero(cls, n_bits: int, n_features: int) -> _Sums:
        shapes = (n_features, n_bits, (n_bits, n_bits), (n_bits, n_features))
        return cls(0, *(np.zeros(shape) for shape in shapes))

    def add(self, codes: Codes, X: npt.NDArray[Any]) -> None:
        H = codes.to_csr().astype(np.float64)
        self.n += len(X)
        self.total += X.sum(axis=0, dtype=np.float64)
        self.counts += H.sum(axis=0)
        self.gram += (H.T @ H).toarray()
        self.cross += H.T @ X

    def solve(self, ridge: float) -> Float32:
        centred = self.cross - np.outer(self.counts, self.total / self.n)
        penalty = ridge * np.trace(self.gram) / len(self.gram)
        ridged = self.gram + penalty * np.eye(len(self.gram))
        return np.asarray(scipy.linalg.solve(ridged, centred, assume_a="pos"), np.float32)


def _sparse(codes: Any, n_bits: int | None = None) -> Codes:
    if not isinstance(codes, Codes):
        raise TypeError(f"expected sparse codes (posh.Codes), got {type(codes).__name__}")
    if n_bits is not None and codes.n_bits != n_bits:
        raise ValueError(f"expected codes of {n_bits} bits (the decoder's), got {codes.n_bits}")
    return codes


class SBIHT(BaseEstimator):  # type: ignore[misc]
    """Decodes by descent until the vector has the given code again (the paper's Algorithm 4).

    Starts from the vector of a :class:`LinearDecoder` and repeats x ← x − step · Wᵀ(wta(W x) − h). A code
    does not depend on the length of its vector, so the start is scaled to unit length: the paper's step,
    1/√(d D), then suits any data. At the end, the result is scaled back to the length of the start.

    Parameters
    ----------
    hasher
        The fitted sparse hasher that made the codes.
    decoder
        A linear decoder fitted on its codes.
    n_iter
        Largest number of iterations. A vector that has its code again stays as it is. The descent ends early
        when all vectors have their codes.
    step
        Length of a step, or None for 1/√(d D).

    Examples
    --------
    >>> import numpy as np, posh
    >>> X = np.random.default_rng(0).normal(size=(500, 16)).astype("float32")
    >>> hasher = posh.POSH(n_bits=64, n_active=8, n_epochs=5, random_state=0).fit(X)
    >>> codes = hasher.encode(X)
    >>> decoder = posh.SBIHT(hasher, posh.LinearDecoder().fit(codes, X), n_iter=100)
    >>> np.mean(hasher.encode(decoder.decode(codes)).active == codes.active).round(1)
    np.float64(1.0)

    """

    def __init__(
        self, hasher: SparseHasher, decoder: LinearDecoder, n_iter: int = 50, step: float | None = None
    ) -> None:
        self.hasher = hasher
        self.decoder = decoder
        self.n_iter = n_iter
        self.step = step

    def decode(self, codes: Codes) -> Float32:
        """Vectors of the codes, float32 (n, d)."""
        restored, _ = collections.deque(self.iterate(codes), maxlen=1)[0]
        return restored

    def iterate(self, codes: Codes) -> Iterator[tuple[Float32, int]]:
        """Yield the vectors and Σ ‖wta(W x) − h‖² over all codes, for the start and after each iteration."""
        n_iter = _validate.integer("n_iter", self.n_iter, 0)
        check_is_fitted(self.hasher, "weights_")
        codes = _sparse(codes, self.hasher.n_bits)
        prepare, W = self.hasher.preprocess_, self.hasher.weights_
        start = prepare(self.decoder.decode(codes))
        length = np.linalg.norm(start, axis=1, keepdims=True)
        step = (
            1.0 / np.sqrt(W.size)
            if self.step is None
            else _validate.real("step", self.step, 0.0, open_low=True)
        )
        Z, H = unit_rows(start), codes.to_csr()
        for iteration in range(n_iter + 1):
            difference = _winners(Z, W, codes.n_active).to_csr() - H
            loss = int(abs(difference).sum())
            yield prepare.inverse(Z * length), loss
            if loss == 0 or iteration == n_iter:
                return
            Z = Z - np.float32(step) * (difference @ W)


def _winners(Z: Float32, W: Float32, n_active: int) -> Codes:
    """Codes of Z (n, d) for weights W, a tile of rows at a time."""
    tiles = [kernels.winners(Z[i : i + _TILE] @ W.T, n_active) for i in range(0, max(1, len(Z)), _TILE)]
    return Codes.trusted(np.concatenate(tiles), len(W))
