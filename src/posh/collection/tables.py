"""The rows of a collection's database, with their checksums, and the statements that read and write them.

SQLite has no checksums. Each row of items, codes and settings has a CRC-32, which is written with the row and
compared whenever the row is read. The checksum covers the key of the row: a row in a wrong place is noticed.
The rows of ``fields`` have no checksum, because ``posh info --check`` can compare them with the payloads.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt

from posh.codes import Codes, PackedCodes
from posh.collection.base import Id, Item, Payload
from posh.collection.filters import KINDS, list_fields
from posh.hashers.base import Hasher, SparseHasher
from posh.preprocess import Float32

__all__ = [
    "KEYS",
    "WRONG_CONTENT",
    "Block",
    "Connection",
    "DamageError",
    "ItemRow",
    "Seqs",
    "StoredId",
    "add_checksums",
    "checksum_code",
    "checksum_id",
    "checksum_item",
    "checksum_meta",
    "checksum_rest",
    "delete_items",
    "dump_payload",
    "find_items",
    "find_seq",
    "find_seqs_with_key",
    "get_meta",
    "insert_codes",
    "insert_items",
    "load_payload",
    "parse_codes",
    "parse_item",
    "put_meta",
    "read_blocks",
    "read_field_kinds",
    "read_ids",
    "read_ids_of",
    "read_items",
    "read_items_in_parts",
    "read_kinds_of",
    "read_payloads",
    "read_payloads_after",
    "read_payloads_of",
    "read_seqs",
    "read_vectors",
    "require_width",
    "split_rows",
    "stack_rows",
    "verify_code",
    "verify_item",
    "verify_value",
]

WRONG_CONTENT = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Errors that reading raises if another program has written invalid content to the database."""


class DamageError(Exception):
    """The database has invalid content; :func:`translate_sqlite_errors` makes a FormatError of it."""


Connection = sqlite3.Connection
Seqs = npt.NDArray[np.int64]
T = TypeVar("T")


class ItemRow(NamedTuple):
    """An item as the database stores it."""

    seq: int
    id: Id
    payload: str
    vector: bytes


class StoredId(NamedTuple):
    """The seq and the id of a stored item."""

    seq: int
    id: Id


# Checksums -----------------------------------------------------------------------------------------------


def checksum_id(seq: int, item_id: Id) -> int:
    """Return the checksum of an id and its seq; ``1`` and ``"1"`` are two ids."""
    return crc32(f"{seq} {'text' if isinstance(item_id, str) else 'number'} {item_id}\n".encode())


def checksum_item(seq: int, item_id: Id, payload: str, vector: bytes) -> int:
    """Return the checksum of a stored item."""
    return checksum_rest(checksum_id(seq, item_id), payload, vector)


def checksum_rest(id_sum: int, payload: str, vector: bytes) -> int:
    """Return the checksum of a stored item whose id has the checksum ``id_sum``."""
    return crc32(vector, crc32(payload.encode(), id_sum))


def checksum_code(generation: int, seq: int, code: bytes) -> int:
    """Return the checksum of a stored code."""
    return crc32(code, crc32(f"{generation} {seq}\n".encode()))


def checksum_meta(key: str, value: Any) -> int:
    """Return the checksum of a row of ``meta``."""
    return crc32(f"{key} {type(value).__name__} {value}".encode())


def add_checksums(before: int, added: int = 0, removed: int = 0) -> int:
    """Return the sum of the checksums of all ids, in 63 bits, after some were added and some removed."""
    return (before + added - removed) % (1 << 63)


def verify_item(seq: int, item_id: Id, payload: str, vector: bytes, checksum: int) -> ItemRow:
    """Return a stored item if its checksum matches."""
    row = ItemRow(seq, item_id, payload, vector)
    return _verify(row, checksum, f"item {seq}", checksum_item, *row)


def verify_code(generation: int, seq: int, code: bytes, checksum: int) -> bytes:
    """Return a stored code if its checksum matches."""
    return _verify(code, checksum, f"the code of item {seq}", checksum_code, generation, seq, code)


def verify_value(key: str, value: Any, checksum: int) -> Any:
    """Return a stored setting if its checksum matches."""
    return _verify(value, checksum, f"the value of {key}", checksum_meta, key, value)


