"""A map of a collection: a sample of its items, in the plane of the two largest principal components."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import orjson

from posh._runtime import iterate_cancellable, one_blas_thread, track_progress
from posh.collection.base import BaseCollection, Id
from posh.preprocess import Float32
from posh.serve.fields import Summary, shortened, summarise, title_of
from posh.serve.items import NUMPY

__all__ = ["Plane", "map_answer", "plane_of"]

_VECTOR_BYTES = 32 << 20  # of all vectors of a sample
_BLOCK, _ROUNDS = 8, 30  # directions that are turned into the components, and how often


class Plane(NamedTuple):
    """Points are ``(vectors - mean) @ axes.T``: ``mean`` (d,), ``axes`` (2, d), float32."""

    mean: Float32
    axes: Float32


def plane_of(vectors: Float32) -> Plane:
    """The plane of the two largest principal components of vectors (n, d), by subspace iteration.

    Without two directions in which the vectors differ, an axis is zero. The largest number of an axis is
    positive, so that a map does not flip when it is made again.

    >>> import numpy as np
    >>> plane = plane_of(np.array([[0, 0, 5], [2, 0, 5], [0, 1, 5], [2, 1, 5]], np.float32))
    >>> plane.axes.round(3) + 0.0
    array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    n_features = vectors.shape[1]
    mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32) if len(vectors) else np.zeros(n_features)
    centred = (vectors - mean).astype(np.float64)
    scale = np.abs(centred).max(initial=0.0) or 1.0
    centred /= scale
    width = min(_BLOCK, n_features)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((n_features, width)))[0]
    for _ in track_progress(range(_ROUNDS), "mapping", "round"):
        basis = np.linalg.qr(centred.T @ (centred @ basis))[0]
    _, lengths, turn = np.linalg.svd(centred @ basis, full_matrices=False)
    axes = np.zeros((2, n_features))
    for i, length in enumerate(lengths[:2]):
        if length > 1e-6 * lengths[0]:
            axis = basis @ turn[i]
            axes[i] = axis * np.sign(axis[np.abs(axis).argmax()])
    return Plane(mean.astype(np.float32), axes.astype(np.float32))


def map_answer(collection: BaseCollection, most: int) -> bytes:
    """The answer to a request for a map of at most so many items."""
    n_features = collection.n_features or 1
    n = max(1, min(most, _VECTOR_BYTES // (4 * n_features)))
    by_direction = collection.index_options.get("metric") == "cosine"
    ids, payloads, vectors = _sampled(collection, n, n_features)
    if by_direction:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(lengths > 0, lengths, 1)
    with one_blas_thread:  # its other threads would go on spinning after each of many small products
        plane = plane_of(vectors)
    points = (vectors - plane.mean.astype(np.float64)) @ plane.axes.T.astype(np.float64)
    summary = summarise(payloads, collection.metadata)
    content: dict[str, Any] = {
        "count": collection.count(),
        "by_direction": by_direction,
        "mean": plane.mean,
        "axes": plane.axes,
        "ids": ids,
        "points": points.astype(np.float32),
        "titles": [title_of(payload, summary) for payload in payloads],
        **_groups(payloads, summary),
    }
    return orjson.dumps(content, option=NUMPY)


def _sampled(
    collection: BaseCollection, n: int, n_features: int
) -> tuple[list[Id], list[dict[str, Any]], Float32]:
    ids: list[Id] = []
    payloads: list[dict[str, Any]] = []
    vectors = np.empty((n, n_features), np.float32)
    for i, item in enumerate(iterate_cancellable(collection.sample_items(n))):
        ids.append(item.id)
        payloads.append(shortened(item.payload))
        vectors[i] = item.vector
    return ids, payloads, vectors[: len(ids)]


def _groups(payloads: list[dict[str, Any]], summary: Summary) -> dict[str, Any]:
    """The field that colours the items, its values, and the number of the value of each item, -1 for none."""
    field = summary["group"]
    if field is None:
        return {"group": None, "groups": [], "group_of": []}
    found = [payload.get(field) for payload in payloads]
    groups = sorted(
        {value for value in found if value is not None}, key=lambda value: (str(type(value)), value)
    )
    numbers = {value: i for i, value in enumerate(groups)}
    return {"group": field, "groups": groups, "group_of": [numbers.get(value, -1) for value in found]}
