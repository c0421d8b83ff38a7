"""Overviews of a collection, computed from samples: the fields of payloads, and a map."""

from __future__ import annotations

import asyncio
import base64
import itertools
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posh._runtime import iterate_cancellable, one_blas_thread
from posh._wire import pack_vectors
from posh.collection.base import BaseCollection, Id
from posh.preprocess import Float32
from posh.serve.capacity import CallQueue
from posh.serve.layout import arrange, find_neighbours
from posh.serve.responses import dump_json

__all__ = [
    "CachedOverview",
    "OverviewCache",
    "Plane",
    "Summary",
    "choose_examples",
    "compute_plane",
    "shorten_payload",
    "summarise",
    "write_fields",
    "write_map",
]

MOST_FIELDS = 60
MOST_VALUES = 20
LONGEST = 100  # characters of a listed value
_EXAMPLES = 12
_KEPT = 300  # characters of a string that are kept for the summary
_GROUPS = range(2, 13)  # numbers of values that colours can distinguish
_TITLES = ("title", "name", "headline", "caption", "word", "label", "question", "subject")
_LONG = 60  # average length from which on a string is a text to read
_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".avif", ".svg")
_TYPES = {str: "string", bool: "boolean", int: "number", float: "number", list: "list", dict: "object"}

Summary = dict[str, Any]


class _Field:
    """Statistics of one field."""

    def __init__(self) -> None:
        self.types: Counter[str] = Counter()
        self.values: Counter[Any] = Counter()
        self.numbers: list[float] = []
        self.characters = 0
        self.pictures = 0

    def add(self, value: Any) -> None:
        kind = _TYPES.get(type(value), "null")
        self.types[kind] += 1
        if kind == "number":
            self.numbers.append(value)
        if kind == "string":
            self.characters += len(value)
            self.pictures += _is_picture(value)
        for one in value if kind == "list" else [value]:
            if isinstance(one, str | int | float) and len(str(one)) <= LONGEST:
                self.values[type(one) is bool, one] += 1  # True equals 1, but is a different value

    @property
    def main_type(self) -> str:
        """The type of most values."""
        return self.types.most_common(1)[0][0]

    @property
    def count(self) -> int:
        return self.types.total()

    @property
    def mean_length(self) -> float:
        return self.characters / max(1, self.types["string"])

    def summarise(self, name: str) -> Summary:
        values = [{"value": one, "count": n} for (_, one), n in self.values.most_common(MOST_VALUES)]
        return {
            "name": name,
            "type": self.main_type,
            "count": self.count,
            "distinct": len(self.values),
            "values": values,
            "low": min(self.numbers, default=None),
            "high": max(self.numbers, default=None),
        }


def summarise(payloads: Iterable[Mapping[str, Any]], metadata: Mapping[str, Any]) -> Summary:
    """Summarise the fields of a sample of payloads, and choose a title, a text, a picture and a group.

    >>> summary = summarise([{"title": "Ant", "legs": 6}, {"title": "Spider", "legs": 8}], {})
    >>> summary["title"], [field["type"] for field in summary["fields"]]
    ('title', ['string', 'number'])
    """
    fields: dict[str, _Field] = {}
    sampled = 0
    for payload in payloads:
        sampled += 1
        for name, value in payload.items():
            if name in fields or len(fields) < MOST_FIELDS:
                fields.setdefault(name, _Field()).add(value)
    strings = {name: field for name, field in fields.items() if field.main_type == "string"}
    image = next((name for name, field in strings.items() if 2 * field.pictures > field.count), None)
    strings.pop(image or "", None)
    title = _choose_title(strings, metadata, sampled)
    long = {name: field.mean_length for name, field in strings.items() if name != title}
    text = max(long, key=long.__getitem__, default=None)
    return {
        "sampled": sampled,
        "title": title,
        "text": text if text is not None and long[text] >= _LONG else None,
        "image": image,
        "group": _choose_group(fields, metadata, sampled),
        "fields": [field.summarise(name) for name, field in fields.items()],
    }