def _verify(value: T, expected: int, what: str, checksum: Callable[..., int], *parts: Any) -> T:
    try:
        found = checksum(*parts)
    except (TypeError, AttributeError, ValueError):  # damage has changed the type of a part
        found = None
    if found != expected:
        raise DamageError(f"{what}: the checksum does not match")
    return value


# Content -------------------------------------------------------------------------------------------------

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def dump_payload(payload: Payload) -> str:
    """Return a payload as the database stores it."""
    return _ENCODER.encode(payload)


def load_payload(text: Any) -> Payload:
    """Return a payload that was stored."""
    try:
        payload = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise DamageError(f"a payload is not JSON: {error}") from error
    if not isinstance(payload, dict):
        raise DamageError("a payload is not an object")
    return payload


def split_rows(array: npt.NDArray[Any]) -> list[bytes]:
    """Return the bytes of each row of a matrix.

    One call converts the matrix, and slices give the rows. That is several times as fast as one call per row.
    """
    everything, width = array.tobytes(), array.shape[1] * array.itemsize
    return [everything[start : start + width] for start in range(0, len(everything), width)]


def stack_rows(rows: Sequence[Any], dtype: str, width: int) -> npt.NDArray[Any]:
    """Return the matrix (n, width) whose rows have these bytes."""
    size = width * np.dtype(dtype).itemsize
    if not all(isinstance(row, bytes) and len(row) == size for row in rows):
        raise DamageError(f"expected {size} bytes for each vector or code")
    return np.frombuffer(b"".join(rows), dtype).reshape(len(rows), width)


def parse_item(row: ItemRow, n_features: int | None) -> Item:
    """Return the item of a row."""
    vector = stack_rows([row.vector], "<f4", n_features or 0)[0]
    return Item(row.id, vector.astype(np.float32), load_payload(row.payload))


