"""What scores say about relevance, and the choice of documents that are relevant and unlike each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from posh import _validate

__all__ = ["relevance_of", "unlike"]


def _of_cosine(score: float) -> float:
    return min(1.0, max(0.0, (1.0 + score) / 2.0))  # rounding makes cosines of a little over 1


def _of_square(score: float) -> float:
    return 1.0 / (1.0 + math.sqrt(-score))


_BY_SCORE = {"cosine": _of_cosine}
_BY_SCORE |= dict.fromkeys(("euclidean", "vectors", "decoder", "sbiht"), _of_square)


def relevance_of(index_options: Mapping[str, Any]) -> Callable[[float], float]:
    """Return the function from scores of such an index to relevance, from 0 to 1.

    >>> relevance_of({"metric": "cosine"})(0.5)
    0.75
    >>> relevance_of({"metric": "euclidean"})(-9.0)
    0.25
    """
    named = [index_options.get(name) for name in ("metric", "refine", "scoring")]
    kind = next((name for name in named if name is not None), None)
    if kind not in _BY_SCORE:
        raise ValueError(
            f"expected scores of one of {', '.join(_BY_SCORE)} for relevance from 0 to 1, got {kind}: "
            "give the store a relevance_score_fn"
        )
    return _BY_SCORE[kind]


def unlike(query: npt.ArrayLike, vectors: npt.ArrayLike, k: int, lambda_mult: float) -> list[int]:
    """Return the rows of up to k vectors (n, d) that are near to the query (d,) and unlike each other.

    The first is the nearest by cosine. Each next one has the largest ``lambda_mult`` times the cosine with
    the query, minus 1 - ``lambda_mult`` times the largest cosine with a row that was chosen before.
    """
    share = _validate.real("lambda_mult", lambda_mult, 0.0, 1.0)
    n_chosen = _validate.integer("k", k, 1)
    units = _units(np.asarray(vectors, np.float64))
    near = units @ _units(np.asarray(query, np.float64)[None])[0]
    chosen = [int(np.argmax(near))]
    alike = units @ units[chosen[0]]
    while len(chosen) < min(n_chosen, len(units)):
        values = share * near - (1.0 - share) * alike
        values[chosen] = -np.inf
        chosen.append(int(np.argmax(values)))
        alike = np.maximum(alike, units @ units[chosen[-1]])
    return chosen


def _units(vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Vectors of length 1; zero vectors stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0.0, lengths, 1.0))
