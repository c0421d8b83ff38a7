"""Checks of the arguments of collections: vectors, ids, payloads, hashers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from posh import _validate
from posh._validate import any_ids as ids
from posh._validate import require_storable
from posh.collection.values import scalar_type
from posh.hashers.base import Hasher
from posh.preprocess import Float32

__all__ = ["fitted_hasher", "hasher", "ids", "json_object", "payloads", "vectors"]

MAX_DEPTH = 32


def vectors(values: Any, n_features: int | None) -> Float32:
    """Return vectors (n, d) as contiguous float32; a value that is too large for float32 is a ValueError."""
    array = _validate.vectors(values, n_features, min_rows=0, model="this collection", name="vectors")
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, np.float32)
    error = None if array.dtype == np.float32 else _validate.not_finite(converted, "vectors as float32")
    if error is not None:
        raise error
    return converted


def hasher(value: Any) -> Hasher[Any]:
    """Return a hasher, fitted or not."""
    if not isinstance(value, Hasher):
        raise TypeError(f"expected a hasher such as posh.POSH(), got {value!r:.80}")
    return value


def fitted_hasher(value: Any, n_features: int | None) -> Hasher[Any]:
    """Return a fitted hasher of vectors with ``n_features`` columns, if that is known."""
    check_is_fitted(hasher(value), "weights_")
    if n_features not in (None, value.n_features_in_):
        raise ValueError(
            f"expected a hasher of vectors with {n_features} columns, as this collection has, "
            f"got one fitted on {value.n_features_in_}: fit it on vectors of this collection"
        )
    return hasher(value)


def payloads(values: Any, n: int, others: str = "vectors") -> list[dict[str, Any]]:
    """Return copies of ``n`` payloads; None gives empty ones."""
    if values is None:
        return [{} for _ in range(n)]
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence):
        raise ValueError(f"expected payloads as a list of dictionaries, got {values!r:.80}")
    if len(values) != n:
        raise ValueError(f"expected as many payloads as {others} ({n}), got {len(values)}")
    return [json_object(value, f"payloads[{i}]") for i, value in enumerate(values)]


def json_object(value: Any, where: str) -> dict[str, Any]:
    """Return a copy of a dictionary that JSON can hold."""
    if not isinstance(value, Mapping):
        raise ValueError(f"expected {where} to be a dictionary, got {value!r:.80}")
    copied = _json(value, where, 1)
    assert isinstance(copied, dict)
    return copied


def _json(value: Any, where: str, depth: int) -> Any:
    """Return a copy; raise for what JSON cannot hold, for NaN, and for too deep nesting."""
    if depth > MAX_DEPTH:
        raise ValueError(f"expected {where.split('.')[0]} nested at most {MAX_DEPTH} deep, got more")
    if isinstance(value, np.generic):
        value = value.item()
    if scalar_type(value) is not None:
        require_storable(value, where)
        return value
    if isinstance(value, list | tuple):
        return [_json(part, f"{where}[{i}]", depth + 1) for i, part in enumerate(value)]
    if isinstance(value, Mapping):
        return {_key(key, where): _json(part, f"{where}.{key}", depth + 1) for key, part in value.items()}
    raise ValueError(
        f"expected {where} to be what JSON can hold, got {type(value).__name__}: convert it first"
    )


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"expected the fields of {where} to be strings, got {key!r:.80}")
    require_storable(key, f"a field of {where}")
    return key
