"""Objective and accuracy epoch by epoch (the paper's figure 2).

After an epoch we measure the method with the weights that it has then: its objective on the training vectors,
and MAP@1000 of its codes. BioHash and SphericalHash maximise the mean cosine between a vector and
the unit that it excites most; POSH minimises ‖h − W x‖². One epoch is nearly all that POSH needs, so it is
also followed mini-batch by mini-batch, as in a stream, from its random start on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

import posh
from posh import metrics
from posh.datasets import Dataset
from posh.preprocess import Float32
from posh_reproduction.experiments import hashers
from posh_reproduction.experiments.data import balanced, fingerprint, load
from posh_reproduction.experiments.rankings import Coded, summary
from posh_reproduction.experiments.records import Record
from posh_reproduction.experiments.spec import Unit

__all__ = ["METHODS", "headline", "identity", "measure", "seconds", "unit"]

METHODS = ("BioHash", "SphericalHash", "POSH")
_DEPTH = 1000
_EVERY_EPOCH, _THEN_EVERY = 10, 5  # most happens at the start
_BATCHES = (1, 2, 3, 5, 10, 20, 30)


def unit(
    method: str,
    seed: int,
    *,
    learning_rate: float | None = None,
    batches: bool = False,
    data: str = "cifar10-gist",
    size: int = 64,
    per_class: tuple[int, int] = (1000, 100),
    n_train: int = 5000,
) -> Unit:
    """The unit of one method; ``per_class`` is how many vectors and queries of each class there are.

    ``learning_rate`` is for BioHash, which then runs all of its epochs instead of stopping early.

    >>> unit("BioHash", 0, learning_rate=0.04)["params"]
    {'learning_rate': 0.04, 'stop_norm': 0.0}
    """
    return {
        "kind": "learning",
        "data": data,
        "per_class": list(per_class),
        "method": method,
        "params": {} if learning_rate is None else {"learning_rate": learning_rate, "stop_norm": 0.0},
        "size": size,
        "n_train": n_train,
        "seed": seed,
        **({"batches": True} if batches else {}),
    }


def identity(unit: Unit) -> dict[str, Any]:
    """Everything else that decides the result: the hasher's parameters and the data."""
    return {"hasher": hashers.identity(_hasher(unit)), "data": fingerprint(unit["data"])}


def measure(unit: Unit) -> dict[str, Any]:
    """Objective and MAP@1000 after epochs: all of the first ten, then every fifth and the last."""
    data = balanced(load(unit["data"]), *unit["per_class"])
    training = data.base[: unit["n_train"]]
    hasher = _hasher(unit)
    states = _batches(hasher, training) if unit.get("batches") else _epochs(hasher, training)
    epochs = [{"epoch": epoch, **_measure(state, data, training)} for epoch, state in states]
    return {"epochs": epochs, "mean_norm": _mean_norm(hasher.weights_)}


def _epochs(hasher: posh.EpochHasher, training: Float32) -> Iterator[tuple[float, posh.SparseHasher]]:
    """The hasher after each epoch that is measured."""
    last = 0
    for last, state in enumerate(hasher.fit_epochs(training), 1):
        if last <= _EVERY_EPOCH or last % _THEN_EVERY == 0:
            yield last, state
    if last > _EVERY_EPOCH and last % _THEN_EVERY:  # BioHash may end early
        yield last, hasher


def _batches(hasher: posh.EpochHasher, training: Float32) -> Iterator[tuple[float, posh.SparseHasher]]:
    """POSH from its start on: mini-batches of the first epoch, then epochs up to the tenth."""
    assert isinstance(hasher, posh.POSH)
    start = posh.FruitFly(
        hasher.n_bits,
        hasher.n_active,
        weights="orthogonal",
        reduce=hasher.reduce,
        random_state=hasher.random_state,
    )
    yield 0, start.fit(training)
    for epoch, first in product(range(_EVERY_EPOCH), range(0, len(training), hasher.batch_size)):
        hasher.partial_fit(training[first : first + hasher.batch_size])
        seen = min(first + hasher.batch_size, len(training))
        if seen == len(training) or (epoch == 0 and seen // hasher.batch_size in _BATCHES):
            yield epoch + seen / len(training), hasher


def _measure(hasher: posh.SparseHasher, data: Dataset, training: Float32) -> dict[str, float]:
    coded = Coded.by(hasher, data)
    found = coded.labels(coded.ranked(min(_DEPTH, len(data.base))))
    values = metrics.average_precision(found, coded.query_labels())
    return {"objective": objective(hasher, training), **summary(values)}


def objective(hasher: posh.SparseHasher, X: Float32) -> float:
    """Return the objective of the method for its current weights: see the top of this file."""
    Z = hasher.preprocess_(X)
    Z /= np.sqrt(np.mean(np.square(Z)))  # in a stream, the scale is that of the first vectors
    scores = Z @ hasher.weights_.T
    if isinstance(hasher, posh.POSH | posh.FruitFly):  # a random orthogonal matrix is where POSH begins
        codes = hasher.encode(X, n_threads=1).active.astype(np.int64)
        gain = np.take_along_axis(scores, codes, axis=1).sum(axis=1, dtype=np.float64)
        return float(np.mean(hasher.n_active - 2 * gain + np.einsum("ij,ij->i", Z, Z)))
    winner = scores.argmax(axis=1)
    lengths = np.linalg.norm(hasher.weights_[winner], axis=1) * np.linalg.norm(Z, axis=1)
    best = scores[np.arange(len(Z)), winner]
    return float(np.divide(best, lengths, out=np.zeros_like(best), where=lengths > 0).mean())


def seconds(unit: Unit) -> float:
    """About how long the unit takes on one core."""
    fit = {"BioHash": 16, "SphericalHash": 4, "POSH": 18}[unit["method"]]
    base, queries = unit["per_class"]
    return float(fit * (0.1 + 0.9 * unit["n_train"] / 5000) + 25 * (3e-5 * base + 1.5e-3 * queries + 0.02))


def headline(record: Record) -> str:
    """A finished unit in a line."""
    unit, last = record["unit"], record["epochs"][-1]
    rate = unit["params"].get("learning_rate")
    cell = unit["method"] if rate is None else f"{unit['method']} with learning rate {rate}"
    if unit.get("batches"):
        cell += " by mini-batches"
    found = f"objective {last['objective']:.3f}, MAP@1000 {100 * last['mean']:.2f}"
    return f"{cell} seed {unit['seed']}: after {last['epoch']} epochs {found}"


def _hasher(unit: Unit) -> posh.EpochHasher:
    params = {"n_bits": 1024, "n_active": unit["size"], "random_state": unit["seed"], **unit["params"]}
    hasher = hashers.paper_hasher(unit["method"], params)
    assert isinstance(hasher, posh.EpochHasher)
    return hasher


def _mean_norm(weights: Float32) -> float:
    return float(np.linalg.norm(weights, axis=1).mean())
