"""Opening: what agrees and what does not, other folders, damage."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import posh
from posh.collection import opening
from tests.collection.implementations import DATA, DENSE, OTHER, SPARSE
from tests.test_fuzz import N, mutated


def altered(path, statement: str) -> None:
    with closing(sqlite3.connect(path / opening.DATABASE, isolation_level=None)) as connection:
        connection.execute(statement)


def test_opened_again_with_the_same_and_with_nothing(path):
    for args, options in [
        ((), {}),
        ((SPARSE,), {}),
        ((SPARSE,), {"metadata": {"a": 1}}),
        ((), {"refine": None, "document_active": 4}),
    ]:
        with posh.Collection(path, *args, **options) as collection:
            assert collection.search(DATA[3], 1).ids.tolist() == [[3]]
            assert collection.metadata == {"a": 1}


def test_odd_names_and_a_process_that_goes_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with posh.Collection("a #folder? 100% é", SPARSE) as collection:
        collection.upsert([1], DATA[:1], [{"a": 1}])
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        iterators = [collection.items() for _ in range(3)]
        assert [next(items).id for items in iterators] == [1, 1, 1]  # each by a connection of its own
        collection.compact()
    assert (tmp_path / "a #folder? 100% é" / opening.DATABASE).exists()


def test_what_differs_is_refused_and_changes_nothing(path):
    with pytest.raises(
        ValueError, match="expected the hasher that this collection has, got another FruitFly"
    ):
        posh.Collection(path, OTHER)
    with pytest.raises(
        ValueError, match=r"expected the options that this collection has, \{\}, got \{'refine'"
    ):
        posh.Collection(path, refine="decoder")
    with pytest.raises(ValueError, match=r"expected the metadata that this collection has, got \{'b': 2\}"):
        posh.Collection(path, metadata={"b": 2})
    with posh.Collection(path) as collection:
        assert collection.hasher.encode(DATA) == SPARSE.encode(DATA)
        assert collection.metadata == {"a": 1}


def test_nonsense_is_refused_before_a_folder_is_made(tmp_path):
    for args, options, error, message in [
        ((posh.POSH(),), {}, NotFittedError, "not fitted"),
        (("POSH",), {}, TypeError, "expected a hasher"),
        ((), {"colour": "red"}, TypeError, "expected options among metric, .*structure, .*, got 'colour'"),
        ((SPARSE,), {"refine": "magic"}, ValueError, "refine to be one of"),
        ((DENSE,), {"structure": "ivf"}, ValueError, "needs sparse codes"),
        ((), {"metadata": {1: 2}}, ValueError, "fields of metadata to be strings"),
    ]:
        with pytest.raises(error, match=message):
            posh.Collection(tmp_path / "new", *args, **options)
    assert not (tmp_path / "new").exists()


def test_a_hasher_for_a_collection_that_has_none(tmp_path):
    with posh.Collection(tmp_path, refine="vectors") as collection:
        collection.upsert(range(50), DATA[:50])
        assert repr(collection) == f"Collection('{tmp_path}', 50 items, no hasher)"
    with pytest.raises(ValueError, match="expected a hasher of vectors with 8 columns"):
        posh.Collection(tmp_path, posh.LSH(4).fit(DATA[:, :3]))
    with pytest.raises(ValueError, match="expected the options that this collection has"):
        posh.Collection(tmp_path, refine="cosine")
    with posh.Collection(tmp_path, SPARSE) as collection:
        assert collection.search(DATA[7], 1).ids.tolist() == [[7]]
        assert collection.search(DATA[7], 1).kind == "euclidean"
        assert repr(collection) == f"Collection('{tmp_path}', 50 items, POSH)"
    assert repr(collection) == f"Collection('{tmp_path}', closed)"


def test_options_stay_until_they_are_given_anew(tmp_path):
    with posh.Collection(tmp_path, SPARSE, refine="vectors", oversample=5.0) as collection:
        collection.upsert(range(100), DATA[:100])
        wide = collection.search(DATA[100:130], 10).ids
        assert (collection.search(DATA[100:130], 10, oversample=1.0).ids != wide).any()
        collection.reindex(SPARSE, refine="cosine")
        assert collection.search(DATA[0], 1).kind == "cosine"
    with posh.Collection(tmp_path) as collection:
        assert collection.search(DATA[0], 1).kind == "cosine"
        assert (
            collection.reindex(SPARSE, refine="vectors").search(DATA[100:130], 10).ids.tolist()
            == wide.tolist()
        )


def test_folders_that_hold_something_else(tmp_path, path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="expected an empty folder or a collection, found other files"):
        posh.Collection(tmp_path)
    with pytest.raises(NotADirectoryError, match="expected a folder, got a file"):
        posh.Collection(tmp_path / "thesis.txt")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["shop", "thesis.txt"]
    (path / opening.DATABASE).rename(tmp_path / "elsewhere")
    (path / f"snapshot-{'1' * 32}").mkdir()
    with pytest.raises(posh.FormatError, match=r"expected collection.sqlite3 next to the other files"):
        posh.Collection(path)


def test_databases_of_another_kind_or_time(path):
    altered(path, "PRAGMA user_version = 6")
    with pytest.raises(posh.FormatError, match="expected format version 5 or older, found 6: upgrade"):
        posh.Collection(path)
    altered(path, "PRAGMA application_id = 7")
    with pytest.raises(posh.FormatError, match="expected a POSH collection, found another database"):
        posh.Collection(path)
    (path / opening.DATABASE).write_bytes(b"not a database at all" * 1000)
    with pytest.raises(posh.FormatError, match="the database is damaged"):
        posh.Collection(path)
    (path / opening.DATABASE).write_bytes(b"")  # not taken for a new one
    with pytest.raises(posh.FormatError, match="expected a POSH collection"):
        posh.Collection(path)


def test_what_an_interrupted_creation_leaves_behind(tmp_path):
    (tmp_path / "lock").write_text("17\n")
    (tmp_path / f"{opening.DATABASE}.new").write_bytes(b"half")
    (tmp_path / f"{opening.DATABASE}.new-journal").write_bytes(b"a journal")
    with posh.Collection(tmp_path, SPARSE) as collection:
        collection.upsert([1], DATA[:1])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [opening.DATABASE, "lock"]


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM codes WHERE seq = 3",
        "INSERT INTO codes SELECT generation, 99, code, sum FROM codes WHERE seq = 3",
        "UPDATE codes SET code = x'0102' WHERE seq = 3",
        "UPDATE codes SET code = x'FFFFFFFFFFFFFFFF' WHERE seq = 3",
        "UPDATE codes SET code = 'text' WHERE seq = 3",
        "DELETE FROM generations",
        "UPDATE generations SET hasher = x'00'",
        "UPDATE meta SET value = 'x' WHERE key = 'options'",
        "UPDATE meta SET value = '{\"structure\": \"ivf\"}' WHERE key = 'options'",
        "UPDATE meta SET value = 'x' WHERE key = 'version'",
        "DELETE FROM meta WHERE key = 'options'",
        "UPDATE meta SET value = '[1' WHERE key = 'metadata'",
        "DROP TABLE fields",
        "DROP INDEX ids",
    ],
)
def test_damage_that_opening_notices(path, damage):
    altered(path, damage)
    with pytest.raises(posh.FormatError), posh.Collection(path) as collection:
        collection.count({"n": 1})


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE items SET vector = x'0102' WHERE id = 3",
        "UPDATE items SET payload = '{' WHERE id = 3",
        "UPDATE items SET payload = '3' WHERE id = 3",
        "UPDATE items SET payload = CAST(x'7B22FF227D' AS TEXT) WHERE id = 3",
        "UPDATE items SET vector = 1.5 WHERE id = 3",
    ],
)
def test_damage_of_an_item(path, damage):
    altered(path, damage)
    with posh.Collection(path) as collection:
        with pytest.raises(
            posh.FormatError, match=r"the database is damaged .*: restore the folder from a copy"
        ):
            collection.get([3])
        with pytest.raises(posh.FormatError):
            list(collection.items())
        assert collection.get([4])[0].payload == {"n": 4, "even": True}
        assert collection.search(DATA[4], 1).ids.tolist() == [[4]]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # damaged numbers may overflow
def test_mutated_databases_do_not_crash(path):
    """Whatever is noticed is named; ``tests/adversary/test_flips.py`` looks at answers, too."""
    file = path / opening.DATABASE
    content = file.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(N // 20):
        file.write_bytes(mutated(content, rng))
        try:
            with posh.Collection(path) as collection:
                collection.search(DATA[:3], 4, filter={"n": {"gt": 2}})
                list(collection.items())
                collection.upsert([3, 77], DATA[:2], [{"n": 3}, {}])
                collection.compact()
        except (posh.FormatError, posh.StorageError):
            refused += 1
        for entry in path.iterdir():
            if entry.is_file() and entry.name.startswith(opening.DATABASE):
                entry.unlink()
    assert refused > 0


def test_a_hasher_of_ones_own(tmp_path):
    class Own(posh.SparseHasher):
        def __init__(self, n_bits=16, n_active=2, *, random_state=None):
            self.n_bits, self.n_active, self.random_state = n_bits, n_active, random_state

        def _learn(self, Z, rng):
            return rng.standard_normal((self.n_bits, Z.shape[1]), np.float32), []

    with posh.Collection(tmp_path, Own(random_state=0).fit(DATA)) as collection:
        collection.upsert(range(20), DATA[:20])
    with posh.Collection(tmp_path) as collection:
        assert collection.search(DATA[3], 1).scores.tolist() == [[2.0]]
    del posh.hashers.base._CLASSES["Own"]
    with pytest.raises(posh.FormatError, match="found Own: import the module that defines it first"):
        posh.Collection(tmp_path)


# Folders of others -----------------------------------------------------------------------------------


def write_files(folder, *names: str) -> set[str]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("snapshot-2024", ["photo.jpg"]),
        ("snapshot-", ["photo.jpg"]),
        (f"snapshot-{'A' * 32}", [f"posh-data-{'0' * 32}/ids.npy"]),
        (f"snapshot-{'a' * 33}", [f"posh-data-{'0' * 32}/ids.npy"]),
        (f"snapshot-{'a' * 32}", ["photo.jpg"]),
        (f"snapshot-{'a' * 32}", ["manifest.json"]),
        (f"snapshot-{'a' * 32}", ["manifest.json", "photo.jpg"]),
        (f"snapshot-{'a' * 32}", [f"data-{'0' * 32}/ids.npy"]),
    ],
)
def test_folders_of_others_stay(path, name, files):
    expected = write_files(path / name, *files)
    with posh.Collection(path) as collection:
        collection.delete([3])
        collection.compact()
    assert write_files(path / name) == expected


def test_a_file_and_a_link_with_the_name_of_a_saved_index_stay(path, tmp_path):
    kept = write_files(tmp_path / "kept", f"posh-data-{'0' * 32}/ids.npy")
    (path / f"snapshot-{'a' * 32}").write_text("mine")
    (path / f"snapshot-{'b' * 32}").symlink_to(tmp_path / "kept")
    with posh.Collection(path) as collection:
        collection.compact()
    assert (path / f"snapshot-{'a' * 32}").read_text() == "mine"
    assert (path / f"snapshot-{'b' * 32}").is_symlink()
    assert write_files(tmp_path / "kept") == kept


@pytest.mark.parametrize(
    "files",
    [
        [],
        [".posh-lock"],
        [".posh-lock", f"posh-data-{'0' * 32}/ids.npy"],
        [".posh-lock", f"posh-data-{'0' * 32}/ids.npy", f".manifest.json.{'1' * 32}"],
        [".posh-lock", f"posh-data-{'0' * 32}/ids.npy", "manifest.json"],  # a damaged one
    ],
)
def test_interrupted_and_damaged_saves_are_removed(path, files):
    folder = path / f"snapshot-{'a' * 32}"
    folder.mkdir()
    write_files(folder, *files)
    posh.Collection(path).close()
    assert not folder.exists()


def test_files_of_others_in_a_saved_index_stay(path):
    folder = path / f"snapshot-{'a' * 32}"
    posh.CodeIndex(SPARSE).add(DATA[:5]).save(folder)
    write_files(folder, "notes.txt")
    posh.Collection(path).close()
    assert {file.name for file in folder.iterdir()} == {"notes.txt", ".posh-lock"}
