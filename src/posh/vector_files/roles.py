"""Which columns of a file are the vector, the id and the payload: as the user says, or a guess."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from posh.vector_files.contract import Column, Roles, RowError, VectorFile, number_of

__all__ = ["Choice", "choose_roles"]

_ID = re.compile(r"_?ids?|uuid|key|.*_id", re.IGNORECASE)
_TRAIN = "train"  # the vectors in files of ann-benchmarks, which have queries beside them


class Choice(NamedTuple):
    """The roles of columns, and a sentence about each role that the user has not chosen."""

    roles: Roles
    guesses: list[str]


def choose_roles(
    file: VectorFile,
    vector: Sequence[str] = (),
    item_id: str | None = None,
    payload: Sequence[str] | None = None,
    *,
    number_rows: bool = False,
) -> Choice:
    """Return the roles of columns. Patterns such as ``x*`` in ``vector`` and ``payload`` stand for several.

    Columns that ``vector`` names are in the order of these names. Numbered columns that a pattern or a guess
    finds are in the order of their numbers, whatever their order in the file.

    Without ``vector``, it is the only column of vectors, or the only family of numbered columns of numbers. A
    family with a value that is no number is an error: no column of it is left out.
    Without ``item_id``, it is the only column that is called like an id; if there is none, or with
    ``number_rows``, rows are numbered. A column that is called like an id and cannot be one is an error.
    Without ``payload``, all other columns are the payload.
    """
    guesses: list[str] = []
    vectors = _matching(file, vector, "--vector") if vector else _guess_vector(file, guesses)
    if len(vectors) > 1:
        _require_numbers(file, vectors)
    if item_id is not None:
        _require(file, item_id, "--id")
    elif not number_rows:
        item_id = _guess_id(file, vectors, guesses)
    fields = None if payload is None else tuple(_matching(file, payload, "--payload"))
    roles = Roles(tuple(vectors), item_id, fields)
    _require_one_length(file, roles)
    if payload is None:
        names = file.payload_names(roles)
        guesses.append(f"payload: {', '.join(map(repr, names)) or 'nothing'}")
        rest = [column for column in file.columns if column.name not in (*vectors, item_id, *names)]
        if rest:
            guesses.append(f"left out: {_listed(rest)}; --payload keeps a column")
    return Choice(roles, guesses)


_NUMERIC = ("integers", "numbers")
_IDS = ("integers", "text")


def _require_numbers(file: VectorFile, names: Iterable[str]) -> None:
    for column in map(file.column, names):
        if column.kind in _NUMERIC:
            continue
        remedy = "correct the file, or choose the columns with --vector"
        if column.stray is None:
            raise ValueError(
                f"{file.path}: expected columns of numbers for a vector, got {_listed([column])}: {remedy}"
            )
        row, value = column.stray
        raise RowError(
            file.path, row, f"expected a number in the column {column.name!r}, got {value!r:.60}: {remedy}"
        )


def _listed(columns: Iterable[Column]) -> str:
    return ", ".join(f"{column.name!r} ({column.type})" for column in columns) or "none"


def _require(file: VectorFile, name: str, option: str) -> None:
    if name not in [column.name for column in file.columns]:
        raise ValueError(
            f"{file.path}: expected {option} to be a column of the file, got {name!r}; "
            f"it has {_listed(file.columns)}"
        )


def _matching(file: VectorFile, patterns: Sequence[str], option: str) -> list[str]:
    """Return the names of columns in the order of the patterns that match them."""
    names = [column.name for column in file.columns]
    matching: list[str] = []
    for pattern in patterns:
        found = [pattern] if pattern in names else [name for name in names if fnmatchcase(name, pattern)]
        if not found:
            _require(file, pattern, option)
        matching += _by_number(found)
    return list(dict.fromkeys(matching))


def _by_number(names: Sequence[str]) -> list[str]:
    """Return names with those of each family together, by their numbers: tools write x10 before x2."""
    families: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        family, number = number_of(name)
        families.setdefault(family, []).append((-1 if number is None else number, name))
    return [name for members in families.values() for _, name in sorted(members)]


def _guess_vector(file: VectorFile, guesses: list[str]) -> list[str]:
    candidates = [[column.name] for column in file.columns if column.kind == "vectors"]
    if len(candidates) > 1 and [_TRAIN] in candidates:
        candidates = [[_TRAIN]]
    if not candidates:
        candidates = _families(file.columns)
    if len(candidates) != 1:
        raise ValueError(
            f"{file.path}: expected one column that can be the vector, got {len(candidates)}: choose with "
            f"--vector among {_listed(file.columns)}"
        )
    (found,) = candidates
    text = repr(found[0]) if len(found) == 1 else f"{len(found)} columns {found[0]!r} … {found[-1]!r}"
    guesses.append(f"vector: {text}, the only candidate" if len(file.columns) > 1 else f"vector: {text}")
    return found


def _families(columns: Iterable[Column]) -> list[list[str]]:
    """Return the families of numbered columns of which at least two have numbers.

    A family has its other columns, too: a vector without them would lack a place.
    """
    members: dict[str, list[str]] = {}
    n_numeric: Counter[str] = Counter()
    for column in columns:
        family, number = number_of(column.name)
        if number is not None:
            members.setdefault(family, []).append(column.name)
            n_numeric[family] += column.kind in _NUMERIC or column.stray is not None
    return [_by_number(names) for family, names in members.items() if n_numeric[family] > 1]


def _guess_id(file: VectorFile, vectors: list[str], guesses: list[str]) -> str | None:
    n_rows = file.column(vectors[0]).n_rows
    called = [column for column in file.columns if column.name not in vectors and _ID.fullmatch(column.name)]
    called = [column for column in called if column.name.lower() == "id"] or called
    usable = [column for column in called if column.kind in _IDS and column.n_rows == n_rows]
    if len(usable) > 1:
        raise ValueError(
            f"{file.path}: expected one column that can be the id, got "
            f"{', '.join(repr(column.name) for column in usable)}: "
            "choose with --id, or number the rows with --number-rows"
        )
    if called and not usable:
        name, kind, found, n_found, _ = called[0]
        wrong = (
            f"expected integers or text in {name!r}, which is called like an id, got {found}: convert them"
            if kind not in _IDS
            else f"expected {n_rows:,} ids in {name!r}, as many as vectors, got {n_found:,}: complete them"
        )
        raise ValueError(
            f"{file.path}: {wrong}, choose another column with --id, or number the rows with --number-rows"
        )
    found_id = usable[0].name if usable else None
    guesses.append("id: the number of the row" if found_id is None else f"id: {found_id!r}")
    return found_id


def _require_one_length(file: VectorFile, roles: Roles) -> None:
    n_rows = file.n_rows(roles)
    for name in (*roles.vector, *([] if roles.id is None else [roles.id]), *(roles.payload or ())):
        found = file.column(name).n_rows
        if found != n_rows:
            raise ValueError(
                f"{file.path}: expected {n_rows:,} rows in {name!r} as in {roles.vector[0]!r}, got {found:,}"
            )
