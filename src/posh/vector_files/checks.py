"""Vectors as a file has them, checked row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["checked_vectors"]

Float32 = NDArray[np.float32]

_EXACT_INTEGERS = 2**24  # beyond, float32 skips integers


def checked_vectors(vectors: NDArray[Any] | list[Any], width: int | None) -> tuple[Float32, str | None]:
    """Return the vectors (n, d) before the first wrong row, float32, and what is wrong with that row.

    ``width`` is the d that they must have, if it is known. Otherwise the first vector decides.

    >>> checked_vectors([[1, 2], [3, 4, 5]], None)
    (array([[1., 2.]], dtype=float32), 'expected a vector of 2 numbers, got 3')
    """
    array = _as_matrix(vectors)
    if array is None:
        return _row_by_row(list(vectors), width)
    if len(array) and width not in (None, array.shape[1]):
        return np.empty((0, width or 0), np.float32), _wrong_width(width, array.shape[1])
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, np.float32)
    wrong = ~np.isfinite(converted)
    if array.dtype.kind in "iu" and array.dtype.itemsize > 2:
        wrong |= np.abs(array) > _EXACT_INTEGERS
    if not wrong.any():
        return converted, None
    row, column = np.argwhere(wrong)[0]
    return converted[:row], _wrong_number(array[row, column], column)


def _as_matrix(vectors: NDArray[Any] | list[Any]) -> NDArray[Any] | None:
    """Return vectors as a matrix of numbers; None if that needs a closer look."""
    if not isinstance(vectors, np.ndarray):
        try:
            vectors = np.array(vectors, np.float64)
        except (ValueError, TypeError, OverflowError):
            return None
    return vectors if vectors.ndim == 2 and vectors.shape[1] and vectors.dtype.kind in "fiub" else None


def _row_by_row(vectors: list[Any], width: int | None) -> tuple[Float32, str | None]:
    rows: list[Float32] = []
    problem = None
    for vector in vectors:
        try:
            row = np.array(vector, np.float64)
        except (ValueError, TypeError, OverflowError) as error:
            problem = f"expected a list of numbers, got {vector!r:.60} ({error}{_place(vector)})"
            break
        if row.ndim != 1 or not row.size:
            problem = f"expected a list of numbers, got {vector!r:.60}"
            break
        checked, problem = checked_vectors(row[None], width)
        if problem is not None:
            break
        rows.append(checked[0])
        width = len(row)
    return np.stack(rows) if rows else np.empty((0, width or 0), np.float32), problem


def _place(vector: Any) -> str:
    """Say where the first text is that is no number: a long vector is not shown as far as that."""
    for place, part in enumerate(vector if isinstance(vector, list | tuple) else ()):
        try:
            float(part)
        except ValueError:
            return f" in place {place} of the vector"
        except (TypeError, OverflowError):
            continue
    return ""


def _wrong_width(width: int | None, found: int) -> str:
    return f"expected a vector of {width} numbers, got {found}"


def _wrong_number(value: Any, column: int) -> str:
    if not np.isfinite(value):
        return f"expected finite numbers, got {value} in place {column} of the vector"
    return f"expected numbers that float32 can hold, got {value} in place {column} of the vector"
