"""Checks that several modules share, and the wording of their errors.

Every message says what was expected, what came, and what to do about it.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from posh._matrix import as_array, listed
from posh.kernels import MAX_BITS

MAX_ID_LENGTH = 512

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_FEW = 1 << 12  # values that are looked at one by one: for these, the way below takes longer
_CHUNK = 1 << 20  # values per step of the search for NaN, which bounds the temporary memory


def vectors(
    X: Any,
    n_features: int | None = None,
    *,
    min_rows: int = 1,
    model: str = "the model",
    name: str = "X",
    finite: bool = True,
) -> npt.NDArray[Any]:
    """Return ``X`` as a real 2-D array, (n, d), without copying if it already is one.

    Any real dtype is kept: code that computes with the vectors converts one tile at a time. ``finite=False``
    does not look for NaN and inf, for callers that notice them anyway and then call :func:`not_finite`.
    """
    array = _numeric_2d(X, name)
    if array.shape[1] == 0:
        raise ValueError(f"{name} has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    if n_features is not None and array.shape[1] != n_features:
        raise ValueError(
            f"expected vectors with {n_features} columns (the model was fitted on {n_features}), "
            f"got {array.shape[1]}: X has {array.shape[1]} features, but {model} is expecting {n_features} "
            "features as input"
        )
    if len(array) < min_rows:
        raise ValueError(
            f"{name} has n_samples={len(array)}, expected at least {min_rows}: give more vectors"
        )
    error = not_finite(array, name) if finite else None
    if error is not None:
        raise error
    return array


def queries(X: Any, name: str = "X") -> npt.NDArray[Any]:
    """Return ``X`` as an array with a row for each query; one vector (d,) is one row."""
    array = as_array(X, name)
    return array[None] if array.ndim == 1 else array


def _numeric_2d(X: Any, name: str) -> npt.NDArray[Any]:
    array = as_array(X, name)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} has dtype {array.dtype}, expected real numbers")
    if array.dtype.kind not in "buif":
        raise ValueError(
            f"{name} has dtype {array.dtype}, expected numbers: convert it, e.g. {name}.astype('float32')"
        )
    if array.ndim != 2:
        raise ValueError(
            f"{name} has {array.ndim} dimension(s), expected 2 (n_vectors, n_features). "
            f"Reshape your data: {name}.reshape(1, -1) if it is a single vector"
        )
    return array.astype(np.float64) if array.dtype.itemsize > 8 else array


def not_finite(X: npt.NDArray[Any], name: str = "X") -> ValueError | None:
    """Return the error that names the first NaN or inf, or ``None`` if every value is finite."""
    if X.dtype.kind != "f" or (X.size <= _FEW and np.isfinite(X).all()):
        return None
    step = max(1, _CHUNK // X.shape[1])
    for start in range(0, len(X), step):
        rows = X[start : start + step]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(rows.sum()):  # the sum is finite in nearly all cases, and cheap
                continue
        bad = ~np.isfinite(rows)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            return ValueError(
                f"{name} contains NaN or inf ({rows[row, column]} at row {start + row}, column {column}), "
                "expected finite numbers: drop or impute these rows"
            )
    return None


def integer(name: str, value: Any, low: int, high: int | None = None, why_high: str = "") -> int:
    """Return ``value`` as an int within [low, high]; bool and float are refused."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_):
        raise TypeError(f"expected {name} to be an integer, got {value!r} of type {type(value).__name__}")
    if number < low or (high is not None and number > high):
        bounds = f"at least {low}" if high is None else f"between {low} and {high}{why_high}"
        raise ValueError(f"expected {name} {bounds}, got {number}")
    return number


def code_shape(n_bits: Any, n_active: Any) -> tuple[int, int]:
    """Check the size of a sparse code: 2 <= n_bits <= 65,536 and 1 <= n_active <= n_bits."""
    n_bits = code_length(n_bits)
    return n_bits, integer("n_active", n_active, 1, n_bits, " (n_bits)")


def code_length(n_bits: Any, low: int = 2) -> int:
    """Check the number of bits of a code."""
    return integer("n_bits", n_bits, low, MAX_BITS)


