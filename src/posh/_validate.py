"""Validation of arrays and arguments, shared by all packages.

Vectors may come as arrays, lists, data frames, or columns of pandas, Polars or pyarrow. These libraries are
never imported: their objects are recognised by their methods. Every error states the expected value, the
received value, and a remedy.
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
import scipy.sparse as sp

from posh.kernels import MAX_BITS

__all__ = [
    "MAX_ID_LENGTH",
    "as_array",
    "as_list",
    "find_non_finite",
    "keep_column_names",
    "validate_choice",
    "validate_code_shape",
    "validate_ids",
    "validate_integer",
    "validate_integer_ids",
    "validate_labels",
    "validate_n_bits",
    "validate_queries",
    "validate_real",
    "validate_storable",
    "validate_vectors",
]

MAX_ID_LENGTH = 512

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_FEW = 1 << 12  # up to this number of values, one call of np.isfinite is faster than sums of chunks
_CHUNK = 1 << 20  # values per step of the search for NaN, which bounds the temporary memory
_LIST_METHODS = ("to_pylist", "to_list", "tolist")  # of pyarrow; of pandas and Polars; of arrays


# Vectors -------------------------------------------------------------------------------------------


def validate_vectors(
    X: Any,
    n_features: int | None = None,
    *,
    min_rows: int = 1,
    model: str = "the model",
    name: str = "X",
    finite: bool = True,
) -> npt.NDArray[Any]:
    """Return ``X`` as a real 2-D array, (n, d), without copying if it already is one.

    Any real dtype is preserved: code that computes with the vectors converts one tile at a time.
    ``finite=False`` skips the search for NaN and inf, for callers that detect them while computing and then
    call :func:`find_non_finite`.
    """
    array = _as_numeric_2d(X, name)
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
    error = find_non_finite(array, name) if finite else None
    if error is not None:
        raise error
    return array


def validate_queries(X: Any, name: str = "X") -> npt.NDArray[Any]:
    """Return ``X`` as an array with one row per query; a single vector (d,) becomes one row."""
    array = as_array(X, name)
    return array[None] if array.ndim == 1 else array


def find_non_finite(X: npt.NDArray[Any], name: str = "X") -> ValueError | None:
    """Return an error that names the first NaN or inf, or ``None`` if every value is finite."""
    if X.dtype.kind != "f" or (X.size <= _FEW and np.isfinite(X).all()):
        return None
    step = max(1, _CHUNK // X.shape[1])
    for start in range(0, len(X), step):
        rows = X[start : start + step]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(rows.sum()):  # cheap, and almost always enough
                continue
        bad = ~np.isfinite(rows)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            return ValueError(
                f"{name} contains NaN or inf ({rows[row, column]} at row {start + row}, column {column}), "
                "expected finite numbers: drop or impute these rows"
            )
    return None


def as_array(X: Any, name: str = "X") -> npt.NDArray[Any]:
    """Return numbers, (n, d) or (d,), without copying an array of numbers.

    ``X`` may be an array, a list of lists, an array of objects, a data frame, or a column of vectors of
    pandas, Polars or pyarrow. A row that is missing or has another length raises a ValueError that names it.

    >>> as_array([[1, 2], [3, 4]])
    array([[1, 2],
           [3, 4]])
    >>> as_array([[1, 2], [3, 4, 5]])
    Traceback (most recent call last):
    ValueError: expected rows of X with 2 numbers, as row 0 has, got 3 in row 1
    """
    if sp.issparse(X):
        raise TypeError(f"{name} is a sparse matrix, expected a dense array: call {name}.toarray() first")
    try:
        array = _convert(X)
    except ValueError:  # lists of different lengths
        return _stack_rows(list(X), name)
    if array.dtype.kind != "O":
        return array
    if array.ndim == 2 and array.shape[1] == 1 and not _is_number(array[0, 0]):
        array = array[:, 0]  # a data frame whose only column holds vectors
    if array.ndim == 1 and any(not _is_number(value) for value in array[:1]):
        return _stack_rows(list(array), name)
    return _as_floats(array, name)


def keep_column_names(X: Any) -> Any:
    """Return a data frame with one column per feature unchanged, and other vectors as an array (n, d)."""
    array = as_array(X)
    return X if len(getattr(X, "columns", ())) == array.shape[1] else array


def as_list(values: Any) -> Any:
    """Return a column of pandas, Polars or pyarrow as a list, and other values unchanged.

    >>> as_list(range(3))
    range(0, 3)
    """
    if isinstance(values, list | tuple | range | str | bytes | np.ndarray):
        return values
    for method in _LIST_METHODS:
        if hasattr(values, method):
            return getattr(values, method)()
    return values


def _as_numeric_2d(X: Any, name: str) -> npt.NDArray[Any]:
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


def _convert(X: Any) -> npt.NDArray[Any]:
    if hasattr(X, "to_pylist") and hasattr(X, "to_numpy"):  # pyarrow refuses to copy by default
        return np.asarray(X.to_numpy(zero_copy_only=False))
    return np.asarray(X)


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and value is not None


def _stack_rows(rows: list[Any], name: str) -> npt.NDArray[Any]:
    """Return the matrix with these rows, each a list or an array of numbers."""
    arrays = [_convert_row(row, i, name) for i, row in enumerate(rows)]
    width = len(arrays[0])
    for i, row in enumerate(arrays):
        if len(row) != width:
            raise ValueError(
                f"expected rows of {name} with {width} numbers, as row 0 has, got {len(row)} in row {i}"
            )
    return np.concatenate(arrays).reshape(len(arrays), width)


def _convert_row(row: Any, i: int, name: str) -> npt.NDArray[Any]:
    if row is None or isinstance(row, str | bytes):
        raise ValueError(
            f"expected numbers in row {i} of {name}, got {row!r:.80}: leave it out, or convert it"
        )
    try:
        array = _convert(row)
    except ValueError:
        array = np.empty((0, 0))
    if array.ndim != 1:
        raise ValueError(f"expected a list of numbers in row {i} of {name}, got {row!r:.80}")
    return _as_floats(array, f"row {i} of {name}") if array.dtype.kind == "O" else array


def _as_floats(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    try:
        return array.astype(np.float64)
    except ValueError as error:  # a TypeError passes: scikit-learn expects one for objects without a number
        raise ValueError(f"{name} has objects that are not numbers ({error}): convert them first") from error


# Numbers and choices -------------------------------------------------------------------------------


def validate_integer(name: str, value: Any, low: int, high: int | None = None, why_high: str = "") -> int:
    """Return ``value`` as an int within [low, high]; raise TypeError for bool and float."""
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


def validate_code_shape(n_bits: Any, n_active: Any) -> tuple[int, int]:
    """Return the size of a sparse code if 2 <= n_bits <= 65,536 and 1 <= n_active <= n_bits."""
    n_bits = validate_n_bits(n_bits)
    return n_bits, validate_integer("n_active", n_active, 1, n_bits, " (n_bits)")


def validate_n_bits(n_bits: Any, low: int = 2) -> int:
    """Return the number of bits of a code if it is between ``low`` and 65,536."""
    return validate_integer("n_bits", n_bits, low, MAX_BITS)


def validate_real(
    name: str, value: Any, low: float, high: float = np.inf, *, open_low: bool = False
) -> float:
    """Return ``value`` as a finite float within [low, high], or (low, high] with ``open_low``."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"expected {name} to be a number, got {value!r} of type {type(value).__name__}")
    number = float(value)
    if not (low < number if open_low else low <= number) or not number <= high or number == np.inf:
        begin, end = "(" if open_low else "[", ")" if high == np.inf else "]"
        raise ValueError(f"expected {name} in {begin}{low:g}, {high:g}{end}, got {number:g}")
    return number


