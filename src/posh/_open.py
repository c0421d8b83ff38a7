"""``posh.open`` and ``posh.create``."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posh._durable import MANIFEST
from posh.collection.embedded import Collection
from posh.collection.opening import DATABASE
from posh.engines.milvus.connection import is_address, parse_address
from posh.errors import FormatError
from posh.hashers.base import Hasher
from posh.index.open import load_index

__all__ = ["create", "open"]

_WHAT = f"a collection (a folder with {DATABASE}), a saved index (a folder with {MANIFEST}) or a hasher file"


def open(path: str | os.PathLike[str], *, read_only: bool = False) -> Any:  # noqa: A001  # as gzip.open
    """Open a collection, a saved index or a hasher file.

    Returns a :class:`posh.Collection`, a :class:`posh.Index` or a :class:`posh.Hasher`. A path that does not
    exist raises ``FileNotFoundError``; nothing is created. ``read_only`` is for collections, which only one
    process at a time may open for writing: see :class:`posh.Collection`. An index and a hasher are loaded
    into memory. ``"milvus:ADDRESS#NAME"`` is a :class:`posh.engines.milvus.MilvusCollection`.

    >>> import posh, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     posh.create(f"{folder}/shop", metric="cosine").upsert(["a"], [[1.0, 2.0]]).close()
    ...     with posh.open(f"{folder}/shop") as shop:
    ...         print(len(shop))
    1
    """
    if isinstance(path, str) and is_address(path):
        return _open_milvus(path, read_only=read_only)
    where = Path(path)
    if (where / DATABASE).exists():
        return Collection(where, read_only=read_only)
    if (where / MANIFEST).exists():
        return load_index(where)
    if where.is_file():
        return Hasher.load(where)
    if where.is_dir():
        raise FormatError(f"{where}: expected {_WHAT}, found a folder with none of these")
    raise FileNotFoundError(
        errno.ENOENT, f"expected {_WHAT}, found nothing: create a collection with posh.create", str(where)
    )


def create(
    path: str | os.PathLike[str],
    hasher: Hasher[Any] | None = None,
    *,
    metadata: Mapping[str, Any] | None = None,
    text: str | Sequence[str] | None = None,
    tokenizer: str | None = None,
    **index_options: Any,
) -> Collection:
    """Create a collection in a folder that does not exist or is empty; see :class:`posh.Collection`.

    An existing collection raises ``FileExistsError`` and is not changed; open it with :func:`posh.open`.

    >>> import posh, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with posh.create(f"{folder}/shop", metric="cosine", metadata={"title": "Shop"}) as shop:
    ...         print(shop.metadata)
    {'title': 'Shop'}

    ``text`` names fields of payloads for ``search(text=…)``:

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with posh.create(f"{folder}/shop", metric="cosine", text=["title"]) as shop:
    ...         _ = shop.upsert(["a", "b"], [[1.0, 0.0], [0.0, 1.0]], [{"title": "Scarf"}, {"title": "Hat"}])
    ...         print(shop.search(text="hat").ids[0, 0], shop.search([1.0, 0.0], text="hat", k=1).ids[0, 0])
    b b
    """
    if is_address(path):
        raise ValueError(
            f"expected a folder, got {path!r:.80}: use posh.engines.milvus.MilvusCollection.create for Milvus"
        )
    return Collection.create(path, hasher, metadata=metadata, text=text, tokenizer=tokenizer, **index_options)


def _open_milvus(address: str, *, read_only: bool) -> Any:
    from posh.engines.milvus import MilvusCollection

    if read_only:
        raise ValueError(f"read_only=True is for folders, got {address!r:.80}: leave it out")
    return MilvusCollection.open(*parse_address(address))