def parse_codes(rows: Sequence[bytes], hasher: Hasher[Any], n_active: int) -> Codes | PackedCodes:
    """Return the codes of a hasher, sparse ones with ``n_active`` set bits, that have these bytes."""
    try:
        if isinstance(hasher, SparseHasher):
            return Codes(stack_rows(rows, "<u2", n_active), hasher.n_bits)
        return PackedCodes(stack_rows(rows, "u1", -(-hasher.n_bits // 8)), hasher.n_bits)
    except ValueError as error:
        raise DamageError(f"stored codes: {error}") from error


_MANY = 500  # values in one statement
_FEW = 32  # items that are read between two charges
_NUMBER = range(2**62)  # room for as many writes again
_KEYS: dict[str, Callable[[Any], bool]] = {  # and which values they may have
    "version": lambda value: type(value) is int and value in _NUMBER,
    "generation": lambda value: type(value) is int and value in _NUMBER,
    "n_features": lambda value: value is None or (type(value) is int and 1 <= value < 2**28),
    "options": lambda value: isinstance(value, str),
    "last_seq": lambda value: type(value) is int and value in _NUMBER,
    "ids_sum": lambda value: type(value) is int and value >= 0,
    "snapshot": lambda value: value is None or isinstance(value, str),
    "metadata": lambda value: isinstance(value, str),
    "text": lambda value: isinstance(value, str),
}
KEYS = tuple(key for key in _KEYS if key != "text")
"""The settings of every collection; ``text`` is one of those with a text index."""


# Settings ------------------------------------------------------------------------------------------------


def get_meta(connection: Connection, key: str) -> Any:
    """Return the value of a key; a missing key, or a value that it cannot have, is a DamageError."""
    row = connection.execute("SELECT value, sum FROM meta WHERE key = ?", (key,)).fetchone()
    if row is None:
        raise DamageError(f"{key} is missing")
    value = verify_value(key, *row)
    if not _KEYS[key](value):
        raise DamageError(f"{key} has a value that it cannot have, {value!r:.80}")
    return value


def put_meta(connection: Connection, values: Mapping[str, Any]) -> None:
    """Set the values of keys."""
    connection.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?, ?)",
        [(key, value, checksum_meta(key, value)) for key, value in values.items()],
    )


# Writing items and codes ---------------------------------------------------------------------------------


def insert_items(
    connection: Connection, seqs: Seqs, ids: Sequence[Id], payloads: Sequence[Payload], vectors: Float32
) -> int:
    """Write items with these seqs; return the sum of the checksums of their ids."""
    seq_list, little = seqs.tolist(), vectors.astype("<f4", copy=False)
    id_sums = list(map(checksum_id, seq_list, ids))
    connection.executemany(
        "INSERT INTO items (seq, id, payload, vector, sum) VALUES (?, ?, ?, ?, ?)",
        (
            (seq, item_id, text, vector, checksum_rest(id_sum, text, vector))
            for seq, item_id, text, vector, id_sum in zip(
                seq_list, ids, map(dump_payload, payloads), split_rows(little), id_sums, strict=True
            )
        ),
    )
    owned = zip(seq_list, payloads, strict=True)
    fields = ((*field, seq) for seq, payload in owned for field in list_fields(payload))
    connection.executemany("INSERT INTO fields VALUES (?, ?, ?, ?)", fields)
    return sum(id_sums)


def delete_items(connection: Connection, ids: Sequence[Id], generations: Iterable[int]) -> list[StoredId]:
    """Delete the items with these ids that exist, their fields, and their codes of these generations.

    Return the deleted ones by ascending seq. Payloads may be large: one at a time is in memory.
    """
    found: list[StoredId] = []
    for part in _split(ids, _MANY):
        for row in _read_item_rows(connection, f"WHERE id IN ({_write_places(part)})", part):
            found.append(StoredId(row.seq, row.id))
            connection.executemany(
                "DELETE FROM fields WHERE name = ? AND type = ? AND value = ? AND seq = ?",
                ((*field, row.seq) for field in list_fields(load_payload(row.payload))),
            )
    seqs = [(item.seq,) for item in found]
    connection.executemany("DELETE FROM items WHERE seq = ?", seqs)
    for generation in generations:
        connection.executemany(
            "DELETE FROM codes WHERE generation = ? AND seq = ?", ((generation, seq) for (seq,) in seqs)
        )
    return sorted(found)


def insert_codes(connection: Connection, generation: int, seqs: Seqs, codes: Codes | PackedCodes) -> None:
    """Write the codes of items; codes of deleted items are left out."""
    array = codes.active.astype("<u2", copy=False) if isinstance(codes, Codes) else codes.bits
    connection.executemany(
        "INSERT INTO codes SELECT ?, seq, ?, ? FROM items WHERE seq = ?",
        (
            (generation, code, checksum_code(generation, seq, code), seq)
            for seq, code in zip(seqs.tolist(), split_rows(array), strict=True)
        ),
    )


# Reading items -------------------------------------------------------------------------------------------


def read_ids(connection: Connection) -> tuple[Seqs, npt.NDArray[Any]]:
    """Return the seqs of all items, ascending, and their ids. This reads the index of ids, not the items."""
    pairs = connection.execute("SELECT seq, id FROM items INDEXED BY ids").fetchall()
    if add_checksums(0, sum(checksum_id(*pair) for pair in pairs)) != get_meta(connection, "ids_sum"):
        raise DamageError("the index of ids: the checksum does not match")
    if not {type(item_id) for _, item_id in pairs} <= {int, str}:
        raise DamageError("expected ids that are integers or text, found others")
    seqs = np.fromiter((pair[0] for pair in pairs), np.int64, len(pairs))
    ids = np.empty(len(pairs), object)
    ids[:] = [pair[1] for pair in pairs]
    order = np.argsort(seqs)
    return seqs[order], ids[order]


def read_seqs(connection: Connection) -> Seqs:
    """Return the seqs of all items, ascending; faster than :func:`read_ids`, as SQLite makes one text."""
    text, n = connection.execute("SELECT group_concat(seq), count(*) FROM items INDEXED BY ids").fetchone()
    seqs = np.fromiter(map(int, text.split(",") if text else ()), np.int64, n)
    seqs.sort()
    return seqs


def read_ids_of(connection: Connection, seqs: Seqs) -> dict[int, Id]:
    """Return the ids of the items with these seqs that exist, after comparing the checksums of the items."""
    found: dict[int, Id] = {}
    for part in _split(seqs.tolist(), _MANY):
        for row in _read_item_rows(connection, f"WHERE seq IN ({_write_places(part)})", part):
            found[row.seq] = row.id
    return found


def read_field_kinds(connection: Connection, limit: int) -> dict[str, list[str]]:
    """Return the kinds of values, ``KINDS`` of the filters, that filters find in each field.

    At most ``limit`` pairs of a field and a kind are returned, by name. Each pair costs one look into the
    primary key, however many items there are.
    """
    found: dict[str, list[str]] = {}
    name, kind = "", -1
    for _ in range(limit):
        row = connection.execute(
            "SELECT name, type FROM fields WHERE (name, type) > (?, ?) ORDER BY name, type LIMIT 1",
            (name, kind),
        ).fetchone()
        if row is None:
            break
        name, kind = row
        found.setdefault(name, []).append(_name_kind(kind))
    return found


def read_kinds_of(connection: Connection, field: str) -> list[str]:
    """Return the kinds of values that filters find in one field."""
    kinds: list[str] = []
    kind = -1
    while True:
        row = connection.execute(
            "SELECT type FROM fields WHERE name = ? AND type > ? ORDER BY type LIMIT 1", (field, kind)
        ).fetchone()
        if row is None:
            return kinds
        kind = row[0]
        kinds.append(_name_kind(kind))


def _name_kind(kind: Any) -> str:
    if kind not in range(len(KINDS)):
        raise DamageError(f"a field has the type {kind!r:.80}")
    return str(KINDS[kind])


def require_width(connection: Connection, n_features: int | None) -> None:
    """Raise a DamageError if the vector of the first item has another number of columns."""
    row = connection.execute("SELECT length(vector), typeof(vector) FROM items LIMIT 1").fetchone()
    if row is not None and row != (4 * (n_features or 0), "blob"):
        raise DamageError(f"n_features is {n_features}, but a vector has {row[0]} bytes")


def find_seq(connection: Connection, item_id: Id) -> int:
    """Return the seq of the item with this id."""
    row = connection.execute("SELECT seq FROM items WHERE id = ?", (item_id,)).fetchone()
    if row is None:
        raise KeyError(f"expected after to be the id of an item, got {item_id!r}, which is not there")
    return int(row[0])


def find_items(
    connection: Connection, ids: Sequence[Id], charge: Callable[[int], None] | None = None
) -> dict[Id, Item]:
    """Return the items with these ids that exist; ``charge`` is called with the bytes of every few items."""
    found: dict[Id, Item] = {}
    n_features = get_meta(connection, "n_features")
    for part in _split(ids, _MANY if charge is None else _FEW):
        items = list(_read_item_rows(connection, f"WHERE id IN ({_write_places(part)})", part))
        if charge is not None:
            charge(sum(len(row.payload) + len(row.vector) for row in items))
        found |= {row.id: parse_item(row, n_features) for row in items}
    return found


def read_items_in_parts(connection: Connection, ids: Sequence[Id], size: int) -> Iterator[Item]:
    """Yield the items with these ids, reading ``size`` at a time; a missing item is a KeyError."""
    for part in _split(ids, size):
        found = find_items(connection, part)
        for item_id in part:
            if item_id not in found:
                raise KeyError(f"expected ids of stored items, got {item_id!r:.80}, which is not there")
            yield found[item_id]


def read_items(connection: Connection, seqs: Seqs) -> Iterator[Item]:
    """Yield the items with these ascending seqs; a missing item is a DamageError."""
    n_features = get_meta(connection, "n_features")
    for part in _split(seqs.tolist(), _MANY):
        for row in _read_existing(connection, part):
            yield parse_item(row, n_features)


def read_vectors(connection: Connection, seqs: Seqs, n_features: int) -> Float32:
    """Return the vectors (n, d) with these ascending seqs; a missing item is a DamageError."""
    out = np.empty((len(seqs), n_features), np.float32)
    start = 0
    for part in _split(seqs.tolist(), _MANY):
        vectors = [row.vector for row in _read_existing(connection, part)]
        out[start : start + len(part)] = stack_rows(vectors, "<f4", n_features)
        start += len(part)
    return out


def read_payloads_after(connection: Connection, seq: int) -> Iterator[tuple[int, Payload]]:
    """Yield the seqs, ascending, and the payloads of the items above ``seq``."""
    for row in _read_item_rows(connection, "WHERE seq > ? ORDER BY seq", [seq]):
        yield row.seq, load_payload(row.payload)


def find_seqs_with_key(connection: Connection, key_end: str, after: int) -> Seqs:
    """Return the seqs above ``after``, ascending, of items with a key in their payload that ends so.

    Other text of a payload may look like a key, so there may be more.
    """
    text = f"{_ENCODER.encode(key_end)[1:]}:"
    rows = connection.execute("SELECT seq FROM items WHERE seq > ? AND instr(payload, ?)", [after, text])
    return np.array([seq for (seq,) in rows], np.int64)


def read_payloads(connection: Connection, seqs: Seqs) -> Iterator[tuple[int, Payload]]:
    """Yield the seqs and the payloads of the items with these ascending seqs."""
    for part in _split(seqs.tolist(), _MANY):
        for row in _read_existing(connection, part):
            yield row.seq, load_payload(row.payload)


def read_payloads_of(connection: Connection, ids: Sequence[Id]) -> Iterator[tuple[int, Payload]]:
    """Yield the seqs, ascending, and the payloads of the items with these ids that exist."""
    seqs: list[int] = []
    for some_ids in _split(ids, _MANY):
        statement = f"SELECT seq FROM items WHERE id IN ({_write_places(some_ids)})"
        seqs += [seq for (seq,) in connection.execute(statement, some_ids)]
    for part in _split(sorted(seqs), _MANY):
        for row in _read_item_rows(connection, f"WHERE seq IN ({_write_places(part)}) ORDER BY seq", part):
            yield row.seq, load_payload(row.payload)


class Block(NamedTuple):
    """Some consecutive items: seqs (n,), and vectors (n, d) and codes if the caller asked for them."""

    seqs: Seqs
    vectors: Float32 | None
    codes: Codes | PackedCodes | None


def read_blocks(
    connection: Connection,
    size: int,
    *,
    after: int = 0,
    n_features: int | None = None,
    codes: tuple[int, Hasher[Any], int] | None = None,
    limit: int = -1,
) -> Iterator[Block]:
    """Yield the items above the seq ``after``, ascending, in blocks of ``size``.

    ``n_features`` asks for vectors, ``codes`` (generation, hasher, set bits) for codes. ``limit`` bounds the
    number of items unless it is negative.
    """
    where = "seq > ? ORDER BY seq LIMIT ?"
    found: Iterator[tuple[int, bytes | None, bytes | None]]
    if codes is None:
        items = _read_item_rows(connection, f"WHERE {where}", [after, limit])
        found = ((row.seq, row.vector, None) for row in items)
    else:
        found = _read_code_rows(
            connection, where, [codes[0], after, limit], with_vectors=n_features is not None
        )
    for part in _split(found, size):
        seqs, vectors, stored = zip(*part, strict=True)
        yield Block(
            np.array(seqs, np.int64),
            stack_rows(vectors, "<f4", n_features).astype(np.float32) if n_features else None,
            parse_codes(stored, codes[1], codes[2]) if codes else None,
        )


def _read_code_rows(
    connection: Connection, where: str, values: list[int], *, with_vectors: bool
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield seqs, vectors if they are asked for, and codes of a generation, after comparing checksums."""
    columns, source = "generation, seq, code, codes.sum", "codes"
    if with_vectors:
        columns, source = f"{columns}, id, payload, vector, items.sum", "codes JOIN items USING (seq)"
    statement = f"SELECT {columns} FROM {source} WHERE generation = ? AND {where}"
    for generation, seq, code, checksum, *item in connection.execute(statement, values):
        verify_code(generation, seq, code, checksum)
        yield seq, verify_item(seq, *item).vector if item else None, code


def _read_item_rows(connection: Connection, rest: str, values: Sequence[Any]) -> Iterator[ItemRow]:
    """Yield rows of items, after comparing checksums."""
    statement = f"SELECT seq, id, payload, vector, sum FROM items {rest}"
    return itertools.starmap(verify_item, connection.execute(statement, values))


def _read_existing(connection: Connection, seqs: list[int]) -> list[ItemRow]:
    found = list(_read_item_rows(connection, f"WHERE seq IN ({_write_places(seqs)}) ORDER BY seq", seqs))
    if len(found) != len(seqs):
        raise DamageError(f"{len(seqs) - len(found)} items are missing")
    return found


def _split(values: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(values)
    while part := list(itertools.islice(left, size)):
        yield part


def _write_places(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
