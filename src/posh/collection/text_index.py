"""The text index of a collection: a table of SQLite's FTS5 in the database of the items.

The table has no copy of the text ("contentless"): the payloads have it. To remove an item, FTS5 needs the
text that was added, which the stored payload gives. Removing only marks the words; :func:`optimize` erases
them. Rows are those of items with text, under their seqs, and change in the transactions of the items.
The table has no checksums, because ``posh info --check`` compares it with the payloads.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from posh.collection import tables
from posh.collection.base import Id, Payload
from posh.collection.database import VERSION
from posh.collection.snapshot import Mask, SlotTable
from posh.collection.tables import Connection, DamageError
from posh.collection.text import TEXT_TABLE, TextOptions, TextQuery, quote_name

__all__ = ["check", "create", "insert", "optimize", "read_options", "rebuild", "remove", "search"]

_BATCH = 1024  # rows that are read together
_REBUILD = "rebuild it with collection.index_text()"


@contextlib.contextmanager
def _explain_errors() -> Iterator[None]:
    """Say of damage that it concerns the text index, and what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT:
            raise DamageError(f"the text index is damaged, or a page of it ({error}): {_REBUILD}") from error
        raise


# Settings ------------------------------------------------------------------------------------------------


def create(connection: Connection, options: TextOptions) -> None:
    """Create an empty text index and store its options; the version of the format becomes that with text."""
    connection.execute(options.statement())
    text = json.dumps({"fields": options.fields, "tokenizer": options.tokenizer})
    tables.put_meta(connection, {"text": text})
    connection.execute(f"PRAGMA user_version = {VERSION}")


def read_options(connection: Connection) -> TextOptions | None:
    """Return the options of the text index; None for a collection without one."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < VERSION:
        return None
    stored = tables.load_payload(tables.get_meta(connection, "text"))
    try:
        options = TextOptions.validate(stored["fields"], stored["tokenizer"])
    except (ValueError, KeyError) as error:
        raise DamageError(f"the options of the text index: {error}") from error
    assert options is not None
    return options


# Writing -------------------------------------------------------------------------------------------------


def insert(connection: Connection, options: TextOptions, payloads: Iterable[tuple[int, Payload]]) -> None:
    """Add items, given as seqs in ascending order and payloads; those without text have no row."""
    columns = ", ".join(map(quote_name, options.fields))
    places = ", ".join("?" * len(options.fields))
    statement = f"INSERT INTO {TEXT_TABLE} (rowid, {columns}) VALUES (?, {places})"
    with _explain_errors():
        connection.executemany(statement, _make_rows(options, payloads))


def remove(connection: Connection, options: TextOptions, ids: Sequence[Id]) -> None:
    """Remove the items with these ids that exist; they are still stored.

    In the order of seqs: otherwise FTS5 would begin another segment of its index with each of them.
    """
    columns = ", ".join(map(quote_name, options.fields))
    places = ", ".join("?" * len(options.fields))
    statement = f"INSERT INTO {TEXT_TABLE} ({TEXT_TABLE}, rowid, {columns}) VALUES ('delete', ?, {places})"
    payloads = tables.read_payloads_of(connection, ids)
    with _explain_errors():
        connection.executemany(statement, _make_rows(options, payloads))


def _make_rows(options: TextOptions, payloads: Iterable[tuple[int, Payload]]) -> Iterator[tuple[Any, ...]]:
    for seq, payload in payloads:
        texts = options.extract(payload)
        if any(texts):
            yield (seq, *texts)


def optimize(connection: Connection) -> None:
    """Merge the index into one segment, which has no words of removed items."""
    with _explain_errors():
        connection.execute(f"INSERT INTO {TEXT_TABLE} ({TEXT_TABLE}) VALUES ('optimize')")


def rebuild(connection: Connection, before: TextOptions | None, options: TextOptions) -> None:
    """Replace the text index, if there is one, by one of all items."""
    if before is not None:
        with _explain_errors():
            connection.execute(f"DROP TABLE {TEXT_TABLE}")
    create(connection, options)
    insert(connection, options, tables.read_payloads_after(connection, 0))


# Searching -----------------------------------------------------------------------------------------------


def search(
    connection: Connection, query: TextQuery, k: int, table: SlotTable, allowed: Mask | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the slots of the k best items for a query among the allowed ones, and their scores, best first.

    Scores are bm25, higher is better; of equal ones, the item written first.
    """
    slots, scores = np.empty(0, np.int64), np.empty(0)
    if not query.expression:
        return slots, scores
    # With a filter, rows are read from the best one on, until k pass.
    limit = k if allowed is None else -1
    try:
        with _explain_errors():
            rows = connection.execute(_SEARCH, (query.expression, limit))
            while len(slots) < k and (part := rows.fetchmany(_BATCH)):
                found = np.array([seq for seq, _ in part], np.int64)
                part_slots = table.find_slots(found)
                part_scores = -np.array([rank for _, rank in part])
                if allowed is not None:
                    passes = allowed[part_slots]
                    part_slots, part_scores = part_slots[passes], part_scores[passes]
                slots = np.concatenate([slots, part_slots])
                scores = np.concatenate([scores, part_scores])
            rows.close()
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
            raise
        raise ValueError(
            f"expected an expression of FTS5, got {query.expression!r:.80} ({error}): put words and names "
            "with other characters in double quotes, or give plain words as a string"
        ) from error
    return slots[:k], scores[:k]


_SEARCH = f"SELECT rowid, rank FROM {TEXT_TABLE} WHERE {TEXT_TABLE} MATCH ? ORDER BY rank, rowid LIMIT ?"


# Checking ------------------------------------------------------------------------------------------------


def check(connection: Connection, options: TextOptions) -> tuple[int, str | None]:
    """Return the number of words in the index, and the first difference from an index of the payloads."""
    with contextlib.closing(sqlite3.connect("", isolation_level=None)) as fresh:  # a temporary file
        fresh.execute("BEGIN")
        fresh.execute(options.statement())
        insert(fresh, options, tables.read_payloads_after(connection, 0))
        fresh.execute("COMMIT")
        n_words = 0
        try:
            with _explain_errors():
                for what, statement in _CONTENT.items():
                    pairs = itertools.zip_longest(_read(connection, statement), _read(fresh, statement))
                    for found, expected in pairs:
                        if found != expected:
                            text = f"expected {expected!r:.200}, found {found!r:.200}"
                            return n_words, f"{what}: {text}, so it differs from the payloads: {_REBUILD}"
                        n_words += what == _WORDS
        except DamageError as error:
            return n_words, str(error)
    return n_words, None


def _read(connection: Connection, statement: str) -> Iterator[Any]:
    connection.execute(
        f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab(main, '{TEXT_TABLE}', 'instance')"
    )
    return iter(connection.execute(statement))


_WORDS = "the text index, words"
_TOTALS = "nullif(block, zeroblob(length(block)))"  # of an empty index: zeros, or nothing if it is new
_CONTENT: Mapping[str, str] = {
    _WORDS: "SELECT term, doc, col, offset FROM temp.words",
    "the text index, lengths": f"SELECT id, sz FROM {TEXT_TABLE}_docsize ORDER BY id",
    "the text index, totals": f"SELECT {_TOTALS} FROM {TEXT_TABLE}_data WHERE id = 1",
}
