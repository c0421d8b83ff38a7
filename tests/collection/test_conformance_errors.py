"""What every collection refuses, one suite for all implementations."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import posh
from tests.collection.implementations import DATA, DENSE, OTHER, SPARSE
from tests.collection.test_conformance import labels

CALLS = {
    "upsert": lambda c: c.upsert([1], DATA[:1]),
    "delete": lambda c: c.delete([1]),
    "delete by a filter": lambda c: c.delete(filter={}),
    "update_payload": lambda c: c.update_payload([1], [{}]),
    "get": lambda c: c.get([1]),
    "contains": lambda c: 1 in c,
    "search": lambda c: c.search(DATA[0]),
    "count": lambda c: c.count(),
    "filtered count": lambda c: c.count({"a": 1}),
    "len": len,
    "items": lambda c: c.items(),
    "reindex": lambda c: c.reindex(OTHER),
    "fit": lambda c: c.fit(posh.POSH(16, 2)),
    "compact": lambda c: c.compact(),
    "metadata": lambda c: c.metadata,
    "set_metadata": lambda c: c.set_metadata({}),
    "hasher": lambda c: c.hasher,
    "n_features": lambda c: c.n_features,
}


@pytest.mark.parametrize("call", list(CALLS))
def test_a_closed_collection_says_so(make, call):
    collection = make(SPARSE).upsert([1], DATA[:1])
    collection.close()
    collection.close()
    with pytest.raises(ValueError, match="expected an open collection, got a closed one"):
        CALLS[call](collection)


WRONG = [
    (lambda c: c.upsert([1], DATA[:2]), ValueError, r"expected as many ids as vectors \(2\), got 1"),
    (lambda c: c.upsert([1, 1], DATA[:2]), ValueError, "expected distinct ids, got 1 more than once"),
    (lambda c: c.upsert("ab", DATA[:2]), ValueError, "expected ids as a list or an array of int or str"),
    (
        lambda c: c.upsert([True], DATA[:1]),
        ValueError,
        "expected ids to be int or str, got True of type bool",
    ),
    (lambda c: c.upsert([1.0], DATA[:1]), ValueError, "expected ids to be int or str, got 1.0"),
    (lambda c: c.upsert([""], DATA[:1]), ValueError, "expected ids of 1 to 512 characters, got 0"),
    (lambda c: c.upsert([2**63], DATA[:1]), ValueError, "expected an id to be an integer of at most 64 bits"),
    (lambda c: c.upsert(["\ud800"], DATA[:1]), ValueError, "expected an id to be valid Unicode"),
    (lambda c: c.upsert([1], DATA[:1, :5]), ValueError, "expected vectors with 8 columns"),
    (lambda c: c.upsert([1], DATA[0]), ValueError, "vectors has 1 dimension"),
    (lambda c: c.upsert([1], [[np.nan] * 8]), ValueError, "vectors contains NaN or inf"),
    (lambda c: c.upsert([1], [[1e300] * 8]), ValueError, "vectors as float32 contains NaN or inf"),
    (lambda c: c.upsert([1], DATA[:1], [{}, {}]), ValueError, r"as many payloads as vectors \(1\), got 2"),
    (lambda c: c.upsert([1], DATA[:1], {"a": 1}), ValueError, "expected payloads as a list of dictionaries"),
    (lambda c: c.upsert([1], DATA[:1], [3]), ValueError, r"expected payloads\[0\] to be a dictionary, got 3"),
    (
        lambda c: c.upsert([1], DATA[:1], [{1: 2}]),
        ValueError,
        r"fields of payloads\[0\] to be strings, got 1",
    ),
    (
        lambda c: c.upsert([1], DATA[:1], [{"a": {1}}]),
        ValueError,
        r"payloads\[0\].a to contain only types of JSON",
    ),
    (
        lambda c: c.upsert([1], DATA[:1], [{"a": np.nan}]),
        ValueError,
        r"payloads\[0\].a to be finite, got nan",
    ),
    (lambda c: c.delete([1, 1]), ValueError, "expected distinct ids"),
    (lambda c: c.get(3), ValueError, "expected ids as a list or an array"),
    (lambda c: c.search(DATA[:, :3]), ValueError, "expected vectors with 8 columns"),
    (lambda c: c.search(DATA[0], 0), ValueError, "expected k at least 1, got 0"),
    (lambda c: c.search(DATA[0], filter={"a": {"like": 1}}), ValueError, "expected one of eq, ne"),
    (
        lambda c: c.search(DATA[0], scoring="magic"),
        ValueError,
        "scoring to be one of 'overlap', 'asymmetric'",
    ),
    (lambda c: c.search(DATA[0], oversample=0.5), ValueError, r"expected oversample in \[1, inf\)"),
    (lambda c: c.search(DATA[0], n_probe=0), ValueError, "expected n_probe at least 1, got 0"),
    (lambda c: c.search(DATA[0], n_threads=0), ValueError, "expected n_threads at least 1"),
    (lambda c: c.count({"a": {}}), ValueError, "expected at least one of eq, ne"),
    (lambda c: c.items(limit=-1), ValueError, "expected limit at least 0, got -1"),
    (lambda c: c.reindex(posh.POSH()), NotFittedError, "not fitted"),
    (lambda c: c.reindex("POSH"), TypeError, r"expected a hasher such as posh.POSH\(\), got 'POSH'"),
    (lambda c: c.fit("POSH"), TypeError, r"expected a hasher such as posh.POSH\(\), got 'POSH'"),
    (
        lambda c: c.reindex(posh.LSH(4).fit(DATA[:, :5])),
        ValueError,
        "expected a hasher of vectors with 8 columns, as this collection has, got one fitted on 5",
    ),
    (lambda c: c.fit(posh.LSH(4), DATA[:, :5]), ValueError, "expected vectors with 8 columns"),
    (lambda c: c.reindex(SPARSE, colour="red"), TypeError, "colour"),
    (lambda c: c.set_metadata([1]), ValueError, r"expected metadata to be a dictionary, got \[1\]"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_arguments_are_named_and_change_nothing(make, call, error, message):
    collection = make(SPARSE).upsert(["a", "b"], DATA[:2], labels(2))
    before = collection.search(DATA[:3], 3)
    with pytest.raises(error, match=message):
        call(collection)
    assert collection.search(DATA[:3], 3).ids.tolist() == before.ids.tolist()
    assert [item.id for item in collection.items()] == ["a", "b"]
    assert collection.metadata == {}


def test_asymmetric_scoring_needs_sparse_codes(make):
    with pytest.raises(ValueError, match="scoring='asymmetric' needs sparse codes, got LSH: leave it out"):
        make(DENSE).upsert([1], DATA[:1]).search(DATA[0], scoring="asymmetric")


def test_wrong_ids_arrays(make):
    collection = make().upsert(np.arange(3), DATA[:3]).upsert(np.array(["a", "b"]), DATA[3:5])
    assert [item.id for item in collection.items()] == [0, 1, 2, "a", "b"]
    with pytest.raises(ValueError, match=r"expected ids to be 1-D, got shape \(1, 2\)"):
        collection.upsert(np.array([[1, 2]]), DATA[:2])
