"""What every collection promises, one suite for all implementations."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from posh.collection.base import Item
from tests.collection.implementations import DATA, DENSE, OTHER, SPARSE
from tests.collection.reference import ReferenceCollection


def labels(n: int) -> list[dict]:
    return [{"label": i % 3, "name": f"item {i}"} for i in range(n)]


def same_item(item: Item | None, number, vector, payload) -> None:
    assert item is not None
    assert (item.id, item.payload) == (number, payload)
    assert type(item.id) is type(number)
    assert item.vector.dtype == np.float32
    np.testing.assert_array_equal(item.vector, vector)


def test_what_is_written_is_there(make):
    collection = make()
    assert collection.count() == len(collection) == 0
    assert collection.upsert([1, "1", -5, "é\x00"], DATA[:4], labels(4)) is collection
    assert len(collection) == 4
    assert collection.n_features == 8
    for number, vector, payload in zip([1, "1", -5, "é\x00"], DATA, labels(4), strict=False):
        same_item(collection.get([number])[0], number, vector, payload)
    assert collection.get([2, "2"]) == [None, None]
    first, nothing, again = collection.get([1, 7, 1])
    assert nothing is None
    assert first.id == again.id == 1
    assert "1" in collection
    assert "nothing" not in collection


def test_replaced_items_are_new_ones(make):
    collection = make().upsert([1, 2, 3], DATA[:3], labels(3))
    collection.upsert([4, 1], DATA[4:6], [{"new": True}, {}])
    same_item(collection.get([1])[0], 1, DATA[5], {})
    assert [item.id for item in collection.items()] == [2, 3, 4, 1]


def test_deleting(make):
    collection = make().upsert([1, 2, "2"], DATA[:3])
    assert collection.delete(["2", 7, 1]) == 2
    assert [item.id for item in collection.items()] == [2]
    assert collection.delete([]) == collection.delete(["2"]) == 0


def test_payloads_are_copies_of_any_json(make):
    payload = {"deep": [{"x": [1, 2.5, None, True, "é\x00"]}], "": {}, "n": 2**63 - 1, "f": -0.0, "t": (1, 2)}
    collection = make().upsert([1], DATA[:1], [payload])
    payload["deep"].append("later")
    stored = {"deep": [{"x": [1, 2.5, None, True, "é\x00"]}], "": {}, "n": 2**63 - 1, "f": -0.0, "t": [1, 2]}
    found = collection.get([1])[0].payload
    assert found == stored
    assert str(found["f"]) == "-0.0"
    found["deep"].clear()
    assert collection.get([1])[0].payload == stored
    numpy_values = {"i": np.int64(3), "f": np.float32(0.5), "b": np.bool_(True)}
    collection.upsert([2], DATA[:1], [numpy_values])
    assert collection.get([2])[0].payload == {"i": 3, "f": 0.5, "b": True}


@pytest.mark.parametrize("hasher", [SPARSE, DENSE], ids=["sparse", "dense"])
def test_searches_equal_a_plain_count_of_bits(make, hasher):
    collection, plain = make(hasher), ReferenceCollection(hasher)
    for one in (collection, plain):
        one.upsert(list(range(500)), DATA[:500], labels(500))
        one.upsert([f"again {i}" for i in range(50)], DATA[:50])  # equal vectors: ties
        one.upsert(list(range(0, 500, 7)), DATA[100:172], labels(72))
        one.delete(list(range(0, 500, 5)))
    for filter_ in (
        None,
        {"label": 1},
        {"not": {"label": {"in": [0, 2]}}},
        {"name": {"lt": "item 3"}},
        {"x": 1},
    ):
        found = collection.search(DATA[500:520], 40, filter=filter_)
        expected = plain.search(DATA[500:520], 40, filter=filter_)
        assert found.ids.tolist() == expected.ids.tolist()
        np.testing.assert_array_equal(found.scores, expected.scores)
        assert found.kind == expected.kind
        assert collection.count(filter_) == plain.count(filter_)
        assert [i.id for i in collection.items(filter_)] == [i.id for i in plain.items(filter_)]


def test_asymmetric_scores_are_sums_of_projections(make):
    collection = make(SPARSE).upsert(list(range(300)), DATA[:300])
    found = collection.search(DATA[300:310], 20, scoring="asymmetric", n_threads=1)
    assert found.kind == "asymmetric"
    expected = SPARSE.project(DATA[300:310]) @ SPARSE.encode(DATA[:300]).to_dense(np.float32).T
    np.testing.assert_allclose(found.scores, -np.sort(-expected, axis=1)[:, :20], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        np.take_along_axis(expected, found.ids.astype(int), axis=1), found.scores, rtol=1e-4, atol=1e-4
    )
    collection.reindex(SPARSE, scoring="asymmetric")
    assert collection.search(DATA[:1], 2).kind == "asymmetric"
    assert collection.search(DATA[:1], 2, scoring="overlap").kind == "overlap"


def test_one_vector_none_and_fewer_items_than_asked_for(make):
    collection = make(SPARSE)
    assert collection.search(DATA[0], 2).ids.tolist() == [[None, None]]
    collection.upsert(["a"], DATA[:1])
    ids, scores = collection.search(DATA[0], 3)
    assert ids.tolist() == [["a", None, None]]
    assert scores.tolist() == [[4.0, -np.inf, -np.inf]]
    assert collection.search(np.empty((0, 8)), 3).ids.shape == (0, 3)
    assert collection.search(DATA[0], 1, filter={"x": 1}).ids.tolist() == [[None]]


def test_pages_of_items(make):
    collection = make().upsert(list(range(20)), DATA[:20], labels(20))
    page = list(collection.items({"label": 1}, limit=3))
    assert [item.id for item in page] == [1, 4, 7]
    same_item(page[0], 1, DATA[1], {"label": 1, "name": "item 1"})
    assert [item.id for item in collection.items({"label": 1}, after=7, limit=2)] == [10, 13]
    assert [item.id for item in collection.items(after=17)] == [18, 19]
    assert list(collection.items(limit=0)) == []
    with pytest.raises(KeyError, match="expected after to be the id of an item, got 'x', which is not there"):
        next(collection.items(after="x"))


def test_reindex_with_another_hasher(make):
    collection = make(SPARSE).upsert(list(range(100)), DATA[:100])
    assert collection.reindex(OTHER) is collection
    plain = ReferenceCollection(OTHER).upsert(list(range(100)), DATA[:100])
    assert collection.search(DATA[:5], 7).ids.tolist() == plain.search(DATA[:5], 7).ids.tolist()
    collection.reindex(DENSE)
    assert collection.search(DATA[:5], 7).kind == "equal-bits"
    assert collection.search(DATA[:5], 1).scores.tolist() == [[12.0]] * 5


def test_fit_on_what_is_stored_or_given(make):
    collection = make()
    with pytest.raises(ValueError, match="expected vectors to fit on, got an empty collection"):
        collection.fit(posh.POSH(16, 2))
    collection.upsert(list(range(100)), DATA[:100])
    with pytest.raises(
        ValueError, match="expected a collection with a hasher or a metric, got neither: call fit or reindex"
    ):
        collection.search(DATA[0])
    unfitted = posh.POSH(16, 2, n_epochs=1, random_state=0)
    assert collection.fit(unfitted) is collection
    assert not hasattr(unfitted, "weights_")
    expected = posh.POSH(16, 2, n_epochs=1, random_state=0).fit(DATA[:100])
    assert collection.hasher.encode(DATA) == expected.encode(DATA)
    assert collection.search(DATA[3], 1).scores.tolist() == [[2.0]]
    collection.fit(unfitted, DATA[200:400], scoring="asymmetric")
    expected.fit(DATA[200:400])
    assert collection.hasher.encode(DATA) == expected.encode(DATA)
    assert collection.search(DATA[3], 1).kind == "asymmetric"


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot"])
def test_a_metric_needs_no_hasher(make, metric):
    collection = make(metric=metric, recall=0.9)
    nothing = collection.search(DATA[:2], 3)
    assert (nothing.ids.tolist(), nothing.kind) == ([[None] * 3] * 2, metric)
    collection.upsert(list(range(300)), DATA[:300], labels(300))
    collection.delete([0, 7])
    plain = ReferenceCollection(metric=metric).upsert(list(range(300)), DATA[:300], labels(300))
    plain.delete([0, 7])
    for filter_ in (None, {"label": 1}):
        found, expected = (one.search(DATA[300:320], 5, filter=filter_) for one in (collection, plain))
        assert (found.ids.tolist(), found.kind) == (expected.ids.tolist(), metric)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-6)
    for options in ({"recall": 0.5}, {"slack": 0.0}, {"exact": True}, {"n_probe": 3}):
        found = collection.search(DATA[300:320], 5, **options)  # so few items are always compared
        assert found.ids.tolist() == plain.search(DATA[300:320], 5).ids.tolist()
    with pytest.raises(ValueError, match="expected recall"):
        collection.search(DATA[0], recall=1.5)
    collection.reindex(metric="dot").reindex()
    plain.reindex(metric="dot")
    found = collection.search(DATA[:5], 5)
    assert (found.ids.tolist(), found.kind) == (plain.search(DATA[:5], 5).ids.tolist(), "dot")


def test_recall_needs_a_metric_and_an_index_a_hasher_or_a_metric(make):
    collection = make(SPARSE).upsert(list(range(20)), DATA[:20])
    with pytest.raises(ValueError, match="expected a collection with a metric and items to report on"):
        collection.report()
    with pytest.raises(ValueError, match="expected a collection with a metric and items to calibrate"):
        collection.calibrate(DATA[:60])
    with pytest.raises(ValueError, match=r"recall=0\.9 needs a collection with a metric"):
        collection.search(DATA[0], recall=0.9)
    with pytest.raises(ValueError, match="expected a collection with a hasher or a metric, got neither"):
        make().upsert([1], DATA[:1]).reindex()


def test_a_sample_is_alike_for_the_same_items(make):
    collection = make()
    assert len(collection.sample(5)) == 0
    collection.upsert(list(range(100)), DATA[:100])
    sample = collection.sample(30)
    assert sample.shape == (30, 8)
    assert sample.dtype == np.float32
    stored = {vector.tobytes() for vector in DATA[:100]}
    assert len({vector.tobytes() for vector in sample} & stored) == 30
    np.testing.assert_array_equal(collection.sample(30), sample)
    assert {vector.tobytes() for vector in collection.sample(1000)} == stored
    with pytest.raises(ValueError, match="expected n at least 1, got 0"):
        collection.sample(0)


def test_sampled_items_are_those_of_the_sampled_vectors(make):
    collection = make()
    assert list(collection.sample_items(5)) == []
    collection.upsert(list(range(100)), DATA[:100], [{"number": i} for i in range(100)])
    collection.delete([3, 50])
    items = list(collection.sample_items(30))
    np.testing.assert_array_equal([item.vector for item in items], collection.sample(30))
    assert all(item.payload == {"number": item.id} for item in items)
    with pytest.raises(ValueError, match="expected n at least 1, got 0"):
        collection.sample_items(0)


def test_index_options_and_memory_are_told(make):
    collection = make(SPARSE).upsert(list(range(100)), DATA[:100])
    assert collection.index_options["scoring"] == "overlap"
    collection.reindex(OTHER, scoring="asymmetric")
    assert collection.index_options["scoring"] == "asymmetric"
    assert collection.memory_usage() is None or 1000 < collection.memory_usage() < 1_000_000


def test_a_hasher_that_is_changed_outside_changes_nothing(make):
    hasher = posh.POSH(32, 4, n_epochs=1, random_state=0).fit(DATA[:100])
    collection = make(hasher).upsert(list(range(50)), DATA[:50])
    before = collection.search(DATA[:5], 5)
    hasher.fit(DATA[300:] * [1, -1, 1, -1, 1, -1, 1, -1])
    after = collection.search(DATA[:5], 5)
    assert before.ids.tolist() == after.ids.tolist()
    np.testing.assert_array_equal(before.scores, after.scores)


def test_metadata_is_kept_with_the_collection(make):
    collection = make(metadata={"image": [28, 28]})
    assert collection.metadata == {"image": [28, 28]}
    collection.metadata["image"] = "a copy"
    assert collection.metadata == {"image": [28, 28]}
    assert collection.set_metadata({"title": "digits"}) is collection
    assert collection.metadata == {"title": "digits"}
    assert make().metadata == {}


def test_compaction_changes_no_answer(make):
    collection = make(SPARSE).upsert(list(range(200)), DATA[:200], labels(200))
    collection.delete(list(range(0, 200, 2)))
    before = collection.search(DATA[:10], 20, filter={"label": 1})
    assert collection.compact() is collection
    after = collection.search(DATA[:10], 20, filter={"label": 1})
    assert before.ids.tolist() == after.ids.tolist()
    assert collection.upsert([0], DATA[:1]).search(DATA[0], 1).scores.tolist() == [[4.0]]


def test_what_was_written_outlives_closing(implementation, tmp_path):
    if implementation.reopen is None:
        pytest.skip(f"{implementation.name} is not kept when it is closed")
    with implementation.create(tmp_path / "kept", SPARSE, metadata={"a": 1}) as collection:
        collection.upsert([1, "1", 2], DATA[:3], labels(3))
        collection.delete([2])
        before = collection.search(DATA[:5], 3)
    with implementation.reopen(tmp_path / "kept") as collection:
        assert collection.search(DATA[:5], 3).ids.tolist() == before.ids.tolist()
        assert collection.metadata == {"a": 1}
        assert collection.n_features == 8
        same_item(collection.get(["1"])[0], "1", DATA[1], labels(3)[1])
        assert collection.hasher.encode(DATA) == SPARSE.encode(DATA)


def test_nothing_to_write(make):
    collection = make().upsert([], np.empty((0, 8)))
    assert collection.n_features is None
    assert list(collection.items()) == []
