"""Decoders from codes to vectors (the paper's "Candidate refinement" and its appendix)."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.linalg
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from posh import kernels
from posh._runtime import iterate_cancellable
from posh._validate import validate_integer, validate_real, validate_vectors
from posh.codes import Codes
from posh.hashers.base import SparseHasher
from posh.preprocess import Float32, Float64, normalize_rows

__all__ = ["SBIHT", "LinearDecoder", "PairSums", "RidgeSolution"]

_ROWS = 8192
_TILE = 1024
_RIDGES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class LinearDecoder(BaseEstimator):  # type: ignore[misc]
    """Least squares from codes to vectors: minimises Σ ‖xᵢ − μ − D hᵢ‖² in one pass (the paper's eq. 12).

    Parameters
    ----------
    ridge
        Weight of the penalty on D, relative to the mean diagonal of Σ h hᵀ. It makes D unique where the codes
        do not determine it: a bit that is never set adds nothing to a decoded vector. None chooses a weight
        from 0.001 to 10 by generalised cross-validation, which estimates the error on held-out vectors.

    Attributes
    ----------
    weights_ : float32 (n_bits, n_features)
        The transpose of D.
    mean_ : float64 (n_features,)
        The mean μ of the vectors seen.
    ridge_ : float
        The weight of the penalty in use.

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
    ridge_: float
    _sums: PairSums

    def __init__(self, ridge: float | None = 1e-3) -> None:
        self.ridge = ridge

    def fit(self, codes: Codes, X: npt.ArrayLike) -> Self:
        """Learn from codes and their vectors (n, d), discarding any earlier fit."""
        return self._learn(codes, X, first=True)

    def partial_fit(self, codes: Codes, X: npt.ArrayLike) -> Self:
        """Learn from more codes and their vectors; the result equals one ``fit`` on all pairs seen so far."""
        return self._learn(codes, X, first=not hasattr(self, "weights_"))

    def decode(self, codes: Codes) -> Float32:
        """Return the vectors of the codes, float32 (n, d)."""
        check_is_fitted(self, "weights_")
        codes = _validate_codes(codes, len(self.weights_))
        return np.asarray(codes.to_csr() @ self.weights_ + self.mean_, np.float32)

    def _learn(self, codes: Codes, X: npt.ArrayLike, *, first: bool) -> Self:
        if self.ridge is not None:
            validate_real("ridge", self.ridge, 0.0, open_low=True)
        codes = _validate_codes(codes, None if first else len(self.weights_))
        array = validate_vectors(X, None if first else len(self.mean_))
        if len(array) != len(codes):
            raise ValueError(f"expected as many vectors as codes ({len(codes)}), got {len(array)}")
        sums = PairSums.zero(codes.n_bits, array.shape[1]) if first else self._sums
        sums = sums.with_pairs(codes, array)
        self.weights_, self.mean_, self.ridge_ = sums.solve(self.ridge)
        self._sums = sums
        return self


class RidgeSolution(NamedTuple):
    """Weights (n_bits, d) and mean (d,) of a linear decoder, and the ridge that they were solved with."""

    weights: Float32
    mean: Float64
    ridge: float


@dataclass(frozen=True, eq=False)
class PairSums:
    """The sums over pairs of codes and vectors that least squares need: n, Σ‖x‖², Σx, Σhhᵀ, Σhxᵀ."""

    n: int
    square: float
    total: Float64
    gram: Float64
    cross: Float64

    @classmethod
    def zero(cls, n_bits: int, n_features: int) -> PairSums:
        """Return the sums over no pairs."""
        return cls(0, 0.0, np.zeros(n_features), np.zeros((n_bits, n_bits)), np.zeros((n_bits, n_features)))

    def with_pairs(self, codes: Codes, X: npt.NDArray[Any]) -> PairSums:
        """Return the sums including these pairs; their order affects only the rounding."""
        square, total, gram, cross = self.square, self.total.copy(), self.gram.copy(), self.cross.copy()
        for start in iterate_cancellable(range(0, len(X), _ROWS)):
            H, some = codes[start : start + _ROWS].to_csr().astype(np.float64), X[start : start + _ROWS]
            square += float(np.einsum("ij,ij->", some, some, dtype=np.float64))
            total += some.sum(axis=0, dtype=np.float64)
            gram += (H.T @ H).toarray()
            cross += H.T @ some
        return PairSums(self.n + len(X), square, total, gram, cross)

    def solve(self, ridge: float | None) -> RidgeSolution:
        """Solve the least squares of :class:`LinearDecoder`."""
        mean = self.total / self.n
        centred = self.cross - np.outer(np.diag(self.gram), mean)
        if ridge is None:
            return self._solve_with_best_ridge(centred, mean)
        ridged = self.gram + self._compute_penalty(ridge) * np.eye(len(self.gram))
        weights = scipy.linalg.solve(ridged, centred, assume_a="pos")
        return RidgeSolution(np.asarray(weights, np.float32), mean, ridge)

    def _compute_penalty(self, ridge: float) -> float:
        return float(ridge * np.trace(self.gram) / len(self.gram))

    def _solve_with_best_ridge(self, centred: Float64, mean: Float64) -> RidgeSolution:
        """Solve with the ridge of least generalised cross-validation error (Golub, Heath and Wahba 1979).

        That is r / (n − t)² with the squared residuals r of all pairs and the trace t of the matrix that maps
        vectors to decoded vectors. Both follow from the eigenvalues s of Σhhᵀ and the squared lengths c of
        Σhxᵀ along its eigenvectors: r = Σ‖x − μ‖² − Σ c (s + 2p) / (s + p)², t = Σ s / (s + p), penalty p.
        """
        used = np.flatnonzero(np.diag(self.gram))
        s, vectors = scipy.linalg.eigh(self.gram[np.ix_(used, used)])
        along = vectors.T @ centred[used]
        c = np.square(along).sum(axis=1)
        spread = self.square - self.total @ self.total / self.n

        def error(ridge: float) -> float:
            p = self._compute_penalty(ridge)
            residual = spread - c @ ((s + 2 * p) / (s + p) ** 2)
            return float(residual / (self.n - (s / (s + p)).sum()) ** 2)

        ridge = min(_RIDGES, key=error)
        weights = np.zeros(centred.shape, np.float32)
        weights[used] = vectors @ (along / (s + self._compute_penalty(ridge))[:, None])
        return RidgeSolution(weights, mean, ridge)


def _validate_codes(codes: Any, n_bits: int | None = None) -> Codes:
    if not isinstance(codes, Codes):
        raise TypeError(f"expected sparse codes (posh.Codes), got {type(codes).__name__}")
    if n_bits is not None and codes.n_bits != n_bits:
        raise ValueError(f"expected codes of {n_bits} bits (the decoder's), got {codes.n_bits}")
    return codes


class SBIHT(BaseEstimator):  # type: ignore[misc]
    """Decoder that descends until the vector has its code again (the paper's Algorithm 4).

    Starts from the vector of a :class:`LinearDecoder` and repeats x ← x − step · Wᵀ(wta(W x) − h). A code
    does not depend on the length of its vector, so the start is scaled to unit length: the paper's step,
    1/√(d D), then suits any data. At the end, the result is scaled back to the length of the start.

    Parameters
    ----------
    hasher
        The fitted sparse hasher that computed the codes.
    decoder
        A linear decoder fitted on its codes.
    n_iter
        Largest number of iterations. A vector that has its code again does not change any more. The descent
        ends early when all vectors have their codes.
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
        """Return the vectors of the codes, float32 (n, d)."""
        restored, _ = collections.deque(self.iterate(codes), maxlen=1)[0]
        return restored

    def iterate(self, codes: Codes) -> Iterator[tuple[Float32, int]]:
        """Yield the vectors and Σ ‖wta(W x) − h‖² over all codes, for the start and after each iteration."""
        n_iter = validate_integer("n_iter", self.n_iter, 0)
        check_is_fitted(self.hasher, "weights_")
        codes = _validate_codes(codes, self.hasher.n_bits)
        prepare, W = self.hasher.preprocess_, self.hasher.weights_
        start = prepare(self.decoder.decode(codes))
        length = np.linalg.norm(start, axis=1, keepdims=True)
        step = (
            1.0 / np.sqrt(W.size)
            if self.step is None
            else validate_real("step", self.step, 0.0, open_low=True)
        )
        Z, H = normalize_rows(start), codes.to_csr()
        for iteration in range(n_iter + 1):
            difference = _find_winners(Z, W, codes.n_active).to_csr() - H
            loss = int(abs(difference).sum())
            yield prepare.invert(Z * length), loss
            if loss == 0 or iteration == n_iter:
                return
            Z = Z - np.float32(step) * (difference @ W)


def _find_winners(Z: Float32, W: Float32, n_active: int) -> Codes:
    """Encode Z (n, d) with weights W, a tile of rows at a time."""
    tiles = [kernels.winners(Z[i : i + _TILE] @ W.T, n_active) for i in range(0, max(1, len(Z)), _TILE)]
    return Codes.wrap(np.concatenate(tiles), len(W))
