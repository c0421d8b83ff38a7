"""Rows of a collection's tables: written and read in as few statements as their number allows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from posh.codes import Codes, PackedCodes
from posh.collection.base import Id, Item, Payload
from posh.collection.conditions import fields_of
from posh.collection.storage import Connection, DamageError
from posh.hashers.base import Hasher, SparseHasher
from posh.preprocess import Float32

__all__ = ["Block", "Stored", "blocks", "delete", "dumps", "find", "get", "get_meta", "insert"]
__all__ += ["insert_codes", "loads", "ordered", "payloads_after", "put_all_meta", "put_meta", "seq_of"]
__all__ += ["take_items", "take_vectors"]

Seqs = npt.NDArray[np.int64]
T = TypeVar("T")

_MANY = 500  # values in one statement


class Stored(NamedTuple):
    """What is to be known of an item to remove it."""

    seq: int
    id: Id
    payload: str


def get_meta(connection: Connection, key: str) -> Any:
    """A value by its key, None if there is none."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def put_meta(connection: Connection, key: str, value: Any) -> None:
    """Set the value of a key."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def put_all_meta(connection: Connection, values: Mapping[str, Any]) -> None:
    """Set the values of many keys."""
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())


def dumps(payload: Payload) -> str:
    """A payload as it is stored."""
    return json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def find(connection: Connection, ids: Sequence[Id]) -> list[Stored]:
    """The items with these ids that are there, by seq."""
    found: list[Stored] = []
    for some in _parts(ids, _MANY):
        rows = connection.execute(f"SELECT seq, id, payload FROM items WHERE id IN ({_places(some)})", some)
        found += map(Stored._make, rows)
    return sorted(found)


def insert(
    connection: Connection, seqs: Seqs, ids: Sequence[Id], payloads: Sequence[Payload], vectors: Float32
) -> None:
    """Write items with these seqs."""
    little = vectors.astype("<f4", copy=False)
    connection.executemany(
        "INSERT INTO items (seq, id, payload, vector) VALUES (?, ?, ?, ?)",
        (
            (seq, number, dumps(payload), vector.tobytes())
            for seq, number, payload, vector in zip(seqs.tolist(), ids, payloads, little, strict=True)
        ),
    )
    connection.executemany(
        "INSERT INTO fields VALUES (?, ?, ?, ?)",
        (
            (*field, seq)
            for seq, payload in zip(seqs.tolist(), payloads, strict=True)
            for field in fields_of(payload)
        ),
    )


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
        "INSERT INTO codes SELECT ?, seq, ? FROM items WHERE seq = ?",
        ((generation, row.tobytes(), seq) for seq, row in zip(seqs.tolist(), rows, strict=True)),
    )


def ordered(connection: Connection) -> tuple[Seqs, npt.NDArray[Any]]:
    """The seqs of all items, ascending, and their ids."""
    rows = connection.execute("SELECT seq, id FROM items INDEXED BY ids").fetchall()
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
        statement = f"SELECT id, vector, payload FROM items WHERE id IN ({_places(some)})"
        found |= {row[0]: _item(row, n_features) for row in connection.execute(statement, some)}
    return found


def take_items(connection: Connection, seqs: Seqs) -> Iterator[Item]:
    """Items by ascending seq; they must be there."""
    n_features = get_meta(connection, "n_features")
    for some in _parts(seqs.tolist(), _MANY):
        statement = f"SELECT id, vector, payload FROM items WHERE seq IN ({_places(some)}) ORDER BY seq"
        for row in _all(connection, statement, some):
            yield _item(row, n_features)


def take_vectors(connection: Connection, seqs: Seqs, n_features: int) -> Float32:
    """Vectors (n, d) by ascending seq; they must be there."""
    out = np.empty((len(seqs), n_features), np.float32)
    start = 0
    for some in _parts(seqs.tolist(), _MANY):
        statement = f"SELECT vector FROM items WHERE seq IN ({_places(some)}) ORDER BY seq"
        rows = [row[0] for row in _all(connection, statement, some)]
        out[start : start + len(some)] = _matrix(rows, "<f4", n_features)
        start += len(some)
    return out


def payloads_after(connection: Connection, seq: int) -> Iterator[tuple[int, Payload]]:
    """The payloads of the items above ``seq``, with their seqs."""
    for number, text in connection.execute("SELECT seq, payload FROM items WHERE seq > ?", (seq,)):
        yield number, loads(text)


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
    columns = "seq" + (", vector" if n_features else "") + (", code" if codes else "")
    joined = "codes JOIN items USING (seq)" if n_features else "codes"
    source = f"{joined} WHERE generation = ? AND" if codes else "items WHERE"
    statement = f"SELECT {columns} FROM {source} seq > ? ORDER BY seq LIMIT ?"
    cursor = connection.execute(statement, ([codes[0]] if codes else []) + [after, limit])
    while rows := cursor.fetchmany(size):
        parts = list(zip(*rows, strict=True))
        yield Block(
            np.array(parts[0], np.int64),
            _matrix(parts[1], "<f4", n_features).astype(np.float32) if n_features else None,
            _codes(parts[-1], codes[1], codes[2]) if codes else None,
        )


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


def _item(row: tuple[Any, ...], n_features: int | None) -> Item:
    vector = _matrix([row[1]], "<f4", n_features or 0)[0]
    return Item(row[0], vector.astype(np.float32), loads(row[2]))


def loads(text: Any) -> Payload:
    """A payload that was stored."""
    try:
        payload = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise DamageError(f"a payload is not JSON: {error}") from error
    if not isinstance(payload, dict):
        raise DamageError("a payload is no object")
    return payload


def _all(connection: Connection, statement: str, some: list[int]) -> list[Any]:
    rows = connection.execute(statement, some).fetchall()
    if len(rows) != len(some):
        raise DamageError(f"{len(some) - len(rows)} items are missing")
    return rows


def _parts(values: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(values)
    while part := list(islice(left, size)):
        yield part


def _places(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
