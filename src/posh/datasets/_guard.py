"""Checks that several file readers share."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from posh.errors import FormatError, MissingExtraError, PoshError

__all__ = ["reading", "refuse_bloat", "refuse_objects", "require", "sole_key"]

# No stream of deflate expands by more; room is left for small files.
_DEFLATE_LIMIT, _ALLOWANCE = 1032, 1 << 20


def refuse_bloat(path: Path, declared: int, stored: int) -> None:
    """Refuse an array that declares more bytes than its stored bytes could ever unpack to."""
    if declared > stored * _DEFLATE_LIMIT + _ALLOWANCE:
        raise FormatError(f"{path}: expected the {declared:,} bytes it declares, got only {stored:,} stored")


def refuse_objects(path: Path, name: str, dtype: np.dtype[Any]) -> None:
    """Refuse an array of an ``.npz`` file that only unpickling could read: a pickle may run any program."""
    if dtype.hasobject:
        raise FormatError(
            f"{path}: expected numbers or text in {name!r}, got Python objects, which are never unpickled: "
            "save it with .astype(str), or with .astype(int)"
        )


def sole_key(path: Path, keys: Collection[str], key: str | None) -> str:
    """Return ``key`` if the file has it, or the only key of the file if none is asked for."""
    if key is None and len(keys) == 1:
        return next(iter(keys))
    if key is None or key not in keys:
        choices = ", ".join(sorted(keys)) or "(the file has none)"
        raise FormatError(f"{path}: expected key to be one of {choices}; got {key!r}")
    return key


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever is raised on a damaged file into a FormatError that names it."""
    try:
        yield
    except PoshError:
        raise
    except Exception as error:
        raise FormatError(f"{path}: expected a complete {kind} file; {error}") from error


def require(package: str, purpose: str) -> Any:
    """Import a package of the extra ``data``, or say how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(package.partition(".")[0], "data", purpose) from error
