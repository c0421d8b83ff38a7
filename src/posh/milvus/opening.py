"""Opening a collection on Milvus: its settings, its table, and the options of the caller."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posh.collection import arguments, build_index
from posh.collection.opening import OpenOptions, are_equal
from posh.hashers.base import Hasher
from posh.index.snapshot import IndexSnapshot
from posh.milvus.connection import Milvus
from posh.milvus.settings import SUFFIX, Settings, SettingsTable, items_name
from posh.milvus.table import ItemTable

__all__ = ["MilvusSnapshot", "collection_names", "drop", "first_snapshot", "index_of", "new_table"]
__all__ += ["require_name"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_REFINERS = (None, "vectors", "cosine")


@dataclass(frozen=True)
class MilvusSnapshot:
    """What a search needs. ``index`` has no documents: it completes options, and has the hasher.

    ``index`` is None without a hasher and a metric, ``table`` until the number of columns is known.
    """

    settings: Settings
    index: IndexSnapshot | None
    table: ItemTable | None


def require_name(name: str) -> str:
    """Return a name for a collection that Milvus accepts."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(
            "expected a name of up to 200 letters, digits and '_' that does not begin with a digit, "
            f"got {name!r:.80}"
        )
    return name


def collection_names(milvus: Milvus) -> list[str]:
    """The names of the collections in a Milvus that this package has made."""
    return sorted(name.removesuffix(SUFFIX) for name in milvus.names() if name.endswith(SUFFIX))


def first_snapshot(milvus: Milvus, name: str, options: OpenOptions, *, must_exist: bool) -> MilvusSnapshot:
    """Open a collection; make it if it is not there, unless it must exist."""
    index_of(options.hasher, options.index_options)
    stored = SettingsTable(milvus, name)
    is_there = stored.exists()
    settings = stored.read() if is_there else None
    if settings is None and must_exist:
        raise FileNotFoundError(
            errno.ENOENT,
            f"expected the collection {name!r}, found {', '.join(collection_names(milvus)) or 'none'}: "
            "posh.milvus.MilvusCollection makes a new one",
            milvus.uri,
        )
    if settings is None:
        return _created(milvus, name, options, stored, is_there=is_there)
    if options.is_new:
        raise FileExistsError(
            errno.EEXIST,
            f"expected a new name, found the collection {name!r}: posh.open opens it",
            milvus.uri,
        )
    _require_agreement(f"{milvus.uri}: {name}", settings, options)
    table = _table(milvus, name, settings)
    if table is not None:
        table.open()
    return MilvusSnapshot(settings, index_of(settings.hasher, settings.options), table)


def _created(
    milvus: Milvus, name: str, options: OpenOptions, stored: SettingsTable, *, is_there: bool
) -> MilvusSnapshot:
    hasher = None if options.hasher is None else build_index.own_copy(options.hasher)
    settings = Settings(options.index_options, options.metadata or {}, hasher=hasher)
    if not is_there:
        stored.create()
    if hasher is not None:
        settings = Settings(settings.options, settings.metadata, hasher.n_features_in_, 1, hasher)
        new_table(milvus, name, settings)
    stored.write(settings)
    return MilvusSnapshot(settings, index_of(hasher, settings.options), _table(milvus, name, settings))


def new_table(milvus: Milvus, name: str, settings: Settings) -> ItemTable:
    """Make the table of a generation, without items."""
    table = _table(milvus, name, settings)
    assert table is not None
    table.create()
    return table


def _table(milvus: Milvus, name: str, settings: Settings) -> ItemTable | None:
    if not settings.generation or settings.n_features is None:
        return None
    metric = settings.options.get("metric")
    return ItemTable(milvus, items_name(name, settings.generation), settings.n_features, metric)


def index_of(hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> IndexSnapshot | None:
    """The index that completes options, or None if there is nothing to search by; wrong options raise."""
    if hasher is None and options.get("metric") is None:
        return None
    refine = options.get("refine")
    if refine not in _REFINERS:
        raise ValueError(
            f"expected refine to be one of {', '.join(map(repr, _REFINERS))} on Milvus, got {refine!r}: "
            "what others learn from items is not kept there"
        )
    return build_index.empty_index(hasher, options)


def drop(milvus: Milvus, name: str) -> None:
    """Delete a collection for ever; one that is not there is a ``FileNotFoundError``."""
    stored = SettingsTable(milvus, name)
    if not stored.exists():
        raise FileNotFoundError(errno.ENOENT, f"expected the collection {name!r}, found none", milvus.uri)
    settings = stored.read()
    stored.drop()  # first: without settings, what is left is not a collection
    table = None if settings is None else _table(milvus, name, settings)
    if table is not None:
        table.drop()


def _require_agreement(what: str, settings: Settings, options: OpenOptions) -> None:
    """Raise if an existing collection has something else: opening changes nothing."""
    if options.metadata is not None and options.metadata != settings.metadata:
        raise ValueError(
            f"{what}: expected the metadata that this collection has, got {options.metadata!r:.80}: leave it "
            "out, and call set_metadata to change it"
        )
    if options.hasher is not None:
        arguments.fitted_hasher(options.hasher, settings.n_features)
        if settings.hasher is None or not are_equal(options.hasher, settings.hasher):
            raise ValueError(
                f"{what}: expected the hasher that this collection has, got another: leave it out, and call "
                "reindex to change it"
            )
    if {**settings.options, **options.index_options} != settings.options:
        raise ValueError(
            f"{what}: expected the options that this collection has, {settings.options}, got "
            f"{options.index_options}: leave them out, and give them to fit or reindex to change them"
        )
