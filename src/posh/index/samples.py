"""Samples of the documents of an index, chosen by a hash of their slots."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from posh.index.sliced import Mask, Slots

__all__ = ["is_held_out", "random_order", "sample_slots"]

_HELD_OUT = 16  # one document of 16
_MIXING = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_SAMPLED_NUMBERS, _MOST = 1 << 19, 4096


def _hashes(slots: Slots) -> npt.NDArray[np.uint64]:
    values = (slots.astype(np.uint64) + np.uint64(1)) * _MIXING[0]
    values ^= values >> np.uint64(31)
    return np.asarray(values * _MIXING[1])


def is_held_out(slots: Slots) -> Mask:
    """Return which documents lists are not trained on: to measure searches, they are like new queries.

    >>> is_held_out(np.arange(100_000)).mean().round(2)
    np.float64(0.06)
    """
    return np.asarray(_hashes(slots) >> np.uint64(32) < np.uint64((1 << 32) // _HELD_OUT))


def random_order(slots: Slots) -> Slots:
    """Return slots in an order that depends on nothing else.

    >>> random_order(np.arange(5)).tolist() == random_order(np.arange(5)[::-1]).tolist()
    True
    """
    return np.asarray(slots[np.argsort(_hashes(slots), kind="stable")])


def sample_slots(n_slots: int, n_features: int) -> Slots:
    """Return ascending slots, one from each of equal parts: as many as can be compared in little time."""
    n = min(n_slots, _MOST, max(512, _SAMPLED_NUMBERS // n_features))
    starts = np.arange(n + 1) * n_slots // max(1, n)
    return starts[:-1] + (_hashes(starts[:-1]) % np.maximum(1, np.diff(starts)).astype(np.uint64)).astype(
        np.int64
    )
