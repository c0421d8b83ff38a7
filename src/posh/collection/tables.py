"""Rows of a collection's tables: written and read in as few statements as their number allows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from posh.codes import Codes, PackedCodes
from posh.collection import sums
from posh.collection.base import Id, Item, Payload
from posh.collection.conditions import fields_of
from posh.collection.storage import Connection, DamageError
from posh.hashers.base import Hasher, SparseHasher
from posh.preprocess import Float32

__all__ = ["KEYS", "Block", "Row", "Stored", "blocks", "delete", "dumps", "find", "get", "get_meta", "insert"]
__all__ += ["insert_codes", "loads", "ordered", "payloads_after", "put_meta", "seq_of", "sound_item"]
__all__ += ["take_items", "take_vectors"]

Seqs = npt.NDArray[np.int64]
T = TypeVar("T")

_MANY = 500  # values in one statement
KEYS = ("version", "generation", "n_features", "options", "last_seq", "ids_sum", "snapshot", "metadata")


class Row(NamedTuple):
    """An item as it is stored."""

    seq: int
    id: Id
    payload: str
    vector: bytes


class Stored(NamedTuple):
    """What is to be known of an item to remove it."""

    seq: int
    id: Id
    payload: str


def get_meta(connection: Connection, key: str) -> Any:
    """A value by its key, which must be there."""
    row = connection.execute("SELECT value, sum FROM meta WHERE key = ?", (key,)).fetchone()
    if row is None:
        raise DamageError(f"{key} is missing")
    return _sound(row[0], row[1], f"the value of {key}", sums.of_meta, key, row[0])


def put_meta(connection: Connection, values: Mapping[str, Any]) -> None:
    """Set the values of keys."""
    connection.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?, ?)",
        [(key, value, sums.of_meta(key, value)) for key, value in values.items()],
    )


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def dumps(payload: Payload) -> str:
    """A payload as it is stored."""
    return _ENCODER.encode(payload)


def find(connection: Connection, ids: Sequence[Id]) -> list[Stored]:
    """The items with these ids that are there, by seq."""
    found: list[Stored] = []
    for some in _parts(ids, _MANY):
        rows = _rows(connection, f"WHERE id IN ({_places(some)})", some)
        found += (Stored(row.seq, row.id, row.payload) for row in rows)
    return sorted(found)


def insert(
    connection: Connection, seqs: Seqs, ids: Sequence[Id], payloads: Sequence[Payload], vectors: Float32
) -> int:
    """Write items with these seqs; gives the sum of the checksums of their ids."""
    numbers, little = seqs.tolist(), vectors.astype("<f4", copy=False)
    id_sums = list(map(sums.of_id, numbers, ids))
    connection.executemany(
        "INSERT INTO items (seq, id, payload, vector, sum) VALUES (?, ?, ?, ?, ?)",
        (
            (seq, number, text, vector, sums.continued(id_sum, text, vector))
            for seq, number, text, vector, id_sum in zip(
                numbers, ids, map(dumps, payloads), _row_bytes(little), id_sums, strict=True
            )
        ),
    )
    owned = zip(numbers, payloads, strict=True)
    rows = ((*field, seq) for seq, payload in owned for field in fields_of(payload))
    connection.executemany("INSERT INTO fields VALUES (?, ?, ?, ?)", rows)
    return sum(id_sums)


def _row_bytes(matrix: npt.NDArray[Any]) -> list[bytes]:
    """The bytes of each row; cut out of those of all rows, several times as fast as row by row."""
    everything, width = matrix.tobytes(), matrix.shape[1] * matrix.itemsize
    return [everything[start : start + width] for start in range(0, len(everything), width)]


def delete(connection: Connection, items: Sequence[Stored], generations: Iterable[int]) -> None:
    """Remove items, their fields, and their codes of these generations."""
    gone = [(item.seq,) for item in items]
    connection.executemany("DELETE FROM items WHERE seq = ?", gone)
    connection.executemany(
        "DELETE FROM fields WHERE name = ? AND type = ? AND value = ? AND seq = ?",
        ((*field, item.seq) for item in items for field in fields_of(loads(item.payload))),
    )
    for number in generations:
        connection.executemany(
            "DELETE FROM codes WHERE generation = ? AND seq = ?", ((number, seq) for (seq,) in gone)
        )


def insert_codes(connection: Connection, generation: int, seqs: Seqs, codes: Codes | PackedCodes) -> None:
    """Write the codes of items; those of items that are gone are left out."""
    rows = codes.active.astype("<u2", copy=False) if isinstance(codes, Codes) else codes.bits
    connection.executemany(
        "INSERT INTO codes SELECT ?, seq, ?, ? FROM items WHERE seq = ?",
        (
            (generation, code, sums.of_code(generation, seq, code), seq)
            for seq, code in zip(seqs.tolist(), _row_bytes(rows), strict=True)
        ),
    )


def ordered(connection: Connection) -> tuple[Seqs, npt.NDArray[Any]]:
    """The seqs of all items, ascending, and their ids: from the index of ids, without reading the items."""
    rows = connection.execute("SELECT seq, id FROM items INDEXED BY ids").fetchall()
    if sums.together(0, sum(sums.of_id(*row) for row in rows)) != get_meta(connection, "ids_sum"):
        raise DamageError("the index of ids: the checksum does not match")
    seqs = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    ids = np.empty(len(rows), object)
    ids[:] = [row[1] for row in rows]
    order = np.argsort(seqs)
    return seqs[order], ids[order]


def seq_of(connection: Connection, number: Id) -> int:
    """The seq of the item with an id."""
    row = connection.execute("SELECT seq FROM items WHERE id = ?", (number,)).fetchone()
    if row is None:
        raise KeyError(f"expected after to be the id of an item, got {number!r}, which is not there")
    return int(row[0])


def get(connection: Connection, ids: Sequence[Id]) -> dict[Id, Item]:
    """Items by id."""
    found: dict[Id, Item] = {}
    n_features = get_meta(connection, "n_features")
    for some in _parts(ids, _MANY):
        rows = _rows(connection, f"WHERE id IN ({_places(some)})", some)
        found |= {row.id: _item(row, n_features) for row in rows}
    return found


def take_items(connection: Connection, seqs: Seqs) -> Iterator[Item]:
    """Items by ascending seq; they must be there."""
    n_features = get_meta(connection, "n_features")
    for some in _parts(seqs.tolist(), _MANY):
        for row in _all(connection, some):
            yield _item(row, n_features)


def take_vectors(connection: Connection, seqs: Seqs, n_features: int) -> Float32:
    """Vectors (n, d) by ascending seq; they must be there."""
    out = np.empty((len(seqs), n_features), np.float32)
    start = 0
    for some in _parts(seqs.tolist(), _MANY):
        rows = [row.vector for row in _all(connection, some)]
        out[start : start + len(some)] = _matrix(rows, "<f4", n_features)
        start += len(some)
    return out


def payloads_after(connection: Connection, seq: int) -> Iterator[tuple[int, Payload]]:
    """The payloads of the items above ``seq``, with their seqs."""
    for row in _rows(connection, "WHERE seq > ?", [seq]):
        yield row.seq, loads(row.payload)


class Block(NamedTuple):
    """Items one after the other: seqs (n,), and where they were asked for vectors (n, d) and codes."""

    seqs: Seqs
    vectors: Float32 | None
    codes: Codes | PackedCodes | None


def blocks(
    connection: Connection,
    size: int,
    *,
    after: int = 0,
    n_features: int | None = None,
    codes: tuple[int, Hasher[Any], int] | None = None,
    limit: int = -1,
) -> Iterator[Block]:
    """Items above the seq ``after``, ascending, in blocks of ``size``, at most ``limit`` if not negative.

    ``n_features`` asks for vectors; ``codes`` (generation, hasher, set bits) for codes.
    """
    where = "seq > ? ORDER BY seq LIMIT ?"
    rows: Iterator[tuple[int, bytes | None, bytes | None]]
    if codes is None:
        rows = ((row.seq, row.vector, None) for row in _rows(connection, f"WHERE {where}", [after, limit]))
    else:
        rows = _coded(connection, where, [codes[0], after, limit], with_vectors=n_features is not None)
    for part in _parts(rows, size):
        seqs, vectors, stored = zip(*part, strict=True)
        yield Block(
            np.array(seqs, np.int64),
            _matrix(vectors, "<f4", n_features).astype(np.float32) if n_features else None,
            _codes(stored, codes[1], codes[2]) if codes else None,
        )


def _coded(
    connection: Connection, where: str, values: list[int], *, with_vectors: bool
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Seqs, vectors if they are asked for, and codes of a generation; all of them are sound."""
    columns, source = "generation, seq, code, codes.sum", "codes"
    if with_vectors:
        columns, source = f"{columns}, id, payload, vector, items.sum", "codes JOIN items USING (seq)"
    statement = f"SELECT {columns} FROM {source} WHERE generation = ? AND {where}"
    for generation, seq, code, kept, *item in connection.execute(statement, values):
        _sound(code, kept, f"the code of item {seq}", sums.of_code, generation, seq, code)
        yield seq, sound_item(seq, *item).vector if item else None, code


