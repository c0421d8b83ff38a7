"""Databases with right checksums and wrong content: always a FormatError or StorageError.

Each case writes one value that no collection writes, together with its checksum, and then does everything
that a collection can do. A value that does no harm may pass.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import posh
from posh.collection import tables
from posh.collection.maintenance import check_collection
from posh.collection.opening import DATABASE
from tests.collection.implementations import DATA, SPARSE

ERRORS = (posh.FormatError, posh.StorageError)
KINDS: dict[str, dict[str, Any]] = {
    "metric": {"metric": "euclidean"},
    "codes": {"hasher": SPARSE},
    "no index": {},
}
DEEP_LIST, DEEP_OBJECT = "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000
LONG_NUMBER = "1" * 5000
VALUES: dict[str, Any] = {
    "null": None,
    "zero": 0,
    "negative": -1,
    "largest": 2**63 - 1,
    "fraction": 1.5,
    "infinity": float("inf"),
    "no text": "",
    "text": "abc",
    "blob": b"\x00\xff" * 8,
    "half a pair": b"\xed\xa0\x80",
    "list": "[]",
    "JSON null": "null",
    "JSON number": "1",
    "long number": LONG_NUMBER,
    "deep list": DEEP_LIST,
    "deep object": DEEP_OBJECT,
}
OPTIONS = [
    {"metric": []},
    {"metric": "nothing"},
    {"structure": {"a": 1}},
    {"n_lists": "x"},
    {"n_lists": 10**30},
    {"n_probe": None},
    {"store": ["float32"]},
    {"recall": 7},
    {"oversample": "x"},
    {"random_state": 10**30},
    {"random_state": -1},
    {"document_active": "x"},
    {"query_active": {}},
    {"refine": 3},
    {"nothing": 1},
]
TEXTS = {json.dumps(each): json.dumps(each) for each in OPTIONS}
TEXTS |= {"NaN": '{"recall": NaN}', "large": f'{{"n_lists": {LONG_NUMBER}}}'}


def short(value: Any) -> str:
    return f"{value!r:.20}"


def model(header: str) -> bytes:
    """A model file with a header and nothing else."""
    return len(header).to_bytes(8, "little") + header.encode()


MODELS = VALUES | {
    "deep header": model(DEEP_OBJECT),
    "list in header": model("[]"),
    "metadata is a list": model('{"__metadata__": []}'),
    "no metadata": model("{}"),
    "huge array": model('{"a": {"dtype": "F32", "shape": [1000000000000], "data_offsets": [0, 4]}}'),
}


@pytest.fixture(scope="module", params=KINDS)
def honest(request, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("honest") / "shop"
    with posh.Collection(path, metadata={"a": 1}, **KINDS[request.param]) as collection:
        collection.upsert([*range(9), "ten"], DATA[:10], [{"n": i, "text": "x"} for i in range(10)])
    return path


@pytest.fixture
def lying(honest, tmp_path):
    """Returns a copy in which statements were executed; None if SQLite itself refuses them."""

    def lie(*statements: tuple[str, tuple[Any, ...]]) -> Path | None:
        shutil.copytree(honest, tmp_path / "shop")
        with closing(sqlite3.connect(tmp_path / "shop" / DATABASE)) as connection:
            try:
                for statement, values in statements:
                    connection.execute(statement, values)
            except (sqlite3.Error, OverflowError):
                return None
            connection.commit()
        return tmp_path / "shop"

    return lie


def checksum(function, *parts: Any) -> int:
    try:
        return int(function(*parts))
    except (TypeError, AttributeError, ValueError):
        return 0


def set_meta(key: str, value: Any) -> tuple[str, tuple[Any, ...]]:
    summed = checksum(tables.checksum_meta, key, value)
    return "UPDATE meta SET value = ?, sum = ? WHERE key = ?", (value, summed, key)


def use(path: Path | None) -> None:
    """Open a collection in all ways and do everything; nothing but the expected errors may be raised."""
    if path is None:
        return
    check_collection(path)
    with suppress(*ERRORS):
        posh.Collection(path, read_only=True).close()
    with suppress(*ERRORS), posh.Collection(path) as collection:
        assert repr(collection)
        assert collection.metadata is not collection.index_options
        collection.count({"n": {"lt": 5}})
        if collection.hasher is not None or "metric" in collection.index_options:
            collection.search(DATA[:2], 3, payloads=True)
        for call in (
            lambda: list(collection.items()),
            lambda: collection.get([1, "ten"]),
            lambda: collection.sample(5),
            lambda: collection.upsert(["new"], DATA[:1], [{"z": 1}]),
            lambda: collection.update_payload([1], [{"q": 2}]),
            lambda: collection.delete([4]),
            lambda: collection.delete(filter={"n": 3}),
            lambda: collection.set_metadata({"b": 1}),
            collection.compact,
            lambda: collection.backup(path.parent / "backup"),
            lambda: collection.reindex(metric="cosine"),
            lambda: collection.reindex(SPARSE),
        ):
            with suppress(*ERRORS):
                call()


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize(
    "key", ["version", "generation", "n_features", "options", "last_seq", "ids_sum", "snapshot", "metadata"]
)
def test_a_setting_lies(lying, key, value):
    use(lying(set_meta(key, value)))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_options_lie(lying, text):
    path = lying(set_meta("options", text))
    use(path)
    with pytest.raises(posh.FormatError):
        posh.Collection(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", "abc"),
        ("version", 2**63 - 1),
        ("generation", 1.5),
        ("last_seq", None),
        ("ids_sum", "0"),
        ("n_features", 9),
        ("n_features", 10**12),
        ("n_features", None),
        ("options", "[]"),
        ("options", DEEP_LIST),
        ("metadata", DEEP_OBJECT),
        ("metadata", b"{}"),
    ],
    ids=short,
)
def test_lies_that_opening_must_notice(lying, key, value):
    """They were a TypeError or a RecursionError, some of them only at the next write."""
    path = lying(set_meta(key, value))
    for read_only in (False, True):
        with pytest.raises(posh.FormatError):
            posh.Collection(path, read_only=read_only)
    assert check_collection(path).problems


@pytest.mark.parametrize("value", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("column", ["hasher", "knowledge"])
def test_a_generation_lies(lying, column, value):
    use(lying((f"UPDATE generations SET {column} = ?", (value,))))


@pytest.mark.parametrize("number", [0, -1, 2, 2**62])
def test_the_number_of_a_generation_lies(lying, number):
    use(lying(("UPDATE generations SET number = ?", (number,))))


@pytest.mark.parametrize("value", [*VALUES.values(), '{"n": 1e400}', f'{{"n": {10**30}}}'], ids=short)
@pytest.mark.parametrize("column", ["seq", "id", "payload", "vector"])
def test_an_item_lies(lying, honest, column, value):
    with closing(sqlite3.connect(honest / DATABASE)) as connection:
        item = connection.execute("SELECT seq, id, payload, vector FROM items WHERE seq = 5").fetchone()
        others = connection.execute("SELECT seq, id FROM items WHERE seq <> 5").fetchall()
    row = tables.ItemRow(*item)._replace(**{column: value})
    ids = sum(checksum(tables.checksum_id, *pair) for pair in [*others, (row.seq, row.id)])
    use(
        lying(
            (
                f"UPDATE items SET {column} = ?, sum = ? WHERE seq = 5",
                (value, checksum(tables.checksum_item, *row)),
            ),
            set_meta("ids_sum", tables.add_checksums(0, ids)),
        )
    )


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("column", ["generation", "seq", "code"])
def test_a_code_lies(lying, column, value):
    row: dict[str, Any] = {"generation": 1, "seq": 5, "code": b"\x00" * 8, column: value}
    summed = checksum(tables.checksum_code, *row.values())
    use(lying((f"UPDATE codes SET {column} = ?, sum = ? WHERE seq = 5", (value, summed))))


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("column", ["name", "type", "value", "seq"])
def test_a_field_lies(lying, column, value):
    use(lying((f"UPDATE OR IGNORE fields SET {column} = ? WHERE seq = 5", (value,))))


def test_the_manifest_of_a_saved_index_is_deep(tmp_path):
    posh.CodeIndex(SPARSE).add(DATA[:5]).save(tmp_path / "index")
    (tmp_path / "index" / "manifest.json").write_text(DEEP_LIST)
    with pytest.raises(posh.FormatError, match="not a readable manifest"):
        posh.Index.load(tmp_path / "index")
