"""The roles of columns (vector, id, payload), and the validation of vectors as files hold them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posh.files.contract import (
    Column,
    Roles,
    RowError,
    VectorFile,
    describe_columns,
    parse_numbered_name,
)

__all__ = ["Choice", "OptionNames", "choose_roles", "take_valid_vectors"]

Float32 = NDArray[np.float32]

_ID_NAME = re.compile(r"_?ids?|uuid|key|.*_id", re.IGNORECASE)
_TRAIN = "train"  # the base vectors in files of ann-benchmarks, which also hold queries
_NUMERIC = ("integers", "numbers")
_ID_KINDS = ("integers", "text")
_EXACT_INTEGERS = 2**24  # float32 rounds some larger integers


class OptionNames(NamedTuple):
    """Names, for messages, of the caller's options that choose roles."""

    vector: str = "--vector"
    id: str = "--id"
    payload: str = "--payload"
    number_rows: str = "--number-rows"


class Choice(NamedTuple):
    """The roles of columns, and a sentence about each role that was guessed."""

    roles: Roles
    guesses: list[str]


def choose_roles(
    file: VectorFile,
    vector: Sequence[str] = (),
    item_id: str | None = None,
    payload: Sequence[str] | None = None,
    *,
    number_rows: bool = False,
    names: OptionNames = OptionNames(),  # noqa: B008  # immutable
) -> Choice:
    """Choose the roles of columns: those that the caller names, and guesses for the others.

    Parameters
    ----------
    file
        The file.
    vector
        Names of columns, or patterns such as ``x*``, in the order of the vector. Numbered columns that match
        a pattern are in the order of their numbers. By default the only column of vectors, or else the only
        family of numbered columns of numbers; a family with a value that is not a number is an error.
    item_id
        The column of ids. By default the only column with a name such as ``id``; without one, rows are
        numbered. A column with such a name that cannot hold ids is an error.
    payload
        Names or patterns of columns. By default all other columns.
    number_rows
        Number the rows, even if there is a column of ids.
    names
        The names of these options in messages.

    Raises
    ------
    ValueError : an unknown column, no candidate for a role or several, or columns of different lengths.

    """
    guesses: list[str] = []
    vectors = (
        _match_columns(file, vector, names.vector) if vector else _guess_vector(file, names.vector, guesses)
    )
    if len(vectors) > 1:
        _require_numbers(file, vectors, names.vector)
    if item_id is not None:
        _require_column(file, item_id, names.id)
    elif not number_rows:
        item_id = _guess_id(file, vectors, names, guesses)
    fields = None if payload is None else tuple(_match_columns(file, payload, names.payload))
    roles = Roles(tuple(vectors), item_id, fields)
    _require_equal_lengths(file, roles)
    if payload is None:
        guesses += _explain_payload(file, roles, names.payload)
    return Choice(roles, guesses)


def _explain_payload(file: VectorFile, roles: Roles, option: str) -> list[str]:
    fields = file.payload_names(roles)
    sentences = [f"payload: {', '.join(map(repr, fields)) or 'nothing'}"]
    rest = [column for column in file.columns if column.name not in (*roles.key_columns, *fields)]
    if rest:
        sentences.append(f"left out: {describe_columns(rest)}; {option} keeps a column")
    return sentences


def _require_numbers(file: VectorFile, names: Iterable[str], option: str) -> None:
    for column in map(file.column, names):
        if column.kind in _NUMERIC or (column.stray is not None and file.on_bad_row is not None):
            continue
        remedy = f"correct the file, or choose the columns with {option}"
        if column.stray is None:
            raise ValueError(
                f"{file.path}: expected columns of numbers for a vector, "
                f"got {describe_columns([column])}: {remedy}"
            )
        row, value = column.stray
        raise RowError(
            file.path, row, f"expected a number in the column {column.name!r}, got {value!r:.60}: {remedy}"
        )


def _require_column(file: VectorFile, name: str, option: str) -> None:
    if name not in [column.name for column in file.columns]:
        raise ValueError(
            f"{file.path}: expected {option} to be a column of the file, got {name!r}; "
            f"it has {describe_columns(file.columns)}"
        )


def _match_columns(file: VectorFile, patterns: Sequence[str], option: str) -> list[str]:
    """Return the names of columns in the order of the patterns that match them."""
    names = [column.name for column in file.columns]
    matches: list[str] = []
    for pattern in patterns:
        new = [pattern] if pattern in names else [name for name in names if fnmatchcase(name, pattern)]
        if not new:
            _require_column(file, pattern, option)
        matches += _sort_by_number(new)
    return list(dict.fromkeys(matches))


def _sort_by_number(names: Sequence[str]) -> list[str]:
    """Group names by family, each in the order of its numbers: some tools write x10 before x2."""
    families: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        family, number = parse_numbered_name(name)
        families.setdefault(family, []).append((-1 if number is None else number, name))
    return [name for members in families.values() for _, name in sorted(members)]


def _guess_vector(file: VectorFile, option: str, guesses: list[str]) -> list[str]:
    candidates = [[column.name] for column in file.columns if column.kind == "vectors"]
    if len(candidates) > 1 and [_TRAIN] in candidates:
        candidates = [[_TRAIN]]
    if not candidates:
        candidates = _find_families(file.columns)
    if len(candidates) != 1:
        raise ValueError(
            f"{file.path}: expected one column that can be the vector, got {len(candidates)}: choose with "
            f"{option} among {describe_columns(file.columns)}"
        )
    (names,) = candidates
    text = repr(names[0]) if len(names) == 1 else f"{len(names)} columns {names[0]!r} … {names[-1]!r}"
    guesses.append(f"vector: {text}, the only candidate" if len(file.columns) > 1 else f"vector: {text}")
    return names


