"""Similarity matching without n × n matrices, and a solver for it on the box [0, 1].

Vectors are rows, so ‖XXᵀ − YYᵀ‖² = ‖XᵀX‖² − 2‖XᵀY‖² + ‖YᵀY‖²: memory and time grow with n, not with n².
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from posh._progress import checkpoint, progress
from posh.preprocess import Float32

_MEMORY = 5  # correction pairs of L-BFGS, each twice the size of Y
_ARMIJO = 1e-4  # a step must decrease the value by this fraction of what the slope promises
_FLAT = 1e-4  # relative decrease below which the solver stops

Pair = tuple[Float32, Float32, float]  # s, y, 1 / (s · y)


class SimilarityMatching:
    """f(Y) = ¼ ‖XXᵀ − YYᵀ‖² + ½ ‖Y − T‖² for X (n, d), Y and T (n, D)."""

    def __init__(self, X: Float32, target: Float32) -> None:
        self.X = X
        self.target = target
        gram = X.T @ X
        self._constant = dot(gram, gram)

    def value(self, Y: Float32) -> float:
        """Return f(Y), and keep two small products that :meth:`gradient` needs at the same Y."""
        checkpoint()
        self._cross, self._gram = self.X.T @ Y, Y.T @ Y
        distance = Y - self.target
        match = self._constant - 2.0 * dot(self._cross, self._cross) + dot(self._gram, self._gram)
        return 0.25 * match + 0.5 * dot(distance, distance)

    def gradient(self, Y: Float32) -> Float32:
        """Return the gradient (n, D) at Y, which must be the Y of the last call of :meth:`value`."""
        checkpoint()
        gradient = Y @ self._gram
        gradient -= self.X @ self._cross
        gradient += Y - self.target
        return gradient

    def curvature(self) -> float:
        """Return an upper bound of the largest curvature of the quadratic part, for the first step."""
        return float(np.linalg.norm(self._gram, 2)) + 1.0


def minimize_on_box(problem: SimilarityMatching, Y: Float32, n_iter: int, title: str) -> Float32:
    """Projected L-BFGS: minimise over 0 <= Y <= 1 from a start (n, D) inside.

    The two-loop recursion, on the variables that no bound holds, gives the direction. Backtracking along the
    projection gives the step. The method is like L-BFGS-B, but in float32 and without the generalised Cauchy
    point: an iteration on millions of variables is several times cheaper.
    """
    value = problem.value(Y)
    gradient = problem.gradient(Y)
    pairs: deque[Pair] = deque(maxlen=_MEMORY)
    for _ in progress(range(n_iter), title, "iteration"):
        free = ~(((Y <= 0) & (gradient > 0)) | ((Y >= 1) & (gradient < 0)))
        direction = _two_loop(np.where(free, gradient, np.float32(0)), pairs) * free
        if dot(direction, gradient) <= 0.0:
            pairs.clear()
            direction = np.where(free, gradient, np.float32(0))
        step = 1.0 if pairs else 1.0 / problem.curvature()
        moved, new_value = _backtrack(problem, Y, value, gradient, direction, step)
        new_gradient = problem.gradient(moved)
        s, y = moved - Y, new_gradient - gradient
        if (product := dot(s, y)) > 1e-10 * dot(y, y):
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
        weights.append(rho * dot(s, q))
        q = q - np.float32(weights[-1]) * y
    if pairs:
        _, y, rho = pairs[-1]
        q = q * np.float32(1.0 / (rho * dot(y, y)))
    for (s, y, rho), weight in zip(pairs, reversed(weights), strict=True):
        q = q + np.float32(weight - rho * dot(y, q)) * s
    return q


def _backtrack(
    problem: SimilarityMatching, Y: Float32, value: float, gradient: Float32, direction: Float32, step: float
) -> tuple[Float32, float]:
    """Shorten the step until the projected point decreases the value enough."""
    while True:
        moved = np.clip(Y - np.float32(step) * direction, 0, 1)
        slope = dot(gradient, moved - Y)
        new_value = problem.value(moved)
        if new_value <= value + _ARMIJO * slope or step < 1e-8:
            return moved, new_value
        bend = new_value - value - slope
        minimum = -slope * step / (2.0 * bend) if bend > 0 else step
        step = max(0.1 * step, min(0.5 * step, minimum))


def dot(A: npt.NDArray[Any], B: npt.NDArray[Any]) -> float:
    """Sum of the products of the entries."""
    return float(np.vdot(A, B))
