"""Open, create, list and drop collections on Milvus."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posh.collection import base, indexing
from posh.collection.opening import OpenOptions, are_equal
from posh.engines.milvus.connection import Milvus
from posh.engines.milvus.table import SUFFIX, ItemTable, Settings, SettingsTable, format_table_name
from posh.hashers.base import Hasher
from posh.index.base import IndexSnapshot

__all__ = ["MilvusSnapshot", "build_index_snapshot", "create_table", "drop_collection"]
__all__ += ["list_collections", "open_snapshot", "validate_name"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_REFINERS = (None, "vectors", "cosine")


@dataclass(frozen=True)
class MilvusSnapshot:
    """The state that a search reads.

    ``index`` has no documents: it holds the hasher and the complete options, and is None if there is neither
    a hasher nor a metric. ``table`` is None until the number of columns is known.
    """

    settings: Settings
    index: IndexSnapshot | None
    table: ItemTable | None


def validate_name(name: str) -> str:
    """Return the name of a collection; raise ValueError if Milvus would refuse it."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(
            "expected a name of up to 200 letters, digits and '_' that does not begin with a digit, "
            f"got {name!r:.80}"
        )
    return name


def list_collections(milvus: Milvus) -> list[str]:
    """Return the names of the collections in Milvus that this package has created."""
    return sorted(name.removesuffix(SUFFIX) for name in milvus.list_names() if name.endswith(SUFFIX))


def open_snapshot(milvus: Milvus, name: str, options: OpenOptions, *, must_exist: bool) -> MilvusSnapshot:
    """Open a collection, or create it if it does not exist and need not."""
    build_index_snapshot(options.hasher, options.index_options)
    stored = SettingsTable(milvus, name)
    has_table = stored.exists()
    settings = stored.read() if has_table else None
    if settings is None and must_exist:
        raise FileNotFoundError(
            errno.ENOENT,
            f"expected the collection {name!r}, found {', '.join(list_collections(milvus)) or 'none'}: "
            "posh.engines.milvus.MilvusCollection creates a new one",
            milvus.uri,
        )
    if settings is None:
        return _create(milvus, name, options, stored, has_table=has_table)
    if options.is_new:
        raise FileExistsError(
            errno.EEXIST,
            f"expected a new name, found the collection {name!r}: posh.open opens it",
            milvus.uri,
        )
    _require_same_options(f"{milvus.uri}: {name}", settings, options)
    table = _build_table(milvus, name, settings)
    if table is not None:
        table.open()
    return MilvusSnapshot(settings, build_index_snapshot(settings.hasher, settings.options), table)


def _create(
    milvus: Milvus, name: str, options: OpenOptions, stored: SettingsTable, *, has_table: bool
) -> MilvusSnapshot:
    hasher = None if options.hasher is None else indexing.copy_hasher(options.hasher)
    settings = Settings(options.index_options, options.metadata or {}, hasher=hasher)
    if not has_table:
        stored.create()
    if hasher is not None:
        settings = Settings(settings.options, settings.metadata, hasher.n_features_in_, 1, hasher)
        create_table(milvus, name, settings)
    stored.write(settings)
    return MilvusSnapshot(
        settings, build_index_snapshot(hasher, settings.options), _build_table(milvus, name, settings)
    )


def create_table(milvus: Milvus, name: str, settings: Settings) -> ItemTable:
    """Create the empty table of items of a generation."""
    table = _build_table(milvus, name, settings)
    assert table is not None
    table.create()
    return table


def _build_table(milvus: Milvus, name: str, settings: Settings) -> ItemTable | None:
    if not settings.generation or settings.n_features is None:
        return None
    metric = settings.options.get("metric")
    return ItemTable(milvus, format_table_name(name, settings.generation), settings.n_features, metric)


def build_index_snapshot(hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> IndexSnapshot | None:
    """Return an empty index that completes the options, or None without a hasher and a metric.

    Raises ValueError for options that collections on Milvus cannot have.
    """
    if hasher is None and options.get("metric") is None:
        return None
    refine = options.get("refine")
    if refine not in _REFINERS:
        raise ValueError(
            f"expected refine to be one of {', '.join(map(repr, _REFINERS))} on Milvus, got {refine!r}: "
            "the others learn from items, and Milvus does not store that"
        )
    return indexing.make_index(hasher, options)


def drop_collection(milvus: Milvus, name: str) -> None:
    """Delete a collection permanently; raise FileNotFoundError if it does not exist."""
    stored = SettingsTable(milvus, name)
    if not stored.exists():
        raise FileNotFoundError(errno.ENOENT, f"expected the collection {name!r}, found none", milvus.uri)
    settings = stored.read()
    stored.drop()  # first: a table without settings is not a collection
    table = None if settings is None else _build_table(milvus, name, settings)
    if table is not None:
        table.drop()


def _require_same_options(where: str, settings: Settings, options: OpenOptions) -> None:
    """Raise ValueError unless an existing collection has these options: opening changes nothing."""
    if options.metadata is not None and options.metadata != settings.metadata:
        raise ValueError(
            f"{where}: expected the metadata that this collection has, got {options.metadata!r:.80}: omit "
            "it, and call set_metadata to change it"
        )
    if options.hasher is not None:
        base.validate_fitted_hasher(options.hasher, settings.n_features)
        if settings.hasher is None or not are_equal(options.hasher, settings.hasher):
            raise ValueError(
                f"{where}: expected the hasher that this collection has, got another: omit it, and call "
                "reindex to change it"
            )
    if {**settings.options, **options.index_options} != settings.options:
        raise ValueError(
            f"{where}: expected the options that this collection has, {settings.options}, got "
            f"{options.index_options}: omit them, and pass them to fit or reindex to change them"
        )