def _find_families(columns: Iterable[Column]) -> list[list[str]]:
    """Return the families of numbered columns of which at least two hold numbers.

    A family includes its columns of other kinds: a vector must not silently lose a dimension.
    """
    members: dict[str, list[str]] = {}
    n_numeric: Counter[str] = Counter()
    for column in columns:
        family, number = parse_numbered_name(column.name)
        if number is not None:
            members.setdefault(family, []).append(column.name)
            n_numeric[family] += column.kind in _NUMERIC or column.stray is not None
    return [_sort_by_number(names) for family, names in members.items() if n_numeric[family] > 1]


def _guess_id(file: VectorFile, vectors: list[str], names: OptionNames, guesses: list[str]) -> str | None:
    n_rows = file.column(vectors[0]).n_rows
    candidates = [
        column for column in file.columns if column.name not in vectors and _ID_NAME.fullmatch(column.name)
    ]
    candidates = [column for column in candidates if column.name.lower() == "id"] or candidates
    usable = [column for column in candidates if column.kind in _ID_KINDS and column.n_rows == n_rows]
    if len(usable) > 1:
        raise ValueError(
            f"{file.path}: expected one column that can be the id, got "
            f"{', '.join(repr(column.name) for column in usable)}: "
            f"choose with {names.id}, or number the rows with {names.number_rows}"
        )
    if candidates and not usable:
        raise ValueError(
            f"{file.path}: {_explain_unusable_id(candidates[0], n_rows)}, choose another column with "
            f"{names.id}, or number the rows with {names.number_rows}"
        )
    if not usable:
        guesses.append("id: the row number")
        return None
    guesses.append(f"id: {usable[0].name!r}")
    return usable[0].name


def _explain_unusable_id(column: Column, n_rows: int) -> str:
    if column.kind not in _ID_KINDS:
        return (
            f"expected integers or text in {column.name!r}, whose name is that of an id, "
            f"got {column.type}: convert them"
        )
    return f"expected {n_rows:,} ids in {column.name!r}, one per vector, got {column.n_rows:,}: complete them"


def _require_equal_lengths(file: VectorFile, roles: Roles) -> None:
    n_rows = file.n_rows(roles)
    for name in (*roles.key_columns, *(roles.payload or ())):
        n_others = file.column(name).n_rows
        if n_others != n_rows:
            raise ValueError(
                f"{file.path}: expected {n_rows:,} rows in {name!r} as in {roles.vector[0]!r}, "
                f"got {n_others:,}"
            )


# Vectors -------------------------------------------------------------------------------------------


def take_valid_vectors(vectors: NDArray[Any] | list[Any], width: int | None) -> tuple[Float32, str | None]:
    """Return the vectors before the first invalid one, float32 (n, d), and the problem of that one, if any.

    ``width`` is the expected d. If it is None, the first vector decides.

    >>> take_valid_vectors([[1, 2], [3, 4, 5]], None)
    (array([[1., 2.]], dtype=float32), 'expected a vector of 2 numbers, got 3')
    """
    array = _to_matrix(vectors)
    if array is None:
        return _take_row_by_row(list(vectors), width)
    if len(array) and width not in (None, array.shape[1]):
        return np.empty((0, width or 0), np.float32), _explain_width(width, array.shape[1])
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, np.float32)
    is_invalid = ~np.isfinite(converted)
    if array.dtype.kind in "iu" and array.dtype.itemsize > 2:
        is_invalid |= np.abs(array) > _EXACT_INTEGERS
    if not is_invalid.any():
        return converted, None
    row, column = np.argwhere(is_invalid)[0]
    return converted[:row], _explain_number(array[row, column], column)


def _to_matrix(vectors: NDArray[Any] | list[Any]) -> NDArray[Any] | None:
    """Convert vectors to a matrix of numbers; None if they must be looked at row by row."""
    if not isinstance(vectors, np.ndarray):
        try:
            vectors = np.array(vectors, np.float64)
        except (ValueError, TypeError, OverflowError):
            return None
    return vectors if vectors.ndim == 2 and vectors.shape[1] and vectors.dtype.kind in "fiub" else None


def _take_row_by_row(vectors: list[Any], width: int | None) -> tuple[Float32, str | None]:
    rows: list[Float32] = []
    problem = None
    for vector in vectors:
        try:
            row = np.array(vector, np.float64)
        except (ValueError, TypeError, OverflowError) as error:
            problem = f"expected a list of numbers, got {vector!r:.60} ({error}{_locate_text(vector)})"
            break
        if row.ndim != 1 or not row.size:
            problem = f"expected a list of numbers, got {vector!r:.60}"
            break
        valid, problem = take_valid_vectors(row[None], width)
        if problem is not None:
            break
        rows.append(valid[0])
        width = len(row)
    return np.stack(rows) if rows else np.empty((0, width or 0), np.float32), problem


def _locate_text(vector: Any) -> str:
    """Return the place of the first text that is not a number: messages cut long vectors off before it."""
    for place, part in enumerate(vector if isinstance(vector, list | tuple) else ()):
        try:
            float(part)
        except ValueError:
            return f" in place {place} of the vector"
        except (TypeError, OverflowError):
            continue
    return ""


def _explain_width(expected: int | None, width: int) -> str:
    return f"expected a vector of {expected} numbers, got {width}"


def _explain_number(value: Any, column: int) -> str:
    if not np.isfinite(value):
        return f"expected finite numbers, got {value} in place {column} of the vector"
    return f"expected numbers that float32 can hold, got {value} in place {column} of the vector"
