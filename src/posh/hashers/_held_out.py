"""How well codes keep the neighbours of vectors: what tells rules of PowerHash apart without labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from posh import metrics
from posh.codes import Codes
from posh.hashers._units import unit_rows
from posh.preprocess import Float32

__all__ = ["neighbours", "neighbours_kept"]

_NEAR = 100  # one of so many vectors is a neighbour


def neighbours(Z: Float32) -> npt.NDArray[np.bool_]:
    """Return for each row of Z (n, d) which rows are its neighbours, bool (n, n).

    They are the other rows with the largest cosine: as many as a hundredth of all rows, but at least one.
    """
    directions = unit_rows(Z)
    cosines = directions @ directions.T
    np.fill_diagonal(cosines, -np.inf)
    n_near = max(1, len(Z) // _NEAR)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :n_near]
    near = np.zeros(cosines.shape, bool)
    np.put_along_axis(near, order, True, axis=1)
    return near


def neighbours_kept(codes: Codes, near: npt.NDArray[np.bool_]) -> float:
    """Return the mean average precision of the neighbours when all others are ranked by shared bits.

    >>> codes = Codes(np.array([[0, 1], [0, 1], [2, 3], [2, 3]], np.uint16), 4)
    >>> near = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], bool)
    >>> neighbours_kept(codes, near)
    1.0
    """
    bits = codes.to_csr()
    overlap = (bits @ bits.T).toarray()
    np.fill_diagonal(overlap, -1.0)  # a vector itself comes last
    order = np.argsort(-overlap, axis=1, kind="stable")[:, :-1]
    found = np.take_along_axis(near, order, axis=1).astype(np.int64)
    return float(metrics.average_precision(found, np.ones(len(found), np.int64)).mean())
