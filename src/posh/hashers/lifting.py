"""Sparse lifting: codes that preserve inner products, then a matrix that maps to them.

``BOSL`` is the paper's Binary Optimal Sparse Lifting (Algorithm 3), ``OSL`` the method of Li et al.
(2018) that BOSL improves. Vectors are rows, so ‖XXᵀ − YYᵀ‖² = ‖XᵀX‖² − 2‖XᵀY‖² + ‖YᵀY‖² needs no n × n
matrices: memory and time grow with n, not with n².
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from posh import kernels
from posh._runtime import iterate_cancellable, raise_if_cancelled, track_progress
from posh._validate import validate_integer, validate_real
from posh.hashers.base import FitCost, SparseHasher
from posh.preprocess import Float32, normalize_rows

__all__ = ["BOSL", "OSL"]

_SMOOTH = 1e-2  # ε: (y + ε)^p is differentiable at 0, unlike y^p
_MEMORY = 5  # correction pairs of L-BFGS, each twice the size of Y
_ARMIJO = 1e-4  # a step must decrease the value by this fraction of the linear prediction
_FLAT = 1e-4  # relative decrease below which the solver stops

Pair = tuple[Float32, Float32, float]  # s, y, 1 / (s · y)


class BOSL(SparseHasher):
    """Binary Optimal Sparse Lifting (the paper's Algorithm 3).

    First, ADMM with λ = 1 minimises ¼ ‖XXᵀ − YYᵀ‖² over Y in [0, 1], subject to Y = H, where H is a code with
    ``n_active`` ones per row. Then W is the least-squares map from the unit vectors X to Y.

    The paper does not say how many iterations there are, and prints both ¼ and ½. One ADMM iteration of 20
    solver steps with ¼ comes close to its tables; more iterations lower the accuracy on MNIST. Three choices
    are ours: the start is clipped to the box and scaled to fit XXᵀ; the solver is a projected L-BFGS; and
    there is a small ridge, which constant features need. Its default, 0.01, comes closest to the printed
    tables.

    Memory is about 22 times that of the (n, n_bits) codes in float32: 4 GB for 50,000 vectors.

    Parameters
    ----------
    n_bits, n_active
        The paper's D and α.
    n_epochs
        ADMM iterations, the paper's K − 1.
    n_steps
        Largest number of solver steps in each.
    ridge
        Penalty on W, relative to the mean eigenvalue of XᵀX.
    reduce
        As in :class:`POSH`.
    random_state : int, RandomState or None
        Source of the random numbers.

    Attributes
    ----------
    objective_
        ¼ ‖XXᵀ − YYᵀ‖² / n² after each ADMM iteration.

    Examples
    --------
    >>> import numpy as np, posh
    >>> X = np.random.default_rng(0).normal(size=(500, 16))
    >>> posh.BOSL(n_bits=64, n_active=4, random_state=0).fit(X).encode(X)
    Codes(n=500, n_active=4, n_bits=64)

    """

    def __init__(
        self,
        n_bits: int = 1024,
        n_active: int = 32,
        *,
        n_epochs: int = 1,
        n_steps: int = 20,
        ridge: float = 0.01,
        reduce: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_active = n_active
        self.n_epochs = n_epochs
        self.n_steps = n_steps
        self.ridge = ridge
        self.reduce = reduce
        self.random_state = random_state

    def _check_params(self) -> None:
        super()._check_params()
        validate_integer("n_epochs", self.n_epochs, 1)
        validate_integer("n_steps", self.n_steps, 1)
        validate_real("ridge", self.ridge, 0.0, open_low=True)

    def _estimate_learning(self, n: int, d: int) -> FitCost:
        codes, gram = n * self.n_bits, self.n_bits**2
        step = 6 * codes * (self.n_bits + d) + 60 * codes
        n_bytes = 88 * codes + 16 * gram + 4 * n * d + 24 * self.n_bits * d
        return FitCost(n_bytes, self.n_epochs * (self.n_steps * step + 8 * self.n_bits**3))

    def _learn(self, Z: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        X = normalize_rows(Z)
        Y = X @ rng.standard_normal((X.shape[1], self.n_bits), np.float32)
        H = mark_winners(Y, self.n_active)
        Y = _fit_scale(X, np.clip(Y, 0, 1))
        multiplier = np.zeros_like(Y)
        objective = []
        for epoch in iterate_cancellable(range(self.n_epochs)):
            if epoch:
                H = mark_winners(Y + multiplier, self.n_active)
            problem = SimilarityMatching(X, H + multiplier)
            Y = minimize_on_box(problem, Y, self.n_steps, "BOSL")
            multiplier += H - Y
            distance = Y - problem.target
            objective.append((problem.evaluate(Y) - 0.5 * _dot(distance, distance)) / len(X) ** 2)
        return _solve_ridge(X, Y, self.ridge), objective


class OSL(SparseHasher):
    """Optimal Sparse Lifting (Li et al. 2018), reformulated so that Frank-Wolfe applies.

    It first minimises ½ ‖α XXᵀ − YYᵀ‖² + γ Σ (y + ε)^p over Y in [0, 1] whose rows have the sum ``n_active``.
    Then it minimises ½ ‖X Wᵀ − Y‖² + β Σ (w + ε)^p over W in [0, 1] whose rows have the sum ``n_inputs``.

    γ, β, p and the number of iterations were not published; we chose them. We changed two things. Frank-Wolfe
    needs a differentiable objective, which |y|^p is not at 0, so we add ε = 0.01. And we multiply
    similarities by α, because a code has the squared norm α and a vector has 1.

    Each iteration moves towards the vertex that minimises the linearised objective. That vertex has ones at
    the smallest entries of the gradient, so winner-take-all finds it. The step is exact for the polynomial
    part, and safe for the concave penalty, which lies below its tangent.

    Parameters
    ----------
    n_bits, n_active
        The paper's D and α.
    n_inputs
        The sum of each row of W, or None for a tenth of the features.
    gamma, beta
        Weights of the sparsity penalties on codes and on weights; with 0, sparsity is left to the vertices.
    p
        Exponent of the penalties, in (0, 1].
    n_epochs
        Frank-Wolfe iterations for the codes; the weights get four times as many.
    reduce
        As in :class:`POSH`.
    random_state : int, RandomState or None
        Source of the random numbers.

    Attributes
    ----------
    objective_
        The first objective divided by n², per iteration; it never rises.

    Examples
    --------
    >>> import numpy as np, posh
    >>> X = np.random.default_rng(0).normal(size=(500, 16))
    >>> posh.OSL(n_bits=64, n_active=4, random_state=0).fit(X).encode(X)
    Codes(n=500, n_active=4, n_bits=64)

    """

    def __init__(
        self,
        n_bits: int = 1024,
        n_active: int = 32,
        *,
        n_inputs: int | None = None,
        gamma: float = 0.0,
        beta: float = 0.0,
        p: float = 0.5,
        n_epochs: int = 50,
        reduce: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_active = n_active
        self.n_inputs = n_inputs
        self.gamma = gamma
        self.beta = beta
        self.p = p
        self.n_epochs = n_epochs
        self.reduce = reduce
        self.random_state = random_state

    def _check_params(self) -> None:
        super()._check_params()
        validate_integer("n_epochs", self.n_epochs, 1)
        validate_real("gamma", self.gamma, 0.0)
        validate_real("beta", self.beta, 0.0)
        validate_real("p", self.p, 0.0, 1.0, open_low=True)

    def _estimate_learning(self, n: int, d: int) -> FitCost:
        codes, gram, weights = n * self.n_bits, self.n_bits**2, self.n_bits * d
        n_bytes = 36 * codes + 24 * gram + 8 * n * d + 40 * weights
        epoch = codes * (3 * self.n_bits + 4 * d + 40) + 10 * gram
        return FitCost(n_bytes, self.n_epochs * (epoch + 4 * (2 * weights * d + 40 * weights)))

    def _learn(self, Z: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        d = Z.shape[1]
        n_inputs = max(1, d // 10) if self.n_inputs is None else self.n_inputs
        n_inputs = validate_integer("n_inputs", n_inputs, 1, d, " (the number of features)")
        X = normalize_rows(Z)
        Y, objective = self._learn_codes(X, rng)
        return self._learn_weights(X, Y, n_inputs), objective

    def _learn_codes(self, X: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        X = X * np.float32(np.sqrt(self.n_active))
        Y = mark_winners(X @ rng.standard_normal((X.shape[1], self.n_bits), np.float32), self.n_active)
        similarity = _dot(gram := X.T @ X, gram)
        cross, gram = X.T @ Y, Y.T @ Y
        objective = []
        for _ in track_progress(range(self.n_epochs), "OSL codes", "iteration"):
            gradient = 2.0 * (Y @ gram - X @ cross) + self._compute_slope(Y, self.gamma)
            towards = mark_winners(-gradient, self.n_active) - Y
            B, C, E = X.T @ towards, Y.T @ towards, towards.T @ towards
            C = C + C.T
            quadratic = 0.5 * (_dot(C, C) - 2.0 * _dot(B, B)) + _dot(gram, E)
            step = np.float32(
                _find_best_step(_dot(gradient, towards), quadratic, _dot(C, E), 0.5 * _dot(E, E))
            )
            Y = Y + step * towards
            cross, gram = cross + step * B, gram + step * C + step * step * E
            match = 0.5 * (similarity - 2.0 * _dot(cross, cross) + _dot(gram, gram))
            objective.append((match + self._compute_penalty(Y, self.gamma)) / len(X) ** 2)
            if step == 0.0:
                break
        return Y, objective

    def _learn_weights(self, X: Float32, Y: Float32, n_inputs: int) -> Float32:
        gram, cross = X.T @ X, Y.T @ X
        W = mark_winners(cross, n_inputs)
        for _ in track_progress(range(4 * self.n_epochs), "OSL weights", "iteration"):
            gradient = W @ gram - cross + self._compute_slope(W, self.beta)
            towards = mark_winners(-gradient, n_inputs) - W
            # Rows do not depend on one another, so each takes its own exact step.
            slope = np.einsum("ij,ij->i", gradient, towards)
            bend = np.einsum("ij,ij->i", towards @ gram, towards)
            step = np.clip(np.divide(-slope, bend, out=np.zeros_like(slope), where=bend > 0), 0, 1)
            if not step.any():
                break
            W = W + step[:, None] * towards
        return W

    def _compute_slope(self, Y: Float32, weight: float) -> Float32 | float:
        return weight * self.p * (Y + np.float32(_SMOOTH)) ** np.float32(self.p - 1.0) if weight else 0.0

    def _compute_penalty(self, Y: Float32, weight: float) -> float:
        return weight * float(((Y + np.float32(_SMOOTH)) ** np.float32(self.p)).sum()) if weight else 0.0


def mark_winners(scores: npt.NDArray[Any], n_active: int) -> Float32:
    """Return float32 ones at the winners of each row and zeros elsewhere, in the shape of the scores."""
    scores = np.ascontiguousarray(scores, np.float32)
    hot = np.zeros_like(scores)
    np.put_along_axis(hot, kernels.winners(scores, n_active).astype(np.int64), 1.0, axis=1)
    return hot


def _fit_scale(X: Float32, Y: Float32) -> Float32:
    """Return Y times the factor that minimises ‖XXᵀ − YYᵀ‖: without it, Y is hundreds of times too large."""
    size = float(np.linalg.norm(Y.T @ Y))
    return Y if size == 0.0 else Y * np.float32(np.linalg.norm(X.T @ Y) / size)


def _solve_ridge(X: Float32, Y: Float32, ridge: float) -> Float32:
    """Return the W (D, d) that minimises ‖X Wᵀ − Y‖² + ridge · (mean eigenvalue of XᵀX) · ‖W‖²."""
    gram = (X.T @ X).astype(np.float64)
    gram += np.eye(len(gram)) * max(ridge * np.trace(gram) / len(gram), 1e-30)
    solution = scipy.linalg.solve(gram, (X.T @ Y).astype(np.float64), assume_a="pos")
    return np.ascontiguousarray(solution.T, np.float32)


def _find_best_step(c1: float, c2: float, c3: float, c4: float) -> float:
    """Return the t in [0, 1] that minimises c1 t + c2 t² + c3 t³ + c4 t⁴."""
    slope = np.array([4.0 * c4, 3.0 * c3, 2.0 * c2, c1])
    slope[np.abs(slope) < 1e-12 * np.abs(slope).max()] = (
        0.0  # a tiny coefficient would make all roots inaccurate
    )
    roots = np.roots(slope)
    inside = roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > 0) & (roots.real < 1)]
    candidates = np.append(inside, [0.0, 1.0])
    values = candidates * (c1 + candidates * (c2 + candidates * (c3 + candidates * c4)))
    return float(candidates[np.argmin(values)])


# Similarity matching on the box [0, 1] --------------------------------------------------------------


class SimilarityMatching:
    """f(Y) = ¼ ‖XXᵀ − YYᵀ‖² + ½ ‖Y − T‖² for X (n, d), Y and T (n, D)."""

    def __init__(self, X: Float32, target: Float32) -> None:
        self.X = X
        self.target = target
        gram = X.T @ X
        self._constant = _dot(gram, gram)

    def evaluate(self, Y: Float32) -> float:
        """Return f(Y), and store two small products that :meth:`compute_gradient` needs at the same Y."""
        raise_if_cancelled()
        self._cross, self._gram = self.X.T @ Y, Y.T @ Y
        distance = Y - self.target
        match = self._constant - 2.0 * _dot(self._cross, self._cross) + _dot(self._gram, self._gram)
        return 0.25 * match + 0.5 * _dot(distance, distance)

    def compute_gradient(self, Y: Float32) -> Float32:
        """Return the gradient (n, D) at Y, which must be the Y of the last call of :meth:`evaluate`."""
        raise_if_cancelled()
        gradient = Y @ self._gram
        gradient -= self.X @ self._cross
        gradient += Y - self.target
        return gradient

    def bound_curvature(self) -> float:
        """Return an upper bound of the largest curvature of the quadratic part, for the first step."""
        return float(np.linalg.norm(self._gram, 2)) + 1.0


def minimize_on_box(problem: SimilarityMatching, Y: Float32, n_iter: int, title: str) -> Float32:
    """Minimise over 0 <= Y <= 1 from a feasible start (n, D) by projected L-BFGS.

    The two-loop recursion, on the variables that no bound holds, gives the direction. Backtracking along the
    projection gives the step. The method is like L-BFGS-B, but in float32 and without the generalised Cauchy
    point: an iteration on millions of variables is several times cheaper.
    """
    value = problem.evaluate(Y)
    gradient = problem.compute_gradient(Y)
    pairs: deque[Pair] = deque(maxlen=_MEMORY)
    for _ in track_progress(range(n_iter), title, "iteration"):
        free = ~(((Y <= 0) & (gradient > 0)) | ((Y >= 1) & (gradient < 0)))
        direction = _two_loop(np.where(free, gradient, np.float32(0)), pairs) * free
        if _dot(direction, gradient) <= 0.0:
            pairs.clear()
            direction = np.where(free, gradient, np.float32(0))
        step = 1.0 if pairs else 1.0 / problem.bound_curvature()
        moved, new_value = _backtrack(problem, Y, value, gradient, direction, step)
        new_gradient = problem.compute_gradient(moved)
        s, y = moved - Y, new_gradient - gradient
        if (product := _dot(s, y)) > 1e-10 * _dot(y, y):
            pairs.append((s, y, 1.0 / product))
        decrease = value - new_value
        Y, value, gradient = moved, new_value, new_gradient
        if decrease < _FLAT * abs(value):
            break
    return Y


def _two_loop(q: Float32, pairs: deque[Pair]) -> Float32:
    """Return the inverse Hessian of L-BFGS times q."""
    weights = []
    for s, y, rho in reversed(pairs):
        weights.append(rho * _dot(s, q))
        q = q - np.float32(weights[-1]) * y
    if pairs:
        _, y, rho = pairs[-1]
        q = q * np.float32(1.0 / (rho * _dot(y, y)))
    for (s, y, rho), weight in zip(pairs, reversed(weights), strict=True):
        q = q + np.float32(weight - rho * _dot(y, q)) * s
    return q


def _backtrack(
    problem: SimilarityMatching, Y: Float32, value: float, gradient: Float32, direction: Float32, step: float
) -> tuple[Float32, float]:
    """Shorten the step until the projected point decreases the value enough."""
    while True:
        moved = np.clip(Y - np.float32(step) * direction, 0, 1)
        slope = _dot(gradient, moved - Y)
        new_value = problem.evaluate(moved)
        if new_value <= value + _ARMIJO * slope or step < 1e-8:
            return moved, new_value
        bend = new_value - value - slope
        minimum = -slope * step / (2.0 * bend) if bend > 0 else step
        step = max(0.1 * step, min(0.5 * step, minimum))


def _dot(A: npt.NDArray[Any], B: npt.NDArray[Any]) -> float:
    """Return the sum of the products of the entries."""
    return float(np.vdot(A, B))
