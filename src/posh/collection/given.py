"""What a collection is opened with, checked before anything is touched and compared with what it has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from posh import store
from posh.collection import _arguments, building, tables
from posh.collection.base import Payload
from posh.collection.moment import Moment
from posh.hashers.base import Hasher
from posh.index.options import IndexOptions

__all__ = ["Given", "checked_options"]


@dataclass(frozen=True)
class Given:
    """A hasher, fitted, and metadata, where they are given; and options of the index."""

    hasher: Hasher[Any] | None
    metadata: Payload | None
    options: dict[str, Any]

    @classmethod
    def checked(cls, hasher: Any, metadata: Any, options: Mapping[str, Any]) -> Given:
        """Refuse what makes no sense in itself."""
        own = checked_options(options)
        if hasher is not None:
            building.empty_index(_arguments.fitted_hasher(hasher, None), own)
        return cls(hasher, None if metadata is None else _arguments.json_object(metadata, "metadata"), own)

    def first_meta(self) -> dict[str, Any]:
        """What is written down of a new collection."""
        texts = {"options": json.dumps(self.options), "metadata": tables.dumps(self.metadata or {})}
        numbers = {"version": 0, "generation": 0, "last_seq": 0, "ids_sum": 0}
        return numbers | {"n_features": None, "snapshot": None} | texts

    def require_agreement(self, path: Path, moment: Moment, metadata: Payload) -> None:
        """Refuse what an existing collection has otherwise: opening changes nothing."""
        if self.metadata is not None and self.metadata != metadata:
            raise ValueError(
                f"{path}: expected the metadata that this collection has, got {self.metadata!r:.80}: "
                "leave it out, and call set_metadata to change it"
            )
        if moment.index is None and self.hasher is not None:
            _arguments.fitted_hasher(self.hasher, moment.n_features)
            return
        if (
            self.hasher is not None
            and moment.index is not None
            and not _same(self.hasher, moment.index.hasher)
        ):
            raise ValueError(
                f"{path}: expected the hasher that this collection has, got another "
                f"{type(self.hasher).__name__}: leave it out, and call reindex to change it"
            )
        changed = {**moment.options, **self.options}
        if moment.index is None:
            same = changed == moment.options
        else:
            same = building.empty_index(moment.index.hasher, changed).options == moment.index.options
        if not same:
            raise ValueError(
                f"{path}: expected the options that this collection has, {dict(moment.options)}, "
                f"got {self.options}: leave them out, and give them to fit or reindex to change them"
            )


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of an index by name, as JSON can hold them; their values are checked beside a hasher."""
    names = [field.name for field in fields(IndexOptions)]
    for name in options:
        if name not in names:
            raise TypeError(f"expected options among {', '.join(names)}, got {name!r}")
    return _arguments.json_object(options, "options")


def _same(one: Hasher[Any], other: Hasher[Any]) -> bool:
    a, b = (store.parse_model(hasher.to_bytes(), "hasher") for hasher in (one, other))
    if (a.name, a.params, a.columns, a.arrays.keys()) != (b.name, b.params, b.columns, b.arrays.keys()):
        return False
    return all(np.array_equal(a.arrays[name], b.arrays[name]) for name in a.arrays)
