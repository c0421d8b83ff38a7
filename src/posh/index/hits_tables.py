"""Hits as tables of pandas and pyarrow, which are imported only here and only when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from posh.errors import MissingExtraError

__all__ = ["to_arrow", "to_pandas"]


def to_pandas(columns: Mapping[str, list[Any]]) -> Any:
    """Return a DataFrame with these columns."""
    pandas = _imported("pandas", "pandas", "to_pandas()")
    return pandas.DataFrame({name: pandas.Series(values) for name, values in columns.items()})


def to_arrow(columns: Mapping[str, list[Any]]) -> Any:
    """Return a pyarrow Table with these columns."""
    pyarrow = _imported("pyarrow", "data", "to_arrow()")
    return pyarrow.table({name: _arrow_column(pyarrow, values) for name, values in columns.items()})


def _arrow_column(pyarrow: Any, values: list[Any]) -> Any:
    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):  # values of several types
        return pyarrow.array([None if value is None else json.dumps(value) for value in values])


def _imported(module: str, extra: str, purpose: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(module, extra, purpose) from error