def real(name: str, value: Any, low: float, high: float = np.inf, *, open_low: bool = False) -> float:
    """Return ``value`` as a finite float within [low, high], or (low, high] with ``open_low``."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"expected {name} to be a number, got {value!r} of type {type(value).__name__}")
    number = float(value)
    if not (low < number if open_low else low <= number) or not number <= high or number == np.inf:
        begin, end = "(" if open_low else "[", ")" if high == np.inf else "]"
        raise ValueError(f"expected {name} in {begin}{low:g}, {high:g}{end}, got {number:g}")
    return number


def choice(name: str, value: Any, allowed: Iterable[Any]) -> Any:
    """Return ``value`` if it is one of ``allowed``."""
    options = list(allowed)
    if value not in options:
        raise ValueError(f"expected {name} to be one of {', '.join(map(repr, options))}, got {value!r}")
    return value


def labels(values: Any, n: int | None = None, name: str = "labels") -> npt.NDArray[Any]:
    """Return ``values`` as a 1-D array, of length ``n`` if given."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"expected {name} to be 1-D, got shape {array.shape}")
    if n is not None and len(array) != n:
        raise ValueError(f"expected {n} {name}, got {len(array)}")
    return array


def ids(values: Any, n: int | None = None) -> npt.NDArray[np.int64]:
    """Return ``values`` as distinct int64 >= 0, (n,)."""
    array = np.asarray(listed(values))
    if array.size == 0:
        array = array.astype(np.int64).reshape(-1)
    if array.ndim != 1 or array.dtype.kind not in "ui":
        raise ValueError(
            f"expected ids as a 1-D integer array, got {array.dtype} {array.shape}: "
            "posh.Index and posh.Collection have ids that are strings"
        )
    if n is not None and len(array) != n:
        raise ValueError(f"expected as many ids as vectors ({n}), got {len(array)}")
    if array.size and (array.min() < 0 or array.max() >= 2**63):
        raise ValueError(f"expected ids in 0 .. 2^63 - 1, got {array.min()} .. {array.max()}")
    unique, counts = np.unique(array, return_counts=True)
    if len(unique) < len(array):
        raise ValueError(f"expected distinct ids, got {unique[counts > 1][0]} more than once")
    return array.astype(np.int64)


def any_ids(values: Any, n: int | None = None, *, distinct: bool = True) -> list[int | str]:
    """Return ids as a list of int and str; ``n`` is the length that they must have, if it is known.

    A ``uuid.UUID`` becomes its string. Columns of pandas, Polars and pyarrow are lists, too.
    """
    values = listed(values)
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence | np.ndarray):
        raise ValueError(f"expected ids as a list or an array of int or str, got {values!r:.80}")
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise ValueError(f"expected ids to be 1-D, got shape {values.shape}")
    checked = [_id(value) for value in (values.tolist() if isinstance(values, np.ndarray) else values)]
    if n is not None and len(checked) != n:
        raise ValueError(f"expected as many ids as vectors ({n}), got {len(checked)}")
    if distinct and len(set(checked)) < len(checked):
        seen: set[int | str] = set()
        again = next(value for value in checked if value in seen or seen.add(value))  # type: ignore[func-returns-value]
        raise ValueError(f"expected distinct ids, got {again!r} more than once")
    return checked


def _id(value: Any) -> int | str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"expected ids to be int or str, got {value!r:.80} of type {type(value).__name__}")
    if isinstance(value, str) and not 1 <= len(value) <= MAX_ID_LENGTH:
        raise ValueError(f"expected ids of 1 to {MAX_ID_LENGTH} characters, got {len(value)}")
    require_storable(value, "an id")
    return value


def require_storable(value: str | float | None, where: str) -> None:
    """Raise for a value that cannot be written and read back: NaN, 2**64, half a surrogate pair."""
    if isinstance(value, str):
        if not (value.isascii() or _is_unicode(value)):
            raise ValueError(f"expected {where} to be valid Unicode, got {value!r:.80}")
    elif isinstance(value, int):
        if not _SMALLEST <= value <= _LARGEST:
            raise ValueError(
                f"expected {where} to be an integer of at most 64 bits, got {value!r:.80}: use a string"
            )
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected {where} to be finite, got {value!r}: use null")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
