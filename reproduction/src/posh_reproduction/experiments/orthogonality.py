"""The orthogonality of Bernoulli matrices: the entries of WᵀW / (D p), the paper's figure 1a."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import posh
from posh_reproduction.experiments import hashers
from posh_reproduction.experiments.records import Record
from posh_reproduction.experiments.spec import Unit

__all__ = ["headline", "identity", "measure", "seconds", "unit"]

_QUANTILES = (0.025, 0.25, 0.5, 0.75, 0.975)

Counts = npt.NDArray[np.int64]


def unit(p: float, *, n_matrices: int = 100, n_bits: int = 1024, n_features: int = 512) -> Unit:
    """The unit of one density ``p``.

    >>> unit(0.2)["n_matrices"]
    100
    """
    return {
        "kind": "orthogonality",
        "p": p,
        "n_bits": n_bits,
        "n_features": n_features,
        "n_matrices": n_matrices,
        "seed": 0,
    }


def identity(unit: Unit) -> dict[str, Any]:
    """The parameters of the first matrix's hasher; matrices differ by their seed only."""
    return {"hasher": hashers.identity(_hasher(unit, 0))}


def measure(unit: Unit) -> dict[str, Any]:
    """Distributions of the diagonal and the other entries over all matrices."""
    n_bits, d = unit["n_bits"], unit["n_features"]
    diagonal, others = np.zeros(n_bits + 1, np.int64), np.zeros(n_bits + 1, np.int64)
    upper = np.triu_indices(d, 1)
    features = np.random.default_rng(0).standard_normal((2, d))  # weights depend on the width alone
    for number in range(unit["n_matrices"]):
        W = _hasher(unit, number).fit(features).weights_
        gram = np.rint(W.T @ W).astype(np.int64)  # sums of zeros and ones, exact in float32
        diagonal += np.bincount(gram.diagonal(), minlength=n_bits + 1)
        others += np.bincount(gram[upper], minlength=n_bits + 1)
    scale = n_bits * unit["p"]
    return {"entries": {"diagonal": _distribution(diagonal, scale), "others": _distribution(others, scale)}}


def seconds(unit: Unit) -> float:
    """About how long the unit takes on one core."""
    return float(1e-10 * unit["n_matrices"] * unit["n_bits"] * unit["n_features"] ** 2 + 0.5)


def headline(record: Record) -> str:
    """A finished unit in a line."""
    means = {name: entries["mean"] for name, entries in record["entries"].items()}
    return f"p {record['unit']['p']}: diagonal {means['diagonal']:.3f}, others {means['others']:.3f}"


def _hasher(unit: Unit, number: int) -> posh.Hasher[Any]:
    params = {"n_bits": unit["n_bits"], "n_active": 1, "p": unit["p"], "random_state": number}
    return hashers.paper_hasher("FruitFly", params)


def _distribution(counts: Counts, scale: float) -> dict[str, Any]:
    """Mean, standard deviation and quantiles of the values 0..len-1, divided by ``scale``."""
    values = np.arange(len(counts)) / scale
    n = counts.sum()
    mean = float((counts * values).sum() / n)
    variance = float((counts * (values - mean) ** 2).sum() / n)
    places = np.searchsorted(np.cumsum(counts) / n, _QUANTILES)
    quantiles = {str(q): float(values[place]) for q, place in zip(_QUANTILES, places, strict=True)}
    return {"mean": mean, "std": variance**0.5, "quantiles": quantiles, "n": int(n)}
