"""The tables of a collection's database, and the upgrade from earlier versions."""

from __future__ import annotations

import logging
import sqlite3

from posh.collection import rows
from posh.collection.conditions import fields_of

__all__ = ["APPLICATION", "BEFORE", "TABLES", "VERSION", "upgrade"]

logger = logging.getLogger(__name__)

VERSION = 3
APPLICATION = 0x504F5348  # "POSH", in the header of the file

BEFORE = (  # statements before the first table is made
    "PRAGMA encoding = 'UTF-8'",
    "PRAGMA page_size = 8192",
    "PRAGMA auto_vacuum = INCREMENTAL",
)
# The column ``knowledge`` holds the trained state of the index; the format keeps the old word.
TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value, sum INTEGER) WITHOUT ROWID",
    "CREATE TABLE items (seq INTEGER PRIMARY KEY AUTOINCREMENT, id NOT NULL, payload TEXT NOT NULL,"
    " vector BLOB NOT NULL, sum INTEGER)",
    "CREATE UNIQUE INDEX ids ON items (id)",
    "CREATE TABLE fields (name TEXT NOT NULL, type INTEGER NOT NULL, value NOT NULL, seq INTEGER NOT NULL,"
    " PRIMARY KEY (name, type, value, seq)) WITHOUT ROWID",
    "CREATE TABLE generations (number INTEGER PRIMARY KEY, hasher BLOB NOT NULL, knowledge BLOB)",
    "CREATE TABLE codes (generation INTEGER NOT NULL, seq INTEGER NOT NULL, code BLOB NOT NULL, sum INTEGER,"
    " PRIMARY KEY (generation, seq)) WITHOUT ROWID",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)


def upgrade(connection: sqlite3.Connection) -> None:
    """Bring a database of an earlier version to this one, in one transaction.

    If the upgrade is interrupted, the database still has its old version, and the next opening upgrades it.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    logger.info("a database of version %d is upgraded", version)
    connection.create_function("item_sum", 4, rows.item_checksum)
    connection.create_function("code_sum", 3, rows.code_checksum)
    connection.create_function("meta_sum", 2, rows.meta_checksum)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if version < 2:
            _add_checksums(connection)
        _add_fields(connection)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _add_checksums(connection: sqlite3.Connection) -> None:
    """Version 2: all rows have checksums.

    It would be faster to leave old rows without them, but then damage that removes one would go unnoticed.
    """
    for table in ("meta", "items", "codes"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN sum INTEGER")
    connection.execute("UPDATE items SET sum = item_sum(seq, id, payload, vector)")
    connection.execute("UPDATE codes SET sum = code_sum(generation, seq, code)")
    total = rows.ids_checksum(0, sum(rows.id_checksum(*row) for row in connection.execute(_IDS)))
    connection.execute("INSERT INTO meta (key, value) VALUES ('ids_sum', ?)", (total,))
    connection.execute(f"INSERT INTO meta (key, value) VALUES ('last_seq', ({_LAST_SEQ}))")
    connection.execute("UPDATE meta SET sum = meta_sum(key, value)")


def _add_fields(connection: sqlite3.Connection) -> None:
    """Version 3: values in lists and objects have rows of fields, too."""
    items = connection.execute("SELECT seq, payload FROM items NOT INDEXED")
    connection.executemany(
        "INSERT OR IGNORE INTO fields VALUES (?, ?, ?, ?)",
        ((*field, seq) for seq, text in items for field in fields_of(rows.load_payload(text))),
    )


_IDS = "SELECT seq, id FROM items NOT INDEXED"
_LAST_SEQ = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'items'"
