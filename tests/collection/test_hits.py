"""What a search gives beside ids and scores, for every engine."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

from posh.errors import find_install_command
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.collection.test_conformance import labels


@pytest.fixture
def both(make):
    """A collection, and the plain one with the same items."""
    both = make(SPARSE), ReferenceCollection(SPARSE)
    for one in both:
        one.upsert([*range(100), *(f"again {i}" for i in range(20))], DATA[:120], labels(120))
    return both


def same(found, expected) -> None:
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.kind == expected.kind
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)
    assert found.payloads == expected.payloads
    for name in ("is_hit", "vectors"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None)
        assert one is None or all(np.array_equal(*rows) for rows in zip(one, other, strict=True))


@pytest.mark.parametrize("filter_", [None, {"label": 1}, {"label": 7}], ids=str)
def test_payloads_and_vectors_come_on_request(both, filter_):
    for include in ({}, {"payloads": True}, {"vectors": True}, {"payloads": True, "vectors": True}):
        found, expected = (one.search(DATA[:7], 5, filter=filter_, **include) for one in both)
        same(found, expected)
        assert (found.payloads is not None) == include.get("payloads", False)
        assert (found.vectors is not None) == include.get("vectors", False)


def test_hits_of_one_query_are_a_list(both):
    collection, _ = both
    hits = collection.search(DATA[:3], 4, filter={"name": "item 2"}, payloads=True, vectors=True)
    assert len(hits) == 3
    (hit,) = hits[2]  # the other three places are empty
    assert (hit.id, hit.score, hit.payload) == (2, 4.0, {"label": 2, "name": "item 2"})
    np.testing.assert_array_equal(hit.vector, DATA[2])
    assert hits.is_hit.tolist() == [[True, False, False, False]] * 3
    plain = collection.search(DATA[0], 2)[0]
    assert [(hit.payload, hit.vector) for hit in plain] == [(None, None)] * 2
    with pytest.raises(IndexError):
        hits[3]


def test_neighbours_of_stored_items(both):
    for options in ({}, {"payloads": True, "vectors": True}, {"filter": {"label": 1}, "payloads": True}):
        found, expected = (one.search(ids=[3, "again 4", 3], k=6, **options) for one in both)
        same(found, expected)
        assert 3 not in found.ids[0]
        assert "again 4" not in found.ids[1]
    collection = both[0]
    assert collection.search(ids=[0], k=1).ids.shape == (1, 1)
    with pytest.raises(KeyError, match="expected ids of stored items, got 'nobody', which is not there"):
        collection.search(ids=[3, "nobody"])
    for options in ({}, {"queries": DATA[:1], "ids": [3]}):
        with pytest.raises(ValueError, match="expected either queries or ids to search for"):
            collection.search(**options)


def test_low_scores_are_left_out(both):
    for min_score in (-1, 2, 3.5, 4, 5):
        found, expected = (one.search(DATA[:7], 9, min_score=min_score, payloads=True) for one in both)
        same(found, expected)
        assert all(hit.score >= min_score for row in range(7) for hit in found[row])
    assert not found.is_hit.any()
    with pytest.raises(TypeError, match="expected min_score to be a number"):
        both[0].search(DATA[0], min_score="high")


def test_an_item_that_is_written_meanwhile_does_not_disturb(make):
    """The payloads are of the state that was searched."""
    collection = make(SPARSE).upsert([1, 2], DATA[:2], [{"n": 1}, {"n": 2}])
    hits = collection.search(DATA[0], 2, payloads=True)
    collection.upsert([1], DATA[5:6], [{"n": 3}])
    assert {hit.id: hit.payload["n"] for hit in hits[0]} == {1: 1, 2: 2}


def test_tables(both):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    collection, _ = both
    collection.upsert(["odd"], DATA[:1], [{"id": 7, "label": "three", "deep": {"a": [1]}}])
    hits = collection.search(DATA[:2], 3, payloads=True, vectors=True)
    rows = [(i, hit) for i in range(2) for hit in hits[i]]
    frame, table = hits.to_pandas(), hits.to_arrow()
    assert isinstance(frame, pandas.DataFrame)
    assert isinstance(table, pyarrow.Table)
    assert list(frame.columns) == table.column_names
    assert set(frame.columns) == {
        "query",
        "id",
        "score",
        "label",
        "name",
        "payload.id",
        "deep",
        "vector",
    }
    assert frame["query"].tolist() == table["query"].to_pylist() == [i for i, _ in rows]
    assert frame["score"].tolist() == [hit.score for _, hit in rows]
    assert frame["id"].tolist() == [hit.id for _, hit in rows]
    texts = {0: "0", "odd": '"odd"'}  # numbers and strings in one column: JSON
    assert [text for text in table["id"].to_pylist() if text in texts.values()][:2] == ["0", '"odd"']
    assert table["deep"].to_pylist().count({"a": [1]}) == 1 + (len(rows) > 3 and rows[3][1].id == "odd")
    np.testing.assert_array_equal(frame["vector"][0], rows[0][1].vector)
    bare = collection.search(DATA[:2], 3)
    assert list(bare.to_pandas().columns) == bare.to_arrow().column_names == ["query", "id", "score"]
    nothing = collection.search(DATA[:2], 3, filter={"label": 9})
    assert len(nothing.to_pandas()) == nothing.to_arrow().num_rows == 0


@pytest.mark.parametrize(
    ("call", "module", "extra"), [("to_pandas", "pandas", "pandas"), ("to_arrow", "pyarrow", "data")]
)
def test_without_a_library_the_pip_line_is_printed(monkeypatch, call, module, extra):
    hits = ReferenceCollection(SPARSE).upsert([1], DATA[:1]).search(DATA[:1])
    monkeypatch.setitem(sys.modules, module, None)
    line = f"{call}() needs {module}: {find_install_command(extra)}"
    with pytest.raises(ImportError, match=re.escape(line)):
        getattr(hits, call)()