def validate_choice(name: str, value: Any, allowed: Iterable[Any]) -> Any:
    """Return ``value`` if it is one of ``allowed``."""
    options = list(allowed)
    if value not in options:
        raise ValueError(f"expected {name} to be one of {', '.join(map(repr, options))}, got {value!r}")
    return value


def validate_labels(values: Any, n: int | None = None, name: str = "labels") -> npt.NDArray[Any]:
    """Return ``values`` as a 1-D array, of length ``n`` unless that is None."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"expected {name} to be 1-D, got shape {array.shape}")
    if n is not None and len(array) != n:
        raise ValueError(f"expected {n} {name}, got {len(array)}")
    return array


# Ids -----------------------------------------------------------------------------------------------


def validate_integer_ids(values: Any, n: int | None = None) -> npt.NDArray[np.int64]:
    """Return ``values`` as distinct int64 >= 0, (n,)."""
    array = np.asarray(as_list(values))
    if array.size == 0:
        array = array.astype(np.int64).reshape(-1)
    if array.ndim != 1 or array.dtype.kind not in "ui":
        raise ValueError(
            f"expected ids as a 1-D integer array, got {array.dtype} {array.shape}: "
            "posh.Index and posh.Collection accept ids that are strings"
        )
    if n is not None and len(array) != n:
        raise ValueError(f"expected as many ids as vectors ({n}), got {len(array)}")
    if array.size and (array.min() < 0 or array.max() >= 2**63):
        raise ValueError(f"expected ids in 0 .. 2^63 - 1, got {array.min()} .. {array.max()}")
    unique, counts = np.unique(array, return_counts=True)
    if len(unique) < len(array):
        raise ValueError(f"expected distinct ids, got {unique[counts > 1][0]} more than once")
    return array.astype(np.int64)


def validate_ids(values: Any, n: int | None = None, *, distinct: bool = True) -> list[int | str]:
    """Return ids as a list of int and str, of length ``n`` unless that is None.

    A ``uuid.UUID`` becomes its string. Columns of pandas, Polars and pyarrow are accepted as lists.
    """
    values = as_list(values)
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence | np.ndarray):
        raise ValueError(f"expected ids as a list or an array of int or str, got {values!r:.80}")
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise ValueError(f"expected ids to be 1-D, got shape {values.shape}")
    ids = [_validate_id(value) for value in (values.tolist() if isinstance(values, np.ndarray) else values)]
    if n is not None and len(ids) != n:
        raise ValueError(f"expected as many ids as vectors ({n}), got {len(ids)}")
    if distinct and len(set(ids)) < len(ids):
        raise ValueError(f"expected distinct ids, got {_find_duplicate(ids)!r} more than once")
    return ids


def _find_duplicate(ids: list[int | str]) -> int | str:
    seen: set[int | str] = set()
    for value in ids:
        if value in seen:
            return value
        seen.add(value)
    raise AssertionError("expected a duplicate")


def _validate_id(value: Any) -> int | str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"expected ids to be int or str, got {value!r:.80} of type {type(value).__name__}")
    if isinstance(value, str) and not 1 <= len(value) <= MAX_ID_LENGTH:
        raise ValueError(f"expected ids of 1 to {MAX_ID_LENGTH} characters, got {len(value)}")
    validate_storable(value, "an id")
    return value


def validate_storable(value: str | float | None, where: str) -> None:
    """Raise ValueError for a value that cannot be stored: NaN, 2**64, half a surrogate pair."""
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
