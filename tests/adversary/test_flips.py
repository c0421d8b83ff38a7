"""One flipped bit in a collection's database: noticed when it is read, harmless, or found by a check.

``POSH_ADVERSARY=1`` tries 1,500 flips instead of 300.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import posh
from posh.collection import opening
from posh.collection.maintenance import check_collection
from tests.collection.implementations import DATA, SPARSE

FLIPS = 1500 if os.environ.get("POSH_ADVERSARY") == "1" else 300


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A collection that is closed: items of several writes, some replaced and some removed."""
    path = tmp_path_factory.mktemp("flips") / "shop"
    with posh.Collection(path, SPARSE, metadata={"made": "for flips"}) as collection:
        payloads = [{"n": i, "odd": i % 2 == 1, "text": "x" * (i % 50), "list": [i]} for i in range(150)]
        collection.upsert([i if i % 3 else f"id {i}" for i in range(150)], DATA[:150], payloads)
        collection.upsert(range(1, 20, 3), DATA[200:207])
        collection.delete(["id 30", 31, 32])
    return path


def content(path: Path) -> list:
    """All that users can read."""
    with posh.Collection(path) as collection:
        filters = [None, {"odd": True}, {"n": {"gte": 20, "lt": 90}}, {"not": {"text": "x" * 7}}]
        found = [collection.search(DATA[::100], 9, filter=filter_) for filter_ in filters]
        items = [(item.id, item.vector.tolist(), item.payload) for item in collection.items()]
        got = [None if item is None else item.payload for item in collection.get([2, "id 3", "id 30"])]
        counts = [collection.count(filter_) for filter_ in filters]
        about = [collection.metadata, collection.index_options, collection.n_features, repr(collection)]
        return [[m.ids.tolist(), m.scores.tolist()] for m in found] + [items, got, counts, about]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # damaged numbers may overflow
def test_no_flipped_bit_changes_the_content_unnoticed(shop, tmp_path):
    expected = content(shop)
    assert check_collection(shop).problems == []
    original = (shop / opening.DATABASE).read_bytes()
    rng = np.random.default_rng(0)
    copy = tmp_path / "shop"
    outcome = {"noticed when read": 0, "harmless": 0, "found by the check only": 0}
    for _ in range(FLIPS):
        place, bit = int(rng.integers(len(original))), int(rng.integers(8))
        flipped = bytearray(original)
        flipped[place] ^= 1 << bit
        copy.mkdir()
        (copy / opening.DATABASE).write_bytes(flipped)
        problems = check_collection(copy).problems
        try:
            found = content(copy)[:-1]
        except posh.FormatError:
            outcome["noticed when read"] += 1
        else:
            assert found == expected[:-1] or problems, f"byte {place}, bit {bit}"
            outcome["harmless" if found == expected[:-1] else "found by the check only"] += 1
        shutil.rmtree(copy)
    print(outcome)
    assert outcome["noticed when read"] > 0
