"""The statements that read and write the tables of a collection, in as few calls as possible."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from posh.codes import Codes, PackedCodes
from posh.collection import rows
from posh.collection.base import Id, Item, Payload
from posh.collection.conditions import fields_of
from posh.collection.database import Connection
from posh.collection.rows import ItemRow, StoredId
from posh.collection.snapshot import Seqs
from posh.collection.sqlite_errors import DamageError
from posh.hashers.base import Hasher
from posh.preprocess import Float32

__all__ = ["KEYS", "Block", "delete", "get_meta", "insert", "insert_codes", "items_by_id"]
__all__ += [
    "items_by_seq",
    "items_in_parts",
    "payloads_after",
    "put_meta",
    "read_blocks",
    "require_width",
    "seq_of",
    "seqs_and_ids",
]
__all__ += ["vectors_by_seq"]

T = TypeVar("T")

_MANY = 500  # values in one statement
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
}
KEYS = tuple(_KEYS)


# Settings ------------------------------------------------------------------------------------------------


def get_meta(connection: Connection, key: str) -> Any:
    """Return the value of a key; a missing key, or a value that it cannot have, is a DamageError."""
    row = connection.execute("SELECT value, sum FROM meta WHERE key = ?", (key,)).fetchone()
    if row is None:
        raise DamageError(f"{key} is missing")
    value = rows.checked_value(key, *row)
    if not _KEYS[key](value):
        raise DamageError(f"{key} has a value that it cannot have, {value!r:.80}")
    return value


def put_meta(connection: Connection, values: Mapping[str, Any]) -> None:
    """Set the values of keys."""
    connection.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?, ?)",
        [(key, value, rows.meta_checksum(key, value)) for key, value in values.items()],
    )


# Writing items and codes ---------------------------------------------------------------------------------


def insert(
    connection: Connection, seqs: Seqs, ids: Sequence[Id], payloads: Sequence[Payload], vectors: Float32
) -> int:
    """Write items with these seqs; return the sum of the checksums of their ids."""
    seq_list, little = seqs.tolist(), vectors.astype("<f4", copy=False)
    id_sums = list(map(rows.id_checksum, seq_list, ids))
    connection.executemany(
        "INSERT INTO items (seq, id, payload, vector, sum) VALUES (?, ?, ?, ?, ?)",
        (
            (seq, item_id, text, vector, rows.rest_checksum(id_sum, text, vector))
            for seq, item_id, text, vector, id_sum in zip(
                seq_list, ids, map(rows.dump_payload, payloads), rows.row_bytes(little), id_sums, strict=True
            )
        ),
    )
    owned = zip(seq_list, payloads, strict=True)
    fields = ((*field, seq) for seq, payload in owned for field in fields_of(payload))
    connection.executemany("INSERT INTO fields VALUES (?, ?, ?, ?)", fields)
    return sum(id_sums)


def delete(connection: Connection, ids: Sequence[Id], generations: Iterable[int]) -> list[StoredId]:
    """Delete the items with these ids that exist, their fields, and their codes of these generations.

    Return the deleted ones by ascending seq. Payloads may be large: one at a time is in memory.
    """
    found: list[StoredId] = []
    for part in _parts(ids, _MANY):
        for row in _item_rows(connection, f"WHERE id IN ({_places(part)})", part):
            found.append(StoredId(row.seq, row.id))
            connection.executemany(
                "DELETE FROM fields WHERE name = ? AND type = ? AND value = ? AND seq = ?",
                ((*field, row.seq) for field in fields_of(rows.load_payload(row.payload))),
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
            (generation, code, rows.code_checksum(generation, seq, code), seq)
            for seq, code in zip(seqs.tolist(), rows.row_bytes(array), strict=True)
        ),
    )


# Reading items -------------------------------------------------------------------------------------------


def seqs_and_ids(connection: Connection) -> tuple[Seqs, npt.NDArray[Any]]:
    """Return the seqs of all items, ascending, and their ids. This reads the index of ids, not the items."""
    pairs = connection.execute("SELECT seq, id FROM items INDEXED BY ids").fetchall()
    if rows.ids_checksum(0, sum(rows.id_checksum(*pair) for pair in pairs)) != get_meta(
        connection, "ids_sum"
    ):
        raise DamageError("the index of ids: the checksum does not match")
    if not {type(item_id) for _, item_id in pairs} <= {int, str}:
        raise DamageError("expected ids that are integers or text, found others")
    seqs = np.fromiter((pair[0] for pair in pairs), np.int64, len(pairs))
    ids = np.empty(len(pairs), object)
    ids[:] = [pair[1] for pair in pairs]
    order = np.argsort(seqs)
    return seqs[order], ids[order]


def require_width(connection: Connection, n_features: int | None) -> None:
    """Raise a DamageError if the vector of the first item has another number of columns."""
    row = connection.execute("SELECT length(vector), typeof(vector) FROM items LIMIT 1").fetchone()
    if row is not None and row != (4 * (n_features or 0), "blob"):
        raise DamageError(f"n_features is {n_features}, but a vector has {row[0]} bytes")


def seq_of(connection: Connection, item_id: Id) -> int:
    """Return the seq of the item with this id."""
    row = connection.execute("SELECT seq FROM items WHERE id = ?", (item_id,)).fetchone()
    if row is None:
        raise KeyError(f"expected after to be the id of an item, got {item_id!r}, which is not there")
    return int(row[0])


def items_by_id(connection: Connection, ids: Sequence[Id]) -> dict[Id, Item]:
    """Return the items with these ids that exist."""
    found: dict[Id, Item] = {}
    n_features = get_meta(connection, "n_features")
    for part in _parts(ids, _MANY):
        items = _item_rows(connection, f"WHERE id IN ({_places(part)})", part)
        found |= {row.id: rows.item_from(row, n_features) for row in items}
    return found


def items_in_parts(connection: Connection, ids: Sequence[Id], size: int) -> Iterator[Item]:
    """Yield the items with these ids, reading ``size`` at a time; a missing item is a KeyError."""
    for part in _parts(ids, size):
        found = items_by_id(connection, part)
        for item_id in part:
            if item_id not in found:
                raise KeyError(f"expected ids of stored items, got {item_id!r:.80}, which is not there")
            yield found[item_id]


def items_by_seq(connection: Connection, seqs: Seqs) -> Iterator[Item]:
    """Yield the items with these ascending seqs; a missing item is a DamageError."""
    n_features = get_meta(connection, "n_features")
    for part in _parts(seqs.tolist(), _MANY):
        for row in _existing(connection, part):
            yield rows.item_from(row, n_features)


def vectors_by_seq(connection: Connection, seqs: Seqs, n_features: int) -> Float32:
    """Return the vectors (n, d) with these ascending seqs; a missing item is a DamageError."""
    out = np.empty((len(seqs), n_features), np.float32)
    start = 0
    for part in _parts(seqs.tolist(), _MANY):
        vectors = [row.vector for row in _existing(connection, part)]
        out[start : start + len(part)] = rows.matrix(vectors, "<f4", n_features)
        start += len(part)
    return out


def payloads_after(connection: Connection, seq: int) -> Iterator[tuple[int, Payload]]:
    """Yield the seqs and payloads of the items above ``seq``."""
    for row in _item_rows(connection, "WHERE seq > ?", [seq]):
        yield row.seq, rows.load_payload(row.payload)


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
        items = _item_rows(connection, f"WHERE {where}", [after, limit])
        found = ((row.seq, row.vector, None) for row in items)
    else:
        found = _code_rows(connection, where, [codes[0], after, limit], with_vectors=n_features is not None)
    for part in _parts(found, size):
        seqs, vectors, stored = zip(*part, strict=True)
        yield Block(
            np.array(seqs, np.int64),
            rows.matrix(vectors, "<f4", n_features).astype(np.float32) if n_features else None,
            rows.codes_from(stored, codes[1], codes[2]) if codes else None,
        )


def _code_rows(
    connection: Connection, where: str, values: list[int], *, with_vectors: bool
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield seqs, vectors if they are asked for, and codes of a generation, after comparing checksums."""
    columns, source = "generation, seq, code, codes.sum", "codes"
    if with_vectors:
        columns, source = f"{columns}, id, payload, vector, items.sum", "codes JOIN items USING (seq)"
    statement = f"SELECT {columns} FROM {source} WHERE generation = ? AND {where}"
    for generation, seq, code, checksum, *item in connection.execute(statement, values):
        rows.checked_code(generation, seq, code, checksum)
        yield seq, rows.checked_item(seq, *item).vector if item else None, code


def _item_rows(connection: Connection, rest: str, values: Sequence[Any]) -> Iterator[ItemRow]:
    """Yield rows of items, after comparing checksums."""
    statement = f"SELECT seq, id, payload, vector, sum FROM items {rest}"
    return itertools.starmap(rows.checked_item, connection.execute(statement, values))


def _existing(connection: Connection, seqs: list[int]) -> list[ItemRow]:
    found = list(_item_rows(connection, f"WHERE seq IN ({_places(seqs)}) ORDER BY seq", seqs))
    if len(found) != len(seqs):
        raise DamageError(f"{len(seqs) - len(found)} items are missing")
    return found


def _parts(values: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(values)
    while part := list(itertools.islice(left, size)):
        yield part


def _places(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