def _codes(rows: Sequence[bytes], hasher: Hasher[Any], n_active: int) -> Codes | PackedCodes:
    try:
        if isinstance(hasher, SparseHasher):
            return Codes(_matrix(rows, "<u2", n_active), hasher.n_bits)
        return PackedCodes(_matrix(rows, "u1", -(-hasher.n_bits // 8)), hasher.n_bits)
    except ValueError as error:
        raise DamageError(f"stored codes: {error}") from error


def _matrix(rows: Sequence[Any], dtype: str, width: int) -> npt.NDArray[Any]:
    size = width * np.dtype(dtype).itemsize
    if not all(isinstance(row, bytes) and len(row) == size for row in rows):
        raise DamageError(f"expected {size} bytes for each vector or code")
    return np.frombuffer(b"".join(rows), dtype).reshape(len(rows), width)


def _rows(connection: Connection, rest: str, values: Sequence[Any]) -> Iterator[Row]:
    """Rows of items, all of which are sound."""
    statement = f"SELECT seq, id, payload, vector, sum FROM items {rest}"
    return itertools.starmap(sound_item, connection.execute(statement, values))


def sound_item(seq: int, number: Id, payload: str, vector: bytes, kept: int) -> Row:
    """A row of items, if its checksum is the one that was written with it."""
    row = Row(seq, number, payload, vector)
    return _sound(row, kept, f"item {seq}", sums.of_item, *row)


def _sound(value: T, kept: int, what: str, checksum: Callable[..., int], *parts: Any) -> T:
    """The value, if the checksum of its parts is the one that was written with it."""
    try:
        found = checksum(*parts)
    except (TypeError, AttributeError, ValueError):  # of another type than what was written
        found = None
    if found != kept:
        raise DamageError(f"{what}: the checksum does not match")
    return value


def _item(row: Row, n_features: int | None) -> Item:
    vector = _matrix([row.vector], "<f4", n_features or 0)[0]
    return Item(row.id, vector.astype(np.float32), loads(row.payload))


def loads(text: Any) -> Payload:
    """A payload that was stored."""
    try:
        payload = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise DamageError(f"a payload is not JSON: {error}") from error
    if not isinstance(payload, dict):
        raise DamageError("a payload is no object")
    return payload


def _all(connection: Connection, seqs: list[int]) -> list[Row]:
    rows = list(_rows(connection, f"WHERE seq IN ({_places(seqs)}) ORDER BY seq", seqs))
    if len(rows) != len(seqs):
        raise DamageError(f"{len(seqs) - len(rows)} items are missing")
    return rows


def _parts(values: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(values)
    while part := list(itertools.islice(left, size)):
        yield part


def _places(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
