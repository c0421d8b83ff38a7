"""What the payloads of a collection are made of: fields, their types, frequent values, what to show first."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from posh.collection.base import Id

__all__ = ["Summary", "examples", "shortened", "summarise", "title_of"]

MOST_FIELDS = 60
MOST_VALUES = 20
LONGEST = 100  # characters of a value that is listed
_EXAMPLES = 12
_KEPT = 300  # characters of a value that are kept while payloads are looked at
_GROUPS = range(2, 13)  # values of a field that colours can tell apart
_TITLES = ("title", "name", "headline", "caption", "word", "label", "question", "subject")
_LONG = 60  # characters on average from which on a string is a text to read
_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".avif", ".svg")
_TYPES = {str: "string", bool: "boolean", int: "number", float: "number", list: "list", dict: "object"}

Summary = dict[str, Any]


class _Field:
    """What was seen of one field."""

    def __init__(self) -> None:
        self.types: Counter[str] = Counter()
        self.values: Counter[Any] = Counter()
        self.numbers: list[float] = []
        self.characters = 0
        self.pictures = 0

    def see(self, value: Any) -> None:
        kind = _TYPES.get(type(value), "null")
        self.types[kind] += 1
        if kind == "number":
            self.numbers.append(value)
        if kind == "string":
            self.characters += len(value)
            self.pictures += is_picture(value)
        for one in value if kind == "list" else [value]:
            if isinstance(one, str | int | float) and len(str(one)) <= LONGEST:
                self.values[type(one) is bool, one] += 1  # True equals 1, but is another value

    @property
    def main(self) -> str:
        """The type that most values have."""
        return self.types.most_common(1)[0][0]

    @property
    def count(self) -> int:
        return self.types.total()

    @property
    def mean_length(self) -> float:
        return self.characters / max(1, self.types["string"])

    def summary(self, name: str) -> Summary:
        values = [{"value": one, "count": n} for (_, one), n in self.values.most_common(MOST_VALUES)]
        return {
            "name": name,
            "type": self.main,
            "count": self.count,
            "distinct": len(self.values),
            "values": values,
            "low": min(self.numbers, default=None),
            "high": max(self.numbers, default=None),
        }


def summarise(payloads: Iterable[Mapping[str, Any]], metadata: Mapping[str, Any]) -> Summary:
    """What a sample of payloads is made of, and which of the fields is a title, a text, a picture, a group.

    >>> found = summarise([{"title": "Ant", "legs": 6}, {"title": "Spider", "legs": 8}], {})
    >>> found["title"], [field["type"] for field in found["fields"]]
    ('title', ['string', 'number'])
    """
    fields: dict[str, _Field] = {}
    sampled = 0
    for payload in payloads:
        sampled += 1
        for name, value in payload.items():
            if name in fields or len(fields) < MOST_FIELDS:
                fields.setdefault(name, _Field()).see(value)
    strings = {name: field for name, field in fields.items() if field.main == "string"}
    image = next((name for name, field in strings.items() if 2 * field.pictures > field.count), None)
    strings.pop(image or "", None)
    title = _title(strings, metadata, sampled)
    long = {name: field.mean_length for name, field in strings.items() if name != title}
    text = max(long, key=long.__getitem__, default=None)
    return {
        "sampled": sampled,
        "title": title,
        "text": text if text is not None and long[text] >= _LONG else None,
        "image": image,
        "group": _group(fields, metadata, sampled),
        "fields": [field.summary(name) for name, field in fields.items()],
    }


def _title(strings: Mapping[str, _Field], metadata: Mapping[str, Any], sampled: int) -> str | None:
    """The field of the metadata, else one with the name of a title, else a short one that hardly repeats."""
    named = metadata.get("name")
    if isinstance(named, str) and named in strings:
        return named
    common = {name: field for name, field in strings.items() if 2 * field.count >= sampled}
    for wanted in _TITLES:
        for name in common:
            if name.lower() == wanted:
                return name
    for name, field in common.items():
        if field.mean_length < _LONG and 2 * len(field.values) > field.count:
            return name
    return None


def _group(fields: Mapping[str, _Field], metadata: Mapping[str, Any], sampled: int) -> str | None:
    """The field of the labels in the metadata, else the first with few values that nearly all items have."""
    label = metadata.get("label")
    if isinstance(label, dict) and label.get("field") in fields:
        return str(label["field"])
    for name, field in fields.items():
        few = len(field.values) in _GROUPS and 3 * len(field.values) <= sampled
        if few and field.main != "list" and field.values.total() >= 0.9 * sampled:
            return name
    return None


def shortened(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A payload as far as an overview needs it: payloads may be large, and there are thousands of them.

    >>> shortened({"text": "x" * 1000, "tags": ["a"], "author": {"name": "b"}})["tags"]
    ['a']
    """
    kept: dict[str, Any] = {}
    for name, value in itertools.islice(payload.items(), MOST_FIELDS):
        if isinstance(value, str):
            kept[name] = value[:_KEPT]
        elif isinstance(value, list):
            kept[name] = [one for one in value[:MOST_VALUES] if len(str(one)) <= LONGEST]
        else:
            kept[name] = {} if isinstance(value, dict) else value
    return kept


def examples(ids: Sequence[Id], payloads: Sequence[Mapping[str, Any]], group: str | None) -> list[Id]:
    """A few items to begin with, from all groups in turn.

    >>> examples([1, 2, 3, 4], [{"a": "x"}, {"a": "x"}, {"a": "y"}, {"a": "y"}], "a")
    [1, 3, 2, 4]
    """
    seen: Counter[str] = Counter()
    turns = []
    for i, payload in enumerate(payloads):
        key = repr(payload.get(group or ""))
        turns.append((seen[key], i))
        seen[key] += 1
    return [ids[i] for _, i in sorted(turns)[:_EXAMPLES]]


def title_of(payload: Mapping[str, Any], summary: Summary) -> str | None:
    """The title of an item, not longer than a line."""
    value = payload.get(summary["title"] or "")
    return None if value is None else str(value)[:LONGEST]


def is_picture(value: str) -> bool:
    """Whether the string is the address of a picture."""
    if value.startswith("data:image/"):
        return True
    path = value.partition("?")[0].lower()
    return path.endswith(_PICTURES) and path.startswith(("/", "http://", "https://"))
