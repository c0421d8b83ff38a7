"""Ids that are strings: an index with them equals one with numbers, whatever happens to both."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import tempfile
import threading
import uuid
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import posh
from posh.index.ids import IdColumn
from posh.index.nearest.options import NearestParams
from posh.index.open import load_index
from tests.conftest import CASES, clusters
from tests.index.test_files import rewritten

DATA = clusters(3000, 8).astype(np.float32)
QUERIES = clusters(5, 8, seed=1).astype(np.float32)
SPARSE = posh.POSH(32, 4, n_epochs=1, random_state=0).fit(DATA)
DENSE = posh.LSH(12, random_state=0).fit(DATA)
KINDS = {
    "overlap": lambda: posh.CodeIndex(SPARSE),
    "dense": lambda: posh.CodeIndex(DENSE, refine="vectors"),
    "metric": lambda: posh.Index(metric="cosine", n_lists=4),
}
WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda index: pickle.loads(pickle.dumps(index)),
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
IDS = st.lists(TEXT | st.integers(0, 60) | st.uuids(), min_size=1, max_size=20, unique_by=lambda i: plain(i))


def plain(value):
    return str(value) if isinstance(value, uuid.UUID) else value


class Operations(RuleBasedStateMachine):
    """Beside the index there is a twin whose ids are numbers, and a dictionary from ids to these."""

    @initialize(kind=st.sampled_from(sorted(KINDS)))
    def begin(self, kind):
        self.index, self.twin = KINDS[kind](), KINDS[kind]()
        self.numbers: dict[int | str, int] = {}  # in order of addition
        self.next_id, self.has_strings = 0, False

    def remember(self, ids):
        numbers = self.twin.ids[len(self.twin) - len(ids) :].tolist()
        self.numbers |= dict(zip(ids, numbers, strict=True))
        self.next_id = max([self.next_id, *(i + 1 for i in ids if isinstance(i, int))])
        self.has_strings |= any(isinstance(i, str) for i in ids)

    @rule(start=st.integers(0, 2000), ids=IDS)
    def add(self, start, ids):
        ids = [i for i in ids if plain(i) not in self.numbers]
        X = DATA[start : start + len(ids)]
        self.index.add(X, ids)
        self.twin.add(X)
        self.remember([plain(i) for i in ids])

    @rule(start=st.integers(0, 2000), n=st.integers(0, 5))
    def add_with_automatic_ids(self, start, n):
        self.index.add(DATA[start : start + n])
        self.twin.add(DATA[start : start + n])
        self.remember(list(range(self.next_id, self.next_id + n)))

    @rule(data=st.data())
    def delete(self, data):
        ids = self.some(data)
        self.index.delete(ids)
        self.twin.delete([self.numbers.pop(i) for i in ids])

    @rule(data=st.data(), start=st.integers(0, 2000))
    def update(self, data, start):
        ids = self.some(data)
        X = DATA[start : start + len(ids)]
        self.index.update(X, ids)
        self.twin.update(X, [self.numbers[i] for i in ids])
        self.numbers |= {i: self.numbers.pop(i) for i in ids}

    def some(self, data):
        assume(self.numbers)
        return data.draw(st.lists(st.sampled_from([*self.numbers]), max_size=10, unique=True))

    @rule()
    def compact(self):
        self.index.compact()
        self.twin.compact()

    @rule(mmap=st.booleans())
    def save_and_load(self, mmap):
        assume(self.numbers)
        with tempfile.TemporaryDirectory() as folder:
            self.index.save(folder)
            self.index = load_index(folder, mmap=mmap)
            assert set(self.index.search(QUERIES, 3).ids.ravel().tolist()) <= {*self.numbers, None, -1}
            if mmap:  # the folder does not stay
                self.index = copy.deepcopy(load_index(folder))

    @rule(way=st.sampled_from(sorted(WAYS)))
    def copy(self, way):
        self.index = WAYS[way](self.index)

    @rule(k=st.integers(1, 30))
    def search(self, k):
        self.same(self.index.search(QUERIES, k), self.twin.search(QUERIES, k))

    @rule(k=st.integers(1, 30), data=st.data())
    def search_with_filter(self, k, data):
        ids = self.some(data)
        assume(ids)
        wanted = np.array([self.numbers[i] for i in ids])
        wanted_ids = [*ids, "absent id", ids[0]] if self.has_strings else ids
        hits = self.index.search(QUERIES, k, filter=wanted_ids)
        self.same(hits, self.twin.search(QUERIES, k, filter=wanted))

    def same(self, hits, expected):
        by_number = {number: i for i, number in self.numbers.items()} | {-1: None if self.has_strings else -1}
        assert hits.ids.dtype == (object if self.has_strings else np.int64)
        assert hits.ids.tolist() == [[by_number[number] for number in row] for row in expected.ids.tolist()]
        np.testing.assert_array_equal(hits.scores, expected.scores)
        np.testing.assert_array_equal(hits.is_hit, expected.is_hit)

    @invariant()
    def agrees_on_what_is_in_it(self):
        if hasattr(self, "index"):
            assert len(self.index) == len(self.numbers)
            assert self.index.ids.tolist() == [*self.numbers]
            assert self.index.ids.dtype == (object if self.has_strings else np.int64)
            assert all(type(value) in (int, str) for value in self.index.ids.tolist())
            assert all(value in self.index for value in self.numbers)


TestOperations = Operations.TestCase
TestOperations.settings = settings(
    max_examples=CASES, stateful_step_count=15, deadline=None, derandomize=True
)


def test_a_direct_search_gives_strings(tmp_path):
    names = np.array([f"row {i}" for i in range(len(DATA))])
    options = {"metric": "euclidean", "n_lists": 4, "recall": 0.9}
    numbers, strings = posh.Index(**options).add(DATA), posh.Index(**options).add(DATA, names)
    expected = numbers.search(QUERIES, 7)
    wanted = names[expected.ids].tolist()
    assert strings.snapshot()._id_searches.search(QUERIES, NearestParams(k=7)) is not None
    assert strings.search(QUERIES, 7).ids.tolist() == wanted
    assert strings.snapshot().search(QUERIES, k=7).ids.tolist() == wanted
    some = strings.search(QUERIES, 7, min_score=float(expected.scores[0, 2]))
    assert some.ids[0].tolist() == [*wanted[0][:3], *[None] * 4]
    strings.save(tmp_path / "index")
    assert posh.open(tmp_path / "index").search(QUERIES, 7).ids.tolist() == wanted


def test_numbers_stay_numbers():
    """Without a string, nothing becomes an object: not the ids, and not the files."""
    index = posh.CodeIndex(SPARSE).add(DATA[:3], np.array([5, 7, 6], object)).add(DATA[3:5])
    assert index.ids.dtype == np.int64
    assert index.ids.tolist() == [5, 7, 6, 8, 9]
    column = index.snapshot().id_column
    assert sorted(column.to_arrays(index.snapshot().live)) == ["ids", "next_id"]


def test_uuids_are_their_strings():
    one, two = uuid.UUID(int=1), uuid.UUID(int=2)
    index = posh.CodeIndex(SPARSE).add(DATA[:2], [one, two])
    assert index.ids.tolist() == [str(one), str(two)]
    assert one in index
    assert str(one) in index
    assert index.search(DATA[:1], 5, filter=[two]).ids.tolist() == [[str(two), None, None, None, None]]
    assert one not in index.update(DATA[5:6], [two]).delete([one])


def test_an_index_that_lost_its_documents_still_has_objects(tmp_path):
    index = posh.CodeIndex(SPARSE).add(DATA[:2], ["a", 7]).delete(["a", 7])
    for _ in range(2):
        hits = index.search(QUERIES, 2)
        assert hits.ids.tolist() == [[None, None]] * len(QUERIES)
        assert hits[0] == []
        index.compact().save(tmp_path / "index")
        index = load_index(tmp_path / "index")
    assert index.add(DATA[:1]).ids.tolist() == [8]


def test_memory_of_strings_is_counted():
    few, many = ([character * n for character in "ab"] for n in (1, 500))
    used = [posh.CodeIndex(SPARSE).add(DATA[:2], ids).memory_usage() for ids in (few, many)]
    assert used[1]["ids"] - used[0]["ids"] == 2 * 499
    assert used[1]["total"] - used[0]["total"] == 2 * 499


# Wrong input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda i: i.add(DATA[:2], ["x", "x"]), ValueError, "expected distinct ids, got 'x' more than once"),
        (
            lambda i: i.add(DATA[:2], ["x", "a"]),
            ValueError,
            "expected new ids, got 'a', which is in the index",
        ),
        (lambda i: i.add(DATA[:2], ["x"]), ValueError, r"expected as many ids as vectors \(2\), got 1"),
        (lambda i: i.add(DATA[:1], [""]), ValueError, "expected ids of 1 to 512 characters, got 0"),
        (lambda i: i.add(DATA[:1], ["x" * 513]), ValueError, "expected ids of 1 to 512 characters, got 513"),
        (lambda i: i.add(DATA[:1], ["\ud800"]), ValueError, "expected an id to be valid Unicode"),
        (lambda i: i.add(DATA[:1], "x"), ValueError, "expected ids as a list or an array of int or str"),
        (lambda i: i.add(DATA[:1], [b"x"]), ValueError, "expected ids to be int or str, got b'x'"),
        (lambda i: i.add(DATA[:2], ["x", None]), ValueError, "expected ids to be int or str, got None"),
        (lambda i: i.add(DATA[:2], ["x", True]), ValueError, "expected ids to be int or str, got True"),
        (
            lambda i: i.add(DATA[:2], ["x", -3]),
            ValueError,
            r"expected ids in 0 \.\. 2\^63 - 1 or strings, got -3",
        ),
        (lambda i: i.add(DATA[:2], ["x", 2**63]), ValueError, "an integer of at most 64 bits"),
        (
            lambda i: i.add(DATA[:1], [1.5]),
            ValueError,
            "expected ids to be int or str, got 1.5 of type float",
        ),
        (lambda i: i.add(DATA[:1], [["x"]]), ValueError, "expected ids to be int or str"),
        (lambda i: i.add(DATA[:1], [[1]]), ValueError, r"1-D integer array, got int64 \(1, 1\)"),
        (lambda i: i.delete(["a", "x"]), KeyError, "expected ids of the index, got 'x', which is not in it"),
        (lambda i: i.update(DATA[:1], ["1"]), KeyError, "expected ids of the index, got '1'"),
        (lambda i: i.search(DATA[:1], filter=np.ones(9, bool)), ValueError, r"got a boolean mask \(9,\)"),
        (lambda i: i.search(DATA[:1], filter=[True]), ValueError, "expected ids to be int or str, got True"),
        (lambda i: i.search(DATA[:1], filter="a"), ValueError, "expected ids as a list or an array"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(call, error, message):
    index = posh.CodeIndex(SPARSE).add(DATA[:3], ["a", "b", 1])
    with pytest.raises(error, match=message):
        call(index)
    assert index.ids.tolist() == ["a", "b", 1]
    assert index.add(DATA[:1]).ids.tolist() == ["a", "b", 1, 2]


def test_strings_are_refused_where_an_index_has_none():
    index = posh.CodeIndex(SPARSE).add(DATA[:3])
    with pytest.raises(ValueError, match="a boolean mask by id or a 1-D array of ids"):
        index.search(DATA[:1], filter=["a"])
    with pytest.raises(KeyError, match="got 'a', which is not in it"):
        index.delete(["a"])
    assert "a" not in index
    assert index.ids.dtype == np.int64


# Files ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """An index with the ids "a", 7, "äö" and "end", of which the second was deleted."""
    folder = tmp_path_factory.mktemp("strings") / "index"
    posh.CodeIndex(SPARSE).add(DATA[:4], ["a", 7, "äö", "end"]).delete([7]).save(folder)
    return folder


def test_files_say_what_the_table_says(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    assert (manifest["version"], manifest["kind"]) == (3, "codes")
    ids, text = (np.load(saved / manifest["data"] / name) for name in ("ids.npy", "id_text.npy"))
    assert ids.tolist() == [[-1, 1], [0, 1], [-1, 5], [-1, 8]]  # a deleted id is 0
    assert text.tobytes().decode() == "aäöend"


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("ids", np.array([7, -1, 3, 4])),  # a string without its text
        ("ids", np.array([[-1, 1], [7, 1], [-1, 4], [-1, 8]])),  # cuts a character in two
        ("ids", np.array([[-1, 5], [7, 5], [-1, 1], [-1, 8]])),
        ("ids", np.array([[-1, 1], [7, 1], [-1, 5], [-1, 9]])),
        ("ids", np.array([[-1, 1], [7, 1], [-1, 5], [-1, 7]])),
        ("ids", np.array([[-1, 1], [7, 1], [3, 5], [-1, 8]])),  # a number with a text
        ("ids", np.array([[-1, 1], [-1, 1], [-1, 5], [-1, 8]])),  # an empty string
        ("ids", np.array([[-2, 1], [7, 1], [-1, 5], [-1, 8]])),
        ("ids", np.array([[-1, -1], [7, -1], [-1, 5], [-1, 8]])),
        ("ids", np.array([[-1, 1], [7, 1], [-1, 8]])),
        ("ids", np.array([[-1, 1, 0], [7, 1, 0], [-1, 5, 0], [-1, 8, 0]])),
        ("ids", np.array([[-1, 1], [7, 1], [-1, 5], [-1, 8]], np.int32)),
        ("id_text", np.frombuffer("aäöen".encode(), np.uint8)),
        ("id_text", np.frombuffer(b"a\xff\xff\xff\xffend", np.uint8)),
        ("id_text", np.frombuffer(b"aendxend", np.uint8).astype(np.int8)),
        ("id_text", np.zeros((8, 1), np.uint8)),
    ],
)
def test_arrays_that_do_not_fit(saved, tmp_path, name, array, mmap):
    shutil.copytree(saved, tmp_path / "index")
    rewritten(tmp_path / "index", name, array)
    with pytest.raises(posh.FormatError):
        load_index(tmp_path / "index", mmap=mmap)


@pytest.mark.parametrize("text", ["b" * 8, "c" * 513 + "d" * 7], ids=["twice", "long"])
def test_ids_that_no_index_has(saved, tmp_path, text):
    shutil.copytree(saved, tmp_path / "index")
    end = len(text)
    rewritten(tmp_path / "index", "ids", np.array([[-1, end - 7], [7, end - 7], [-1, end - 6], [-1, end]]))
    rewritten(tmp_path / "index", "id_text", np.frombuffer(text.encode(), np.uint8))
    with pytest.raises(posh.FormatError, match="found one more than once" if end == 8 else "found 513"):
        load_index(tmp_path / "index")


@settings(max_examples=5 * CASES, deadline=None, derandomize=True)
@given(
    ids=st.lists(TEXT | st.integers(0, 2**63 - 1), max_size=6, unique=True),
    place=st.integers(0, 30),
    value=st.integers(0, 255) | st.integers(-(2**63), 2**63 - 1),
    cut=st.integers(0, 2),
)
def test_any_arrays_are_ids_or_an_error(ids, place, value, cut):
    column = IdColumn.of(np.empty(0, np.int64)).with_ids(np.array([*ids, "x"], object))
    arrays = column.to_arrays(np.ones(len(column), bool))
    assert IdColumn.from_arrays(arrays).rows.rows.tolist() == [*ids, "x"]
    name = "ids" if place % 2 else "id_text"
    changed = arrays[name].copy()
    changed.flat[place % changed.size] = value if name == "ids" else value % 256
    try:
        found = IdColumn.from_arrays(arrays | {name: changed[: len(changed) - cut]}).rows.rows
    except ValueError:
        return
    assert len(found) == len(ids) + 1 - (cut if name == "ids" else 0)
    for one in found.tolist():
        assert 1 <= len(one) <= 512 if isinstance(one, str) else one >= 0


# Threads -------------------------------------------------------------------------------------------


def test_every_id_belongs_to_its_vector_while_others_write():
    """Also when the first string makes objects of all ids, and when slots are renumbered."""
    index = posh.Index(metric="cosine", n_lists=4).add(DATA[:500])
    units = DATA / np.linalg.norm(DATA, axis=1, keepdims=True)
    stop, failures = threading.Event(), []

    def ask(seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not stop.is_set():
            row = int(rng.integers(0, len(DATA)))
            hits = index.search(DATA[row], 10)[0]
            rows = [hit.id if isinstance(hit.id, int) else int(hit.id.removeprefix("row ")) for hit in hits]
            if not np.allclose(units[rows] @ units[row], [hit.score for hit in hits], atol=1e-4):
                failures.append(hits)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for step in range(20):
        rows = range(500 + 100 * step, 600 + 100 * step)
        index.add(DATA[rows.start : rows.stop], [f"row {i}" if step else i for i in rows])
        if step > 2:
            index.delete([f"row {i}" for i in rows[::2]]).compact()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert len(index) == 500 + 300 + 17 * 50
