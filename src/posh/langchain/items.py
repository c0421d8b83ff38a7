"""Documents of LangChain as items of a collection, and items as documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from langchain_core.documents import Document

from posh import _validate
from posh.collection.base import BaseCollection, Id, Item, Payload

__all__ = ["Batch", "batches", "document", "item_ids"]


class Batch(NamedTuple):
    """Documents that are written at once."""

    ids: list[str]
    texts: list[str]
    payloads: list[Payload]


def batches(
    texts: Iterable[str],
    metadatas: Sequence[Mapping[str, Any]] | None,
    ids: Sequence[str | None] | None,
    text_field: str,
    batch_size: int | None,
) -> list[Batch]:
    """Return documents in batches, with new ids where there are none."""
    texts = list(texts)
    size = max(1, len(texts)) if batch_size is None else _validate.integer("batch_size", batch_size, 1)
    metadatas = [{}] * len(texts) if metadatas is None else metadatas
    known = [None] * len(texts) if ids is None else ids
    for values, name in ((metadatas, "metadatas"), (known, "ids")):
        if len(values) != len(texts):
            raise ValueError(f"expected as many {name} as texts ({len(texts)}), got {len(values)}")
    complete = [str(uuid4()) if item_id is None else item_id for item_id in known]
    payloads = [_payload(text, metadata, text_field) for text, metadata in zip(texts, metadatas, strict=True)]
    return [
        Batch(*(values[start : start + size] for values in (complete, texts, payloads)))  # type: ignore[arg-type]
        for start in range(0, len(texts), size)
    ]


def _payload(text: str, metadata: Mapping[str, Any], text_field: str) -> Payload:
    if text_field in metadata:
        raise ValueError(
            f"expected metadata without the field {text_field!r}, which has the text, got "
            f"{metadata[text_field]!r:.80}: rename it, or give the store another text_field"
        )
    return {text_field: text, **metadata}


def document(item: Item, text_field: str) -> Document:
    """Return an item as a document: its text, and the rest of its payload as metadata."""
    metadata = dict(item.payload)
    text = metadata.pop(text_field, None)
    if not isinstance(text, str):
        raise ValueError(
            f"expected the text of item {item.id!r} in the field {text_field!r}, got {text!r:.80}: "
            f"give the store the text_field of this collection, one of {', '.join(map(repr, metadata))}"
        )
    return Document(id=str(item.id), page_content=text, metadata=metadata)


def item_ids(collection: BaseCollection, ids: Sequence[str]) -> list[Id]:
    """Return the ids of items for those of documents.

    ``"7"`` is the item ``"7"``. It is the item ``7`` if that is there and ``"7"`` is not.
    """
    numbers = {text: number for text in ids if (number := _number(text)) is not None}
    if not numbers:
        return list(ids)
    texts = list(numbers)
    as_texts, as_numbers = collection.get(texts), collection.get([numbers[text] for text in texts])
    only_numbers = {
        text
        for text, one, other in zip(texts, as_texts, as_numbers, strict=True)
        if one is None and other is not None
    }
    return [numbers[text] if text in only_numbers else text for text in ids]


def _number(text: str) -> int | None:
    """Return the id of which this is the text, if it is a number of 64 bits."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text and -(2**63) <= number < 2**63 else None
