"""Codes and queries as sparse vectors of Milvus, whose inner products are our scores.

A sparse code has a 1 at each of its set bits, so the product of two codes is the number of shared bits. A
dense code has two dimensions for each bit and a 1 at that of its value: the product is the number of equal
bits.

Milvus does not return documents whose product with the query is 0. So all documents have a 1 in one more
dimension, :data:`the last one <last_dimension>`, and a query that must find all of them has a 1 there, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from posh.codes import Codes, PackedCodes
from posh.hashers.base import Hasher, SparseHasher
from posh.index.code_index import encode
from posh.preprocess import Float32

__all__ = ["SparseVector", "code_vectors", "last_dimension", "projection_queries", "with_last"]

SparseVector = dict[int, float]

_LEAST = 0.01  # the least weight of a projection, as a part of their range


def last_dimension(hasher: Hasher[Any]) -> int:
    """The dimension that all documents have."""
    return hasher.n_bits * (1 if isinstance(hasher, SparseHasher) else 2)


def code_vectors(hasher: Hasher[Any], X: Float32, n_active: int | None) -> list[SparseVector]:
    """The codes of vectors (n, d) as sparse vectors, without the last dimension.

    >>> import numpy as np, posh
    >>> hasher = posh.LSH(3, random_state=0).fit(np.eye(2))
    >>> code_vectors(hasher, np.float32([[1, 2]]), None) == [
    ...     {2 * i + int(bit): 1.0 for i, bit in enumerate(hasher.encode([[1, 2]]).to_dense()[0])}
    ... ]
    True
    """
    return [dict.fromkeys(row, 1.0) for row in _dimensions(encode(hasher, X, n_active)).tolist()]


def with_last(vectors: list[SparseVector], dimension: int) -> list[SparseVector]:
    """The same vectors with a 1 in the last dimension.

    >>> with_last([{3: 1.0}], 8)
    [{3: 1.0, 8: 1.0}]
    """
    return [vector | {dimension: 1.0} for vector in vectors]


def projection_queries(hasher: SparseHasher, X: Float32) -> list[SparseVector]:
    """Queries that find documents in the order of asymmetric scores.

    Milvus takes no negative weights. All documents have equally many set bits, so a number that is added to
    all weights does not change the order of documents, nor does a positive factor. All weights are above 0,
    so all documents are found.
    """
    projected = np.asarray(hasher.project(X), np.float64)
    low = projected.min(axis=1, keepdims=True)
    span = projected.max(axis=1, keepdims=True) - low
    weights = (projected - low) / np.where(span > 0, span, 1.0) + _LEAST
    return [dict(enumerate(row)) for row in weights.tolist()]


def _dimensions(codes: Codes | PackedCodes) -> npt.NDArray[np.int64]:
    """The dimensions that are 1, (n, number of them)."""
    if isinstance(codes, Codes):
        return codes.active.astype(np.int64)
    return np.asarray(2 * np.arange(codes.n_bits) + codes.to_dense(np.int64))