def _choose_title(strings: Mapping[str, _Field], metadata: Mapping[str, Any], sampled: int) -> str | None:
    """Return the field of the metadata, else one with a usual name, else a short one that rarely repeats."""
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


def _choose_group(fields: Mapping[str, _Field], metadata: Mapping[str, Any], sampled: int) -> str | None:
    """Return the field of the labels in the metadata, else the first with few values on nearly all items."""
    label = metadata.get("label")
    if isinstance(label, dict) and label.get("field") in fields:
        return str(label["field"])
    for name, field in fields.items():
        has_few = len(field.values) in _GROUPS and 3 * len(field.values) <= sampled
        if has_few and field.main_type != "list" and field.values.total() >= 0.9 * sampled:
            return name
    return None


def shorten_payload(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a payload that overviews need: thousands of large payloads would fill the memory.

    >>> shorten_payload({"text": "x" * 1000, "tags": ["a"], "author": {"name": "b"}})["tags"]
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


def choose_examples(ids: Sequence[Id], payloads: Sequence[Mapping[str, Any]], group: str | None) -> list[Id]:
    """Return the ids of a few items to start from, of all groups in turn.

    >>> choose_examples([1, 2, 3, 4], [{"a": "x"}, {"a": "x"}, {"a": "y"}, {"a": "y"}], "a")
    [1, 3, 2, 4]
    """
    seen: Counter[str] = Counter()
    turns = []
    for i, payload in enumerate(payloads):
        key = repr(payload.get(group or ""))
        turns.append((seen[key], i))
        seen[key] += 1
    return [ids[i] for _, i in sorted(turns)[:_EXAMPLES]]


def _get_title(payload: Mapping[str, Any], summary: Summary) -> str | None:
    """Return the title of an item, at most one line."""
    value = payload.get(summary["title"] or "")
    return None if value is None else str(value)[:LONGEST]


def _is_picture(value: str) -> bool:
    """Return whether a string is the address of a picture."""
    if value.startswith("data:image/"):
        return True
    path = value.partition("?")[0].lower()
    return path.endswith(_PICTURES) and path.startswith(("/", "http://", "https://"))


_VECTOR_BYTES = 32 << 20  # of all vectors of a sample
_NEIGHBOURS = 10  # of an item that attract it on the map
_AXES = 24  # directions in which the page compares vectors that are not in the sample with those that are
_COLOURS = 11  # values that have a colour of their own
_COLOURED = 0.4  # of the items must have one of them
_MOST_COLOURED = 20  # fields


class Plane(NamedTuple):
    """Coordinates are ``(vectors - mean) @ axes.T``: ``mean`` (d,), ``axes`` (m, d), float32."""

    mean: Float32
    axes: Float32

    def project(self, vectors: Float32) -> Float32:
        """Return the coordinates (n, m) of vectors (n, d)."""
        centred = vectors - self.mean.astype(np.float64)
        return np.asarray(centred @ self.axes.T.astype(np.float64), np.float32)


def compute_plane(vectors: Float32, n_axes: int = 2) -> Plane:
    """Return the first principal components of vectors (n, d).

    With fewer directions in which the vectors differ, an axis is zero. The largest number of an axis is
    positive, so that recomputed maps do not flip.

    >>> import numpy as np
    >>> plane = compute_plane(np.array([[0, 0, 5], [2, 0, 5], [0, 1, 5], [2, 1, 5]], np.float32))
    >>> plane.axes.round(3) + 0.0
    array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    from sklearn.decomposition import PCA  # a service without a map need not import it

    n, n_features = vectors.shape
    axes = np.zeros((n_axes, n_features), np.float32)
    if not n:
        return Plane(np.zeros(n_features, np.float32), axes)
    scale = np.abs(vectors).max() or 1.0  # squares of any numbers fit into float64
    pca = PCA(min(n_axes, n, n_features), svd_solver="randomized", iterated_power=15, random_state=0)
    with np.errstate(invalid="ignore"):  # shares of the variance: 0 / 0 if all vectors are equal
        pca.fit(vectors.astype(np.float64) / scale)
    for i, (axis, length) in enumerate(zip(pca.components_, pca.singular_values_, strict=True)):
        if length > 1e-6 * max(1e-6, pca.singular_values_[0]):
            axes[i] = axis * np.sign(axis[np.abs(axis).argmax()])
    return Plane((pca.mean_ * scale).astype(np.float32), axes)


def write_fields(collection: BaseCollection, n: int, n_examples: int) -> bytes:
    """Summarise the fields of a sample of n items as JSON."""
    ids, payloads = [], []
    for item in iterate_cancellable(collection.sample_items(n)):
        ids.append(item.id)
        payloads.append(shorten_payload(item.payload))
    summary = summarise(payloads, collection.metadata)
    return dump_json({**summary, "examples": choose_examples(ids, payloads, summary["group"])[:n_examples]})


def write_map(collection: BaseCollection, most: int) -> bytes:
    """Arrange a sample of at most ``most`` items in the plane by their nearest neighbours, as JSON.

    The page places other vectors among the items that are near in the principal components.
    """
    n_features = collection.n_features or 1
    n = max(1, min(most, _VECTOR_BYTES // (4 * n_features)))
    metric = collection.index_options.get("metric")
    ids, payloads, vectors = _sample(collection, n, n_features)
    compared = vectors
    if metric == "cosine":
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        compared = np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)
    with one_blas_thread:  # other threads would spin after each of many small products
        plane = compute_plane(compared, _AXES)
    coordinates = plane.project(compared)
    neighbours = find_neighbours(vectors, _NEIGHBOURS, metric, collection.hasher)
    points = arrange(neighbours, coordinates[:, :2])
    summary = summarise(payloads, collection.metadata)
    content: dict[str, Any] = {
        "count": collection.count(),
        "ids": ids,
        "points": points,
        "titles": [_get_title(payload, summary) for payload in payloads],
        "fields": _colour_fields(payloads, summary, neighbours, collection.metadata),
        "by_direction": metric == "cosine",
        "mean": plane.mean,
        "axes": pack_vectors(plane.axes),
        "coordinates": _pack_roughly(coordinates),
    }
    return dump_json(content)


def _sample(
    collection: BaseCollection, n: int, n_features: int
) -> tuple[list[Id], list[dict[str, Any]], Float32]:
    ids: list[Id] = []
    payloads: list[dict[str, Any]] = []
    vectors = np.empty((n, n_features), np.float32)
    for i, item in enumerate(iterate_cancellable(collection.sample_items(n))):
        ids.append(item.id)
        payloads.append(shorten_payload(item.payload))
        vectors[i] = item.vector
    return ids, payloads, vectors[: len(ids)]


def _pack_roughly(values: Float32) -> dict[str, Any]:
    """Pack an array (n, m) as base64 of 8-bit integers, to be multiplied by ``scale``."""
    scale = float(np.abs(values).max(initial=0)) / 127 or 1.0
    content = np.rint(values / scale).astype(np.int8).tobytes()
    return {"shape": list(values.shape), "scale": scale, "int8": base64.b64encode(content).decode()}


def _colour_fields(
    payloads: list[dict[str, Any]],
    summary: Summary,
    neighbours: NDArray[np.int64],
    metadata: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the fields that can colour the map: the labels first, then those that neighbours share most."""
    roles = {summary[role] for role in ("title", "text", "image")} - {summary["group"]}
    names = [field["name"] for field in summary["fields"] if field["name"] not in roles]
    columns = ((name, [payload.get(name) for payload in payloads]) for name in names)
    fields = [field for name, values in columns if (field := _colour_field(name, values)) is not None]
    label = metadata.get("label")
    first = label.get("field") if isinstance(label, dict) else None
    fields.sort(key=lambda field: (field["name"] != first, -_measure_agreement(field, neighbours)))
    return fields[:_MOST_COLOURED]


def _measure_agreement(field: dict[str, Any], neighbours: NDArray[np.int64]) -> float:
    """Return the information, in nats, that the value of an item has about the value of a neighbour."""
    if "values" not in field or not neighbours.size:
        return 0.0
    of, n = np.array(field["of"]) + 1, len(field["values"]) + 1
    pairs = (of[:, None] * n + of[neighbours]).ravel()
    joint = np.bincount(pairs, minlength=n * n).reshape(n, n) / len(pairs)
    chance = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    seen = joint > 0
    return float((joint[seen] * np.log(joint[seen] / chance[seen])).sum())


def _colour_field(name: str, values: list[Any]) -> dict[str, Any] | None:
    """Return a scale of numbers, or a few values and the index of each item's value, -1 for others."""
    keys = [
        (type(value) is bool, value) if isinstance(value, str | int | float) else None for value in values
    ]
    counts = Counter(key for key in keys if key is not None)
    is_number = [key is not None and not key[0] and not isinstance(key[1], str) for key in keys]
    if len(counts) > _COLOURS + 1 and 2 * sum(is_number) > len(values):
        numbers = [value if is_one else None for value, is_one in zip(values, is_number, strict=True)]
        known = np.array([value for value in numbers if value is not None], np.float64)
        low, high = np.quantile(known, [0.02, 0.98]).tolist()
        return {"name": name, "low": low, "high": high, "of": numbers} if high > low else None
    chosen = [key for key, _ in counts.most_common(_COLOURS if len(counts) > _COLOURS + 1 else None)]
    if len(counts) < 2 or sum(counts[key] for key in chosen) < _COLOURED * len(values):
        return None
    chosen.sort(key=lambda key: (str(type(key[1])), key[1]))
    places = {key: i for i, key in enumerate(chosen)}
    of = [-1 if key is None else places.get(key, -1) for key in keys]
    return {"name": name, "values": [value for _, value in chosen], "of": of}


_SHARE = 0.05  # of the time is spent on recomputing an overview while writes continue


class OverviewCache:
    """A cache of the ``most`` overviews that were requested last.

    >>> cache = OverviewCache(1)
    >>> cache.put("one", b"1")
    >>> cache.put("two", b"2")
    >>> cache.get("one"), cache.get("two")
    (None, b'2')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._contents: OrderedDict[object, bytes] = OrderedDict()

    def get(self, key: object) -> bytes | None:
        """Return an overview, or None if it is not in the cache."""
        if key not in self._contents:
            return None
        self._contents.move_to_end(key)
        return self._contents[key]

    def put(self, key: object, content: bytes) -> None:
        """Add an overview; evict the least recently requested one if there are too many."""
        self._contents[key] = content
        self._contents.move_to_end(key)
        if len(self._contents) > self._most:
            self._contents.popitem(last=False)

    def evict(self, key: object) -> None:
        """Remove an overview, if it is in the cache."""
        self._contents.pop(key, None)


class CachedOverview:
    """One overview of a collection, cached until ``get_version`` returns another number.

    The computation continues if the client that requested it disconnects. While writes keep changing the
    collection, an older overview is returned until twenty times the duration of its computation has passed.

    Call the methods on the event loop's thread.
    """

    def __init__(self, cache: OverviewCache, queue: CallQueue, get_version: Callable[[], int]) -> None:
        self._cache, self._queue, self._get_version = cache, queue, get_version
        self._version, self._valid_until = -1, 0.0
        self._task: asyncio.Task[bytes] | None = None

    async def get(self, compute: Callable[[], bytes]) -> bytes:
        """Return the overview; unless it is cached, ``compute`` runs in a thread."""
        content = self._cache.get(self)
        is_fresh = self._version == self._get_version() or time.monotonic() < self._valid_until
        if content is not None and is_fresh:
            return content
        if self._task is None:
            self._task = asyncio.create_task(self._compute(compute))
            self._task.add_done_callback(self._finish)
        return await asyncio.shield(self._task)

    def evict(self) -> None:
        """Remove the overview from the cache."""
        self._cache.evict(self)

    async def _compute(self, compute: Callable[[], bytes]) -> bytes:
        version, start = self._get_version(), time.monotonic()
        content = await self._queue.run(compute)
        now = time.monotonic()
        self._version, self._valid_until = version, now + (now - start) / _SHARE
        self._cache.put(self, content)
        return content

    def _finish(self, task: asyncio.Task[bytes]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # retrieve it: asyncio logs errors that no caller waits for
