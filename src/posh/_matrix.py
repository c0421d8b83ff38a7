"""Vectors in any form that users bring, as arrays of numbers.

pandas, Polars and pyarrow are never imported: their columns are recognised by their methods.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = ["as_array", "listed", "named_columns"]

_LISTS = ("to_pylist", "to_list", "tolist")  # of pyarrow; of pandas and Polars; of arrays


def as_array(X: Any, name: str = "X") -> npt.NDArray[Any]:
    """Return numbers, (n, d) or (d,), without copying an array of numbers.

    ``X`` may be an array, a list of lists, an array of objects, a data frame, or a column of vectors: of
    pandas, Polars or pyarrow. A row that is missing or has another length is a ValueError that names it.

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
        array = _converted(X)
    except ValueError:  # lists of several lengths
        return _stacked(list(X), name)
    if array.dtype.kind != "O":
        return array
    if array.ndim == 2 and array.shape[1] == 1 and not _is_number(array[0, 0]):
        array = array[:, 0]  # a data frame whose only column holds vectors
    if array.ndim == 1 and any(not _is_number(value) for value in array[:1]):
        return _stacked(list(array), name)
    return _numbers(array, name)


def named_columns(X: Any) -> Any:
    """Return vectors (n, d) with the names of their columns if they are a data frame with d columns."""
    array = as_array(X)
    return X if len(getattr(X, "columns", ())) == array.shape[1] else array


def listed(values: Any) -> Any:
    """Return a column of pandas, Polars or pyarrow as a list; other values as they are.

    >>> listed(range(3))
    range(0, 3)
    """
    if isinstance(values, list | tuple | range | str | bytes | np.ndarray):
        return values
    for method in _LISTS:
        if hasattr(values, method):
            return getattr(values, method)()
    return values


def _converted(X: Any) -> npt.NDArray[Any]:
    if hasattr(X, "to_pylist") and hasattr(X, "to_numpy"):  # of pyarrow, which copies only if it is told to
        return np.asarray(X.to_numpy(zero_copy_only=False))
    return np.asarray(X)


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and value is not None


def _stacked(rows: list[Any], name: str) -> npt.NDArray[Any]:
    """Return the matrix with these rows, each a list or an array of numbers."""
    arrays = [_row(row, i, name) for i, row in enumerate(rows)]
    width = len(arrays[0])
    for i, row in enumerate(arrays):
        if len(row) != width:
            raise ValueError(
                f"expected rows of {name} with {width} numbers, as row 0 has, got {len(row)} in row {i}"
            )
    return np.concatenate(arrays).reshape(len(arrays), width)


def _row(row: Any, i: int, name: str) -> npt.NDArray[Any]:
    if row is None or isinstance(row, str | bytes):
        raise ValueError(
            f"expected numbers in row {i} of {name}, got {row!r:.80}: leave it out, or convert it"
        )
    try:
        array = _converted(row)
    except ValueError:
        array = np.empty((0, 0))
    if array.ndim != 1:
        raise ValueError(f"expected a list of numbers in row {i} of {name}, got {row!r:.80}")
    return _numbers(array, f"row {i} of {name}") if array.dtype.kind == "O" else array


def _numbers(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    try:
        return array.astype(np.float64)
    except ValueError as error:  # a TypeError is what scikit-learn expects of objects that are no numbers
        raise ValueError(f"{name} has objects that are not numbers ({error}): convert them first") from error
