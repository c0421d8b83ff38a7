"""Parts that several stores of documents share: the collection they hold, and ids that are strings."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from posh.collection.base import BaseCollection, Id
from posh.collection.embedded import Collection
from posh.collection.opening import DATABASE

__all__ = ["CollectionHolder", "resolve_ids"]


class CollectionHolder:
    """Base class of stores: they hold an open collection, or open that of a folder and close it again."""

    collection: BaseCollection

    def _hold(
        self, collection: BaseCollection | str | os.PathLike[str] | None, index_options: Mapping[str, Any]
    ) -> None:
        """Set the collection; None stands for a temporary folder."""
        self._close: Callable[[], object] | None = None
        if not isinstance(collection, BaseCollection):
            self.collection, close = _open_collection(collection, index_options)
            self._close = weakref.finalize(self, close)
        elif index_options:
            raise TypeError(
                f"expected index options with a folder only, got {', '.join(index_options)} "
                "with an open collection: call its reindex"
            )
        else:
            self.collection = collection

    def close(self) -> None:
        """Close the collection if the store opened it, and remove a temporary folder."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _open_collection(
    path: str | os.PathLike[str] | None, index_options: Mapping[str, Any]
) -> tuple[Collection, Callable[[], None]]:
    """Open or create the collection in a folder, or in a temporary one if ``path`` is None.

    Returns the collection and a function that closes it and removes a temporary folder.
    """
    if path is not None:
        collection = _open_folder(Path(path), index_options)
        return collection, collection.close
    folder = Path(tempfile.mkdtemp(prefix="posh-"))
    try:
        collection = _open_folder(folder, index_options)
    except BaseException:
        shutil.rmtree(folder)
        raise

    def close() -> None:
        collection.close()
        shutil.rmtree(folder)

    return collection, close


def _open_folder(folder: Path, index_options: Mapping[str, Any]) -> Collection:
    if (folder / DATABASE).exists():
        return Collection(folder, **index_options)
    return Collection(folder, **{"metric": "cosine", "recall": 0.95, **index_options})


def resolve_ids(collection: BaseCollection, ids: Sequence[str]) -> list[Id]:
    """Return the item ids of document ids.

    ``"7"`` means the item ``"7"``, or the item ``7`` if that exists and ``"7"`` does not.
    """
    numbers = {text: number for text in ids if (number := _parse_number(text)) is not None}
    if not numbers:
        return list(ids)
    texts = list(numbers)
    by_text, by_number = collection.get(texts), collection.get([numbers[text] for text in texts])
    numeric = {
        text
        for text, text_item, number_item in zip(texts, by_text, by_number, strict=True)
        if text_item is None and number_item is not None
    }
    return [numbers[text] if text in numeric else text for text in ids]


def _parse_number(text: str) -> int | None:
    """Return the 64-bit integer that is written as this text, or None."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text and -(2**63) <= number < 2**63 else None
