"""Collections that earlier versions of the package wrote are opened, and say what they said."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import posh
from posh.collection import tables
from posh.collection.maintenance import check_collection
from posh.collection.opening import DATABASE

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture
def golden(tmp_path):
    """A copy of the collection of version 1: opening may write to it."""
    return Path(shutil.copytree(GOLDEN / "posh-collection-v1", tmp_path / "golden"))


def require_expected(collection: posh.BaseCollection, name: str = "posh-collection-v1") -> None:
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    assert [[item.id, item.vector.tolist(), item.payload] for item in collection.items()] == expected["items"]
    assert collection.metadata == expected["metadata"]
    assert collection.n_features == expected["n_features"]
    for search in expected["searches"]:
        ids, scores = collection.search(expected["queries"], 5, filter=search["filter"])
        assert ids.tolist() == search["ids"]
        np.testing.assert_allclose(scores, search["scores"], rtol=1e-5)


def test_golden_collection_of_version_1(golden):
    with posh.Collection(golden) as collection:
        require_expected(collection)
        collection.upsert(["new"], [[0.0] * 8], [{"n": 5}])
        assert collection.delete(["new"]) == 1
    with posh.Collection(golden) as collection:
        require_expected(collection)


@pytest.mark.parametrize("kind", ["metric", "hasher"])
def test_golden_collections_of_version_3(tmp_path, kind):
    """Every item of that version had a code: an upgrade removes the codes of a collection with a metric."""
    name = f"posh-collection-v3-{kind}"
    folder = Path(shutil.copytree(GOLDEN / name, tmp_path / "golden"))
    for _ in range(2):
        with posh.Collection(folder) as collection:
            require_expected(collection, name)
    assert check_collection(folder).problems == []
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection:
        (n_codes,) = connection.execute("SELECT count(*) FROM codes").fetchone()
    assert n_codes == (0 if kind == "metric" else 39)


def test_a_collection_of_version_1_gets_all_checksums(golden):
    posh.Collection(golden).close()
    assert check_collection(golden).problems == []
    with closing(sqlite3.connect(golden / DATABASE)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (4,)
        connection.execute("UPDATE items SET vector = zeroblob(32) WHERE id = 4")
        connection.commit()
    with posh.Collection(golden) as collection, pytest.raises(posh.FormatError, match="item 5: the checksum"):
        collection.get([4])


@pytest.mark.parametrize("name", ["checksum_item", "checksum_code", "checksum_meta", "add_checksums"])
def test_an_upgrade_that_is_interrupted_has_not_happened(golden, monkeypatch, name):
    before = (golden / DATABASE).read_bytes()

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tables, name, interrupted)
        with pytest.raises((KeyboardInterrupt, posh.FormatError)):
            posh.Collection(golden)
    assert (golden / DATABASE).read_bytes() == before
    with posh.Collection(golden) as collection:
        require_expected(collection)
