"""The embedded collection against the plain one, through any sequence of operations.

Small limits make every way of keeping and building an index come up: saved indexes, blocks, compaction.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import posh
from posh.collection import indexing, masks, snapshot, store
from tests.collection import strategies
from tests.collection.implementations import DATA, DENSE, OTHER, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.conftest import CASES

IDS = [*range(-3, 12), *"abc", "1", "é\x00", "0"]
HASHERS = [SPARSE, OTHER, DENSE]
LIMITS = [(indexing, "WORTH", 4), (indexing, "BLOCK", 5), (masks, "FEW", 2), (snapshot, "_SPARE", 3)]
LIMITS += [(store, "_READ_TOGETHER", 2), (store, "_PART_BYTES", 100)]

some_ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=8, unique=True)
filters = st.one_of(st.none(), strategies.filters)


class Operations(RuleBasedStateMachine):
    """Every answer of the collection is that of the plain one, ties included, also after it was reopened."""

    def __init__(self):
        super().__init__()
        self.cleanup = ExitStack()
        for module, name, value in LIMITS:
            self.cleanup.enter_context(mock.patch.object(module, name, value))
        self.path = Path(self.cleanup.enter_context(tempfile.TemporaryDirectory())) / "collection"

    @initialize(
        hasher=st.sampled_from([*HASHERS, None]),
        kernel=st.sampled_from(posh.kernels.available()),
        n=st.integers(0, 60),
    )
    def begin(self, hasher, kernel, n):
        posh.kernels.use(kernel)
        self.collection, self.plain = posh.Collection(self.path, hasher), ReferenceCollection(hasher)
        self.upsert_many(n)

    @property
    def both(self):
        return self.collection, self.plain

    @rule(ids=some_ids, start=st.integers(0, 30), data=st.data())
    def upsert(self, ids, start, data):
        payloads = data.draw(st.lists(strategies.payloads, min_size=len(ids), max_size=len(ids)))
        for one in self.both:
            one.upsert(ids, DATA[start : start + len(ids)], payloads)  # vectors come again: ties

    @rule(n=st.integers(10, 60))
    def upsert_many(self, n):
        for one in self.both:
            payloads = [{"a": i % 4, "b": str(i)} for i in range(n)]
            one.upsert([f"many {i}" for i in range(n)], DATA[:n], payloads)

    @rule(ids=some_ids)
    def delete(self, ids):
        assert self.collection.delete(ids) == self.plain.delete(ids)

    @rule(filter_=filters)
    def delete_what_passes(self, filter_):
        n = self.collection.count(filter_)
        for one in self.both:
            assert one.delete(filter=filter_ or {}) == n

    @rule(ids=some_ids, replace=st.booleans(), data=st.data())
    def update_payload(self, ids, replace, data):
        ids = [number for number in ids if number in self.plain]
        payloads = data.draw(st.lists(strategies.payloads, min_size=len(ids), max_size=len(ids)))
        for one in self.both:
            one.update_payload(ids, payloads, replace=replace)

    @rule(
        filter_=filters,
        ids=st.lists(st.sampled_from(IDS), max_size=5),
        limit=st.one_of(st.none(), st.integers(0, 5)),
        start=st.integers(0, 100),
        k=st.integers(1, 70),
    )
    def ask(self, filter_, ids, limit, start, k):
        for found, expected in zip(self.collection.get(ids), self.plain.get(ids), strict=True):
            same_item(found, expected)
        assert self.collection.count(filter_) == self.plain.count(filter_)
        after = next((number for number in ids if number in self.plain), None)
        found = self.collection.items(filter_, limit=limit, after=after)
        expected = self.plain.items(filter_, limit=limit, after=after)
        for one, other in zip(found, expected, strict=True):
            same_item(one, other)
        if self.plain.hasher is not None:
            same_hits(*(one.search(DATA[start : start + 3], k, filter=filter_) for one in self.both))

    @rule(hasher=st.sampled_from(HASHERS))
    def reindex(self, hasher):
        self.collection.reindex(hasher)
        self.plain.reindex(hasher)

    @rule(n_bits=st.integers(8, 40))
    def fit(self, n_bits):
        if len(self.plain) > 1:
            for one in self.both:
                one.fit(posh.FruitFly(n_bits, 3, random_state=0))

    @rule()
    def compact(self):
        self.collection.compact()

    @rule(metadata=strategies.payloads)
    def set_metadata(self, metadata):
        self.collection.set_metadata(metadata)
        self.plain.set_metadata(metadata)

    @rule(
        how=st.sampled_from(["as it is", "as it is", "without a saved index", "with a damaged one"]),
        seed=st.integers(0, 99),
    )
    def reopen(self, how, seed):
        self.collection.close()
        for folder in self.path.glob("snapshot-*"):
            if how == "without a saved index":
                shutil.rmtree(folder)
            elif how == "with a damaged one":
                damage(folder, np.random.default_rng(seed))
        self.collection = posh.Collection(self.path)

    @invariant()
    def agrees_on_what_is_in_it(self):
        if hasattr(self, "collection"):
            assert len(self.collection) == len(self.plain)
            assert self.collection.metadata == self.plain.metadata
            assert self.collection.n_features == self.plain.n_features

    def teardown(self):
        posh.kernels.use(None)
        if hasattr(self, "collection"):
            self.collection.close()
        self.cleanup.close()


def same_item(found, expected) -> None:
    assert (found is None) == (expected is None)
    if found is not None:
        assert (type(found.id), found.id, found.payload) == (type(expected.id), expected.id, expected.payload)
        np.testing.assert_array_equal(found.vector, expected.vector)


def same_hits(found, expected) -> None:
    assert found.ids.tolist() == expected.ids.tolist()
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert found.kind == expected.kind


def damage(folder: Path, rng: np.random.Generator) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    file = files[rng.integers(len(files))]
    content = bytearray(file.read_bytes())
    content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
    file.write_bytes(content)


TestOperations = Operations.TestCase
TestOperations.settings = settings(
    max_examples=CASES // 2, stateful_step_count=20, deadline=None, derandomize=True
)
