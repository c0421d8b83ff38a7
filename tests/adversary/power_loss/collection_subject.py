"""Collections: every kind of write, in a folder whose parents are new too."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import posh
from posh.collection import database, indexing, snapshot, text_index
from posh.collection.opening import DATABASE
from tests.adversary.power_loss import model_subject
from tests.adversary.power_loss.recording import acknowledge
from tests.adversary.power_loss.subjects import Subject
from tests.collection.reference import ReferenceCollection
from tests.conftest import clusters

FOLDER = Path("a", "b", "c")
DATA = clusters(300, 8).astype("float32")
QUERIES = DATA[::60]
FIRST = posh.FruitFly(48, 6, random_state=0).fit(DATA)
OTHER = posh.FruitFly(32, 4, random_state=1).fit(DATA)
METADATA = {"made": "first"}

Step = tuple[str, Any]
FIRST_STEPS = ["upsert", "metadata", "upsert", "delete", "reopen", "upsert", "reindex", "delete", "compact"]
FIRST_STEPS += ["upsert", "fit", "upsert", "reopen", "compact", "delete", "reindex", "upsert"]


def script() -> Iterator[Step]:
    """Steps without end, after that which makes the collection: first one of each kind, then at random."""
    rng = np.random.default_rng(0)
    chances = {"upsert": 0.5, "delete": 0.2, "metadata": 0.05, "reindex": 0.1, "compact": 0.1, "reopen": 0.05}
    kinds = iter(FIRST_STEPS)
    while True:
        kind = next(kinds, None) or str(rng.choice(list(chances), p=list(chances.values())))
        n = int(rng.choice([1, 8, 40]))
        ids = [i if i % 3 else f"id {i}" for i in rng.permutation(90)[:n].tolist()]
        rows = rng.integers(len(DATA), size=n).tolist()
        yield kind, (ids, rows)


def done(collection: posh.BaseCollection, number: int, step: Step) -> posh.BaseCollection:
    """Do a step, to any collection; gives the collection to go on with."""
    match step:
        case "upsert", (ids, rows):
            payloads = [
                {"row": row, "step": number, "odd": row % 2 == 1, "words": f"step{number} row{row} common"}
                for row in rows
            ]
            collection.upsert(ids, DATA[rows], payloads)
        case "delete", (ids, _):
            collection.delete(ids)
        case "metadata", _:
            collection.set_metadata({"step": number})
        case "reindex", _:
            collection.reindex([FIRST, OTHER][number % 2])
        case "fit", _:
            collection.fit(posh.LSH(16, random_state=number))
        case "compact", _:
            collection.compact()
        case "reopen", _ if isinstance(collection, posh.Collection):
            collection.close()
            return posh.Collection(collection.path)
    return collection


def small_limits() -> None:
    """So that saved indexes, blocks, compaction and checkpoints come up in small collections."""
    indexing.WORTH, indexing.BLOCK, snapshot._SPARE = 60, 30, 30
    checkpoints = "PRAGMA wal_autocheckpoint = 25"
    database._PRAGMAS = (*(each for each in database._PRAGMAS if each != checkpoints), checkpoints)


def content(collection: posh.BaseCollection) -> list[Any]:
    """Everything that was written, in the order of writing."""
    items = [(item.id, item.vector.tobytes(), item.payload) for item in collection.items()]
    hasher = None if collection.hasher is None else model_subject.content(collection.hasher)
    return [items, collection.metadata, hasher]


def answers(search: Callable[..., Any]) -> list[Any]:
    found = [search(QUERIES, 10, odd) for odd in (False, True)]
    return [(ids.tolist(), scores.tolist()) for ids, scores in found]


def fresh_answers(plain: posh.BaseCollection) -> list[Any]:
    """What a new index of the same items answers."""
    items = list(plain.items())
    index = posh.CodeIndex(plain.hasher)
    if items:
        index.add(np.array([item.vector for item in items]))
    names = np.array([*(item.id for item in items), None], object)  # the last one for -1
    odd_ones = [i for i, item in enumerate(items) if item.payload.get("odd")]

    def search(queries: np.ndarray, k: int, odd: bool) -> tuple[np.ndarray, np.ndarray]:
        ids, scores = index.search(queries, k, filter=np.array(odd_ones, np.int64) if odd else None)
        return names[ids], scores

    return answers(search)


class Collections(Subject):
    errors = posh.StorageError
    options: Mapping[str, Any] = {}

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.script = [("create", None), *islice(script(), n - 1)]

    @cached_property
    def _expected(self) -> list[tuple[list[Any], list[Any]]]:
        """The content and the answers after each step."""
        plain: posh.BaseCollection = ReferenceCollection(FIRST, metadata=METADATA)
        expected = [(content(plain), fresh_answers(plain))]
        for number in range(1, self.steps):
            plain = done(plain, number, self.script[number])
            expected.append((content(plain), fresh_answers(plain)))
        return expected

    def step(self, root: Path, number: int) -> None:
        small_limits()
        if number == 0:
            posh.Collection(root / FOLDER, FIRST, metadata=METADATA, **self.options).close()
            return
        with posh.Collection(root / FOLDER) as collection:
            done(collection, number, self.script[number]).close()

    def prepare(self, root: Path, number: int) -> None:
        """Leave the files as they are while the collection is open: with a log to recover from."""
        whole = root.with_name("whole")
        super().prepare(whole, number)
        with contextlib.ExitStack() as stack:
            if number:
                collection = stack.enter_context(posh.Collection(whole / FOLDER))
                collection.set_metadata(collection.metadata)
            shutil.copytree(whole, root)
        shutil.rmtree(whole)

    def go_on(self, root: Path, first: int) -> None:
        small_limits()
        collection: posh.BaseCollection = posh.Collection(root / FOLDER)
        for number in range(first, self.steps):
            collection = done(collection, number, self.script[number])
            acknowledge(number)
        collection.close()

    def judge(self, root: Path, acknowledged: int) -> None:
        path = root / FOLDER
        if acknowledged:
            assert path.exists(), "the folder of an acknowledged collection is gone"
            opened = posh.Collection(path)
        else:  # whoever was interrupted does the same once more
            opened = posh.Collection(path, FIRST, metadata=METADATA, **self.options)
        with opened as collection:
            self.require_content(collection, acknowledged)
            n_items = len(collection)
            collection.upsert(["one more"], DATA[:1])
        with posh.Collection(path) as collection:
            assert "one more" in collection, "the next write is gone"
            assert len(collection) == n_items + 1, "the next write is not alone"

    def require_content(self, collection: posh.Collection, acknowledged: int) -> None:
        """Raise unless a collection holds what was acknowledged, or that and the next step, and finds it."""
        allowed = self._expected[max(0, acknowledged - 1) : acknowledged + 1]
        found = content(collection)
        fitting = [fresh for written, fresh in allowed if written == found]
        assert fitting, _difference(allowed[0][0], found)
        searched = answers(
            lambda queries, k, odd: collection.search(queries, k, filter={"odd": True} if odd else None)
        )
        assert searched == fitting[0], "a fresh index answers otherwise"


class TextCollections(Collections):
    """The same with a text index, which must have the words of the items, and no others."""

    options = {"text": "words"}  # noqa: RUF012

    def require_content(self, collection: posh.Collection, acknowledged: int) -> None:
        super().require_content(collection, acknowledged)
        items = list(collection.items())
        for word in ("common", "row7", *(f"step{number}" for number in range(self.steps))):
            expected = {item.id for item in items if word in item.payload.get("words", "").split()}
            found = collection.search(text=word, k=max(1, len(items)))
            assert {hit.id for hit in found[0]} == expected, f"the text index answers otherwise for {word}"
        with contextlib.closing(
            sqlite3.connect(f"file:{collection.path / DATABASE}?mode=ro", uri=True)
        ) as reader:
            options = text_index.read_options(reader)
            assert options is not None
            assert text_index.check(reader, options)[1] is None, "the text index differs from the payloads"


def _difference(expected: list[Any], found: list[Any]) -> str:
    items, others = ({item[0]: item for item in content[0]} for content in (expected, found))
    lost = sum(item != others.get(name) for name, item in items.items())
    more = len(others.keys() - items.keys())
    parts = [name for name, i in [("metadata", 1), ("hasher", 2)] if expected[i] != found[i]]
    return (
        f"of what was acknowledged, {lost} items differ and {more} are new; other parts that differ: {parts}"
    )
