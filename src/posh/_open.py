"""``posh.open`` and ``posh.create``: what exists, and what does not exist yet."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posh._folder import MANIFEST
from posh.collection.embedded import Collection
from posh.collection.opening import DATABASE
from posh.errors import FormatError
from posh.hashers.base import Hasher
from posh.index.index import Index
from posh.milvus.address import is_address, parse_address

__all__ = ["create", "open"]

_WHAT = f"a collection (a folder with {DATABASE}), a saved index (a folder with {MANIFEST}) or a hasher file"


def open(path: str | os.PathLike[str], *, read_only: bool = False) -> Any:  # noqa: A001  # the word of other libraries
    """Open what exists: the folder of a collection, the folder of a saved index, or the file of a hasher.

    Returns a :class:`posh.Collection`, a :class:`posh.Index` or a :class:`posh.Hasher`. A path without any of
    these is a ``FileNotFoundError``, and nothing is made. ``read_only`` is for collections, which one process
    at a time may open for writing: see :class:`posh.Collection`. An index and a hasher are read into memory.
    ``"milvus:ADDRESS#NAME"`` is a :class:`posh.milvus.MilvusCollection`.

    >>> import posh, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     posh.create(f"{folder}/shop", metric="cosine").upsert(["a"], [[1.0, 2.0]]).close()
    ...     with posh.open(f"{folder}/shop") as shop:
    ...         print(len(shop))
    1
    """
    if isinstance(path, str) and is_address(path):
        return _on_milvus(path, read_only=read_only)
    where = Path(path)
    if (where / DATABASE).exists():
        return Collection(where, read_only=read_only)
    if (where / MANIFEST).exists():
        return Index.load(where)
    if where.is_file():
        return Hasher.load(where)
    if where.is_dir():
        raise FormatError(f"{where}: expected {_WHAT}, found a folder with none of these")
    raise FileNotFoundError(
        errno.ENOENT, f"expected {_WHAT}, found nothing: posh.create makes a new collection", str(where)
    )


def create(
    path: str | os.PathLike[str],
    hasher: Hasher[Any] | None = None,
    *,
    metadata: Mapping[str, Any] | None = None,
    **index_options: Any,
) -> Collection:
    """Make a new collection in a folder that does not exist or is empty; see :class:`posh.Collection`.

    What exists already is a ``FileExistsError``, and stays as it is: :func:`posh.open` opens it.

    >>> import posh, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with posh.create(f"{folder}/shop", metric="cosine", metadata={"title": "Shop"}) as shop:
    ...         print(shop.metadata)
    {'title': 'Shop'}
    """
    if is_address(path):
        raise ValueError(
            f"expected a folder, got {path!r:.80}: use posh.milvus.MilvusCollection.create for Milvus"
        )
    return Collection.create(path, hasher, metadata=metadata, **index_options)


def _on_milvus(address: str, *, read_only: bool) -> Any:
    from posh.milvus import MilvusCollection

    if read_only:
        raise ValueError(f"read_only=True is for folders, got {address!r:.80}: leave it out")
    return MilvusCollection.existing(*parse_address(address))
