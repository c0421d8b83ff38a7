"""PowerHash: between averaging, which is best with few set bits, and POSH, which is best with many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from posh import _validate, kernels
from posh._progress import progress
from posh.codes import Codes
from posh.hashers._held_out import neighbours, neighbours_kept
from posh.hashers._orthogonal import random_orthogonal
from posh.hashers._products import WIDTH, Team, slices
from posh.hashers._units import unit_rows
from posh.hashers.cost import ORTHOGONAL, STEP, FitCost
from posh.hashers.epochs import EpochHasher
from posh.hashers.posh import POSH
from posh.model_files import Arrays, expect
from posh.preprocess import Float32

__all__ = ["PowerHash"]

_AUTO = "auto"
_TRAINED, _HELD_OUT = 4000, 1000  # vectors that rules learn from and are compared by, at most
_TRIAL_EPOCHS = 8
_MORE_EPOCHS = 5  # times as many passes if W has orthonormal columns: then POSH learns it
# Orthonormal columns are chosen only if they keep neighbours so much better than the other rules. They
# keep them better than labels reward: docs/reproduction.md says on which data this was chosen.
_MARGIN = 1.06
_NOISE = 1e-3  # length of the noise that is added to directions of training vectors
_RIDGE = 1e-6  # added to the eigenvalues, relative to their mean: directions without data stay finite


@dataclass(frozen=True)
class _Rule:
    """How W is learned; see :class:`PowerHash`."""

    power: float
    n_winners: int
    unit: bool

    @property
    def is_posh(self) -> bool:
        """Whether W has orthonormal columns, as that of POSH."""
        return self.power == 1.0 and not self.unit


# The rules to choose from: power, set bits of the code per winner in training, whether rows have unit length.
_SHARES = ((0.0, 4, True), (0.25, 4, True), (0.5, 4, True), (0.75, 2, True), (1.0, 1, False))


class PowerHash(EpochHasher):
    """Learns W = M (MᵀM)^(−p/2) from M = Σ h xᵀ, with a power p that it chooses without labels.

    Codes h and weights W are found in turn. The codes are the ``n_winners`` largest entries of W x: they
    maximise Σ h·W x. For given codes W shall maximise the same sum, which is the trace of WᵀM. Without a
    bound W would grow for ever, so its Schatten norm ‖W‖_q, the q-norm of its singular values, is bounded.
    With the singular values M = U S Vᵀ, Hölder's inequality gives the best W: it is proportional to
    U S^(1/(q−1)) Vᵀ, which is M (MᵀM)^(−p/2) for q = (2 − p) / (1 − p). The factor does not change codes.

    The ends are known. p = 0 (q = 2) is W = M: each bit has the direction of the mean of the vectors that it
    wins, as in k-means and :class:`SphericalHash`. p = 1 (q = ∞) is the orthogonal Procrustes problem of
    :class:`POSH`, which learns such a W if it is chosen. Between them, p says how far directions with little
    variance are raised to the level of others.

    Two things helped, but do not follow from this: M is a sum over all epochs so far, as in POSH, and rows
    may be brought to unit length afterwards. The result does not depend on the scale of the data.

    What is ``"auto"`` is chosen as follows. A fifth of the training vectors, at most 1,000, is held out. Each
    of five rules learns from at most 4,000 others: (p, winners) = (0, α/4), (1/4, α/4), (1/2, α/4) and
    (3/4, α/2) with rows of unit length, and (1, α) with orthonormal columns. The rule whose codes keep the
    neighbours of held-out vectors best, by average precision, learns again from all vectors; neighbours are
    the hundredth of held-out vectors with the largest cosine. The last rule must be 6 % better, because
    labels reward it less: the rules and the 6 % were chosen by labels of three sets (see the report).

    Parameters
    ----------
    n_bits, n_active
        The paper's D and α.
    power
        p, between 0 and 1, or ``"auto"``.
    n_winners
        Set bits of the codes in training, between 1 and ``n_bits``, or ``"auto"``.
    unit
        Whether the rows of W have unit length, so that no bit wins because of its length; or ``"auto"``. W
        starts from directions of training vectors if so, and else from random orthonormal columns.
    n_epochs
        Passes over the data. If POSH learns W, it has five times as many, in mini-batches.
    reduce
        As in :class:`POSH`.
    random_state : int, RandomState or None
        Source of the random numbers.

    Attributes
    ----------
    weights_ : float32 (n_bits, d')
        W, for the d' features that ``reduce`` leaves.
    objective_
        Mean of h·W x / ``n_winners`` per epoch, on centred data of unit root mean square; or that of POSH.
    power_, n_winners_, unit_
        What was given or chosen.

    Examples
    --------
    >>> import numpy as np, posh
    >>> X = np.random.default_rng(0).normal(size=(500, 16))
    >>> hasher = posh.PowerHash(n_bits=64, n_active=4, random_state=0).fit(X)
    >>> hasher.encode(X)
    Codes(n=500, n_active=4, n_bits=64)
    >>> posh.PowerHash(64, 4, power=0.5, n_winners=2, unit=True, random_state=0).fit(X).power_
    0.5

    """

    power_: float
    n_winners_: int
    unit_: bool

    def __init__(
        self,
        n_bits: int = 1024,
        n_active: int = 32,
        *,
        power: float | str = _AUTO,
        n_winners: int | str = _AUTO,
        unit: bool | str = _AUTO,
        n_epochs: int = 10,
        reduce: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_active = n_active
        self.power = power
        self.n_winners = n_winners
        self.unit = unit
        self.n_epochs = n_epochs
        self.reduce = reduce
        self.random_state = random_state

    def _check_params(self) -> None:
        super()._check_params()
        _validate.integer("n_epochs", self.n_epochs, 1)
        _validate.choice("unit", self.unit, (True, False, _AUTO))
        for name in ("power", "n_winners"):
            value = getattr(self, name)
            if isinstance(value, str):
                _validate.choice(name, value, (_AUTO,))
        if not isinstance(self.power, str):
            _validate.real("power", self.power, 0.0, 1.0)
        if not isinstance(self.n_winners, str):
            _validate.integer("n_winners", self.n_winners, 1, self.n_bits)

    def _learning_cost(self, n: int, d: int) -> FitCost:
        rules = self._rules()
        costs = [self._cost_of(rule, n, d) for rule in rules]
        n_bytes, operations = max(cost.bytes for cost in costs), max(cost.operations for cost in costs)
        if len(rules) > 1:
            n_bytes += 40 * min(n // 5, _HELD_OUT) ** 2
            tried = min(n, _TRAINED)
            operations += _TRIAL_EPOCHS * sum(
                _epoch_operations(tried, d, self.n_bits, rule) for rule in rules
            )
        return FitCost(n_bytes, operations)

    def _cost_of(self, rule: _Rule, n: int, d: int) -> FitCost:
        """Return the cost of learning by one rule."""
        if rule.is_posh:
            return self._posh(rule)._learning_cost(n, d)
        n_bytes = ORTHOGONAL * self.n_bits * d + 40 * d * d + 40 * n * rule.n_winners
        n_bytes += 4 * WIDTH * self.n_bits
        return FitCost(n_bytes, self.n_epochs * _epoch_operations(n, d, self.n_bits, rule))

    def _posh(self, rule: _Rule) -> POSH:
        return POSH(self.n_bits, rule.n_winners, n_epochs=_MORE_EPOCHS * self.n_epochs)

    def _epochs(self, Z: Float32, rng: np.random.Generator) -> Iterator[tuple[Float32, float]]:
        seed = int(rng.integers(2**31))  # one start for all, so that only the rules differ
        rule = _chosen(self._rules(), Z, self.n_bits, self.n_active, seed)
        if rule.is_posh:  # steps after each mini-batch lead further than whole passes
            epochs: Iterable[tuple[Float32, float]] = self._posh(rule)._epochs(Z, np.random.default_rng(seed))
        else:
            epochs = progress(_learn(Z, self.n_bits, rule, seed, self.n_epochs), "PowerHash")
        for weights, objective in epochs:
            self._rule = rule
            yield weights, objective

    def _learned(self, *args: Any) -> Self:
        self.power_, self.n_winners_, self.unit_ = self._rule.power, self._rule.n_winners, self._rule.unit
        return super()._learned(*args)

    def _rules(self) -> list[_Rule]:
        """Return the rules to choose from: one if nothing is ``"auto"``."""
        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("power", "n_winners", "unit")
            if not isinstance(getattr(self, name), str)
        }
        rules = [
            replace(_Rule(power, max(1, self.n_active // share), unit), **given)
            for power, share, unit in _SHARES
        ]
        return list(dict.fromkeys(rules))

    def _state(self) -> Arrays:
        rule = np.array([self.power_, self.n_winners_, self.unit_], np.float64)
        return super()._state() | {"rule": rule}

    def _restore(self, state: Arrays) -> Self:
        super()._restore(state)
        power, n_winners, unit = expect(state, "rule", np.float64, (3,), low=0).tolist()
        self.power_, self.n_winners_, self.unit_ = power, int(n_winners), bool(unit)
        return self


def _chosen(rules: list[_Rule], Z: Float32, n_bits: int, n_active: int, seed: int) -> _Rule:
    """Return the rule whose codes keep the neighbours of held-out rows of Z best."""
    n_held = min(_HELD_OUT, len(Z) // 5)
    if len(rules) == 1 or n_held < 2:
        return rules[0]
    order = np.random.default_rng(seed).permutation(len(Z))
    held, known = Z[order[:n_held]], Z[order[n_held : n_held + _TRAINED]]
    near = neighbours(held)
    kept = []
    for rule in progress(rules, "PowerHash, choosing", "rule"):
        weights = np.empty((0, 0), np.float32)
        for weights, _ in _learn(known, n_bits, rule, seed, _TRIAL_EPOCHS):  # noqa: B007  # the last ones
            pass
        active = np.empty((n_held, n_active), np.uint16)
        with Team() as team:
            _winners(held, weights, active, team)
        value = neighbours_kept(Codes.trusted(active, n_bits), near)
        kept.append(value if rule.unit else value / _MARGIN)
    return rules[int(np.argmax(kept))]


def _learn(Z: Float32, n_bits: int, rule: _Rule, seed: int, n_epochs: int) -> Iterator[tuple[Float32, float]]:
    """Yield for each pass over Z (n, d) the weights (n_bits, d) after it and the objective in it."""
    rng = np.random.default_rng(seed)
    W = _start_from(Z, n_bits, rule, rng) if rule.unit else random_orthogonal(n_bits, Z.shape[1], rng)
    M = np.zeros_like(W)
    active = np.empty((len(Z), rule.n_winners), np.uint16)
    for _ in range(n_epochs):
        with Team() as team:
            gain = _winners(Z, W, active, team)
            by_bit = Codes.trusted(active, n_bits).to_csr().T.tocsr()
            for columns in slices(M.shape[1]):
                M[:, columns] += by_bit @ Z[:, columns]
            W = _powered(M, rule, team)
        yield W, gain / active.size


def _start_from(Z: Float32, n_bits: int, rule: _Rule, rng: np.random.Generator) -> Float32:
    """Return weights (n_bits, d) from rows of Z (n, d); noise tells rows apart that are equal or zero."""
    rows = rng.permutation(len(Z))[:n_bits]
    if len(Z) < n_bits:
        rows = rng.integers(len(Z), size=n_bits)
    noise = rng.standard_normal((n_bits, Z.shape[1]), np.float32)
    W = unit_rows(unit_rows(Z[rows]) + np.float32(_NOISE) * unit_rows(noise))
    with Team() as team:
        return _powered(W, rule, team)


def _powered(M: Float32, rule: _Rule, team: Team) -> Float32:
    """Return M (MᵀM)^(−p/2) of M (n_bits, d), with rows of unit length if the rule says so."""
    W = M
    if rule.power > 0.0:
        eigenvalues, vectors = np.linalg.eigh(team.gram(M).astype(np.float64))
        mean = max(float(eigenvalues.mean()), np.finfo(np.float32).tiny)
        factors = (np.maximum(eigenvalues, 0.0) / mean + _RIDGE) ** (-rule.power / 2)
        W = team.times(M, ((vectors * factors) @ vectors.T).astype(np.float32))
    if rule.unit:
        return unit_rows(W)
    return W / max(np.float32(np.sqrt(np.square(W).sum() / W.shape[1])), np.float32(1e-30))


def _winners(Z: Float32, W: Float32, active: npt.NDArray[np.uint16], team: Team) -> float:
    """Write the winners of W z for rows z of Z (n, d) into ``active`` (n, n_winners); return their sum."""
    tiles = slices(len(Z))
    gains = np.zeros(len(tiles))

    def score(number: int) -> None:
        rows = tiles[number]
        scores = Z[rows] @ W.T
        won = kernels.winners(scores, active.shape[1], active[rows]).astype(np.int64)
        gains[number] = np.take_along_axis(scores, won, axis=1).sum(dtype=np.float64)

    team.do(score, list(range(len(tiles))))
    return float(gains.sum())


def _epoch_operations(n: int, d: int, n_bits: int, rule: _Rule) -> int:
    """Return the operations of one epoch over n vectors."""
    epoch = n * d * (n_bits + rule.n_winners) + 4 * n * n_bits + STEP
    return epoch + (2 * n_bits * d * d + 20 * d**3 if rule.power > 0.0 else 0)
