"""The engine on Milvus, with a stand-in for Milvus: what tests of all engines do not see."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import posh
from posh.engines.milvus import Milvus, MilvusCollection, table
from posh.engines.milvus import search as milvus_search
from posh.errors import FormatError, MissingExtraError, ServiceError, find_install_command
from tests.collection.implementations import DATA, DENSE, OTHER, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.collection.test_operations import same_hits
from tests.engines.milvus import fake

URI = "http://127.0.0.1:19530"


@pytest.fixture
def client(monkeypatch):
    monkeypatch.delenv("POSH_MILVUS_TOKEN", raising=False)
    return fake.install(monkeypatch)


def both(hasher=SPARSE, n=300, **options):
    """A collection on Milvus, and the plain one with the same items."""
    payloads = [{"n": i} for i in range(n)]
    collection = MilvusCollection(URI, "shop", hasher, **options).upsert(range(n), DATA[:n], payloads)
    return collection, ReferenceCollection(hasher).upsert(range(n), DATA[:n], payloads)


@pytest.mark.parametrize("hasher", [SPARSE, DENSE], ids=["sparse", "dense"])
def test_ties_and_items_that_share_no_bit_come_in_the_order_of_writing(client, hasher):
    collection, plain = both(hasher)
    for one in (collection, plain):
        one.upsert([f"again {i}" for i in range(400)], np.repeat(DATA[:4], 100, axis=0))
    for k in (1, 7, 150, 700, 900):
        same_hits(*(one.search(DATA[:5], k) for one in (collection, plain)))
    same_hits(*(one.search(DATA[:5], 20, filter={"not": {"n": {"gte": 3}}}) for one in (collection, plain)))


def test_only_so_many_ties_are_fetched(client, monkeypatch):
    monkeypatch.setattr(milvus_search, "TIES", 100)
    collection = MilvusCollection(URI, "shop", SPARSE)
    collection.upsert(range(2000), np.repeat(DATA[:1], 2000, axis=0))
    hits = collection.search(DATA[:1], 10)
    assert hits.scores.tolist() == [[4.0] * 10]
    assert max(asked["limit"] for what, asked in client.asked if what == "search") < 1000


def test_a_filter_that_milvus_cannot_help_with_is_exact(client, monkeypatch):
    for module in (milvus_search, table):
        monkeypatch.setattr(module, "MAX_HITS", 60)
    monkeypatch.setattr(milvus_search, "_KEY_BATCH", 7)
    collection, plain = both()
    source = {"not": {"n": {"lt": 280}}}
    same_hits(*(one.search(DATA[:5], 15, filter=source) for one in (collection, plain)))
    with pytest.raises(ValueError, match="expected k at most 16,384, the limit of Milvus, got 20,000"):
        collection.search(DATA[0], 20_000)


@pytest.mark.parametrize("options", [{"refine": "vectors"}, {"refine": "cosine", "oversample": 3}], ids=str)
def test_refinement_and_asymmetric_scores_equal_the_embedded_engine(client, tmp_path, options):
    collection, _ = both(**options)
    with posh.Collection(tmp_path / "embedded", SPARSE, **options) as embedded:
        embedded.upsert(range(300), DATA[:300])
        for asked in ({"k": 7}, {"k": 3, "oversample": 5.0}):
            found, expected = (one.search(DATA[300:320], **asked) for one in (collection, embedded))
            assert found.ids.tolist() == expected.ids.tolist()
            np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-6)
            assert found.kind == expected.kind


def test_active_bits_of_documents_and_queries_are_used(client, tmp_path):
    options = {"document_active": 8, "query_active": 3}
    collection, _ = both(**options)
    with posh.Collection(tmp_path / "embedded", SPARSE, **options) as embedded:
        embedded.upsert(range(300), DATA[:300])
        for scoring in ("overlap", "asymmetric"):
            found, expected = (
                one.search(DATA[300:320], 9, scoring=scoring, n_threads=1) for one in (collection, embedded)
            )
            assert found.ids.tolist() == expected.ids.tolist()
            np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


def test_vectors_of_one_column(client):
    collection = MilvusCollection(URI, "narrow", metric="cosine").upsert([1, 2], [[3.0], [-2.0]])
    assert [item.vector.tolist() for item in collection.items()] == [[3.0], [-2.0]]
    assert collection.search([[1.0]], 1).ids.tolist() == [[1]]


def test_a_search_is_repeated_if_an_item_changes_meanwhile(client, monkeypatch):
    collection, _ = both()
    search, times = table.ItemTable.search, []

    def disturbed(self, *args):
        answer = search(self, *args)
        if len(times) < 2:
            times.append(1)
            collection.upsert([0], DATA[:1], [{"new": len(times)}])
        return answer

    monkeypatch.setattr(table.ItemTable, "search", disturbed)
    hits = collection.search(DATA[0], 300, payloads=True)
    assert {hit.id: hit.payload for hit in hits[0]}[0] == {"new": 2}
    monkeypatch.setattr(
        table.ItemTable, "search", lambda self, *args: (times.clear(), disturbed(self, *args))[1]
    )
    with pytest.raises(ServiceError, match="items were written during each of 5 searches"):
        collection.search(DATA[0], 3, payloads=True)


def test_what_was_made_is_opened_with_the_same_options_only(client):
    both(scoring="asymmetric", metadata={"a": 1})[0].close()
    with MilvusCollection(URI, "shop") as again:
        assert (len(again), again.metadata, again.n_features) == (300, {"a": 1}, 8)
        assert again.index_options["scoring"] == "asymmetric"
        assert again.hasher.encode(DATA) == SPARSE.encode(DATA)
    MilvusCollection(URI, "shop", SPARSE, metadata={"a": 1}, scoring="asymmetric").close()
    for args, options, message in (
        ((OTHER,), {}, "expected the hasher that this collection has"),
        ((), {"metadata": {}}, "expected the metadata that this collection has"),
        ((), {"scoring": "overlap"}, "expected the options that this collection has"),
        ((posh.LSH(4).fit(DATA[:, :5]),), {}, "expected a hasher of vectors with 8 columns"),
    ):
        with pytest.raises(ValueError, match=message):
            MilvusCollection(URI, "shop", *args, **options)
    with pytest.raises(FileExistsError, match="expected a new name, found the collection 'shop'"):
        MilvusCollection.create(URI, "shop")
    with pytest.raises(FileNotFoundError, match="expected the collection 'shops', found shop"):
        MilvusCollection.open(URI, "shops")
    assert sorted(client.databases[URI]) == ["shop__items_1", "shop__settings"]


def test_an_interrupted_reindex_changes_nothing_and_is_repeated(client):
    collection, plain = both()
    client.failing["upsert"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        collection.reindex(OTHER)
    client.failing.clear()
    same_hits(*(one.search(DATA[:5], 9) for one in (collection, plain)))
    collection.reindex(OTHER)
    plain.reindex(OTHER)
    same_hits(*(one.search(DATA[:5], 9) for one in (collection, plain)))
    collection.close()
    with MilvusCollection(URI, "shop") as again:
        same_hits(*(one.search(DATA[:5], 9) for one in (again, plain)))
    assert sorted(client.databases[URI]) == ["shop__items_2", "shop__settings"]
    assert not [name for name in client.databases[URI]["shop__settings"]["rows"] if "hasher-1" in name]


def test_an_interrupted_creation_is_no_collection(client):
    client.failing["upsert"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        MilvusCollection(URI, "shop", SPARSE)
    client.failing.clear()
    with pytest.raises(FileNotFoundError):
        MilvusCollection.open(URI, "shop")
    assert len(MilvusCollection(URI, "shop", OTHER)) == 0


def test_collections_that_are_not_ours_are_left_alone(client):
    for name in ("mine", "yours__settings", "theirs__items_1"):
        fake.MilvusClient(URI, 1.0).create_collection(name, fake.Schema())
    for name, hasher in (("mine", None), ("yours", None), ("theirs", SPARSE)):
        with pytest.raises(FormatError, match="choose another name"):
            MilvusCollection(URI, name, hasher)
    assert {"mine", "yours__settings", "theirs__items_1"} <= set(client.databases[URI])


def test_damaged_settings_are_named(client):
    both()[0].close()
    rows = client.databases[URI]["shop__settings"]["rows"]
    good = rows["hasher-1-0"]["value"]
    rows["hasher-1-0"] = rows["hasher-1-0"] | {"value": good[:-8] + "AAAAAAAA"}
    with pytest.raises(FormatError, match="the hasher of the collection 'shop' is damaged"):
        MilvusCollection(URI, "shop")
    rows["hasher-1-0"]["value"] = good
    rows["main"] = rows["main"] | {"value": rows["main"]["value"].replace('"format": 1', '"format": 2')}
    with pytest.raises(FormatError, match="in format 1, found 2: use the version that wrote it"):
        MilvusCollection(URI, "shop")
    del client.databases[URI]["shop__items_1"]
    rows["main"]["value"] = rows["main"]["value"].replace('"format": 2', '"format": 1')
    with pytest.raises(FormatError, match="expected the collection 'shop__items_1' in Milvus, found none"):
        MilvusCollection(URI, "shop")


def test_a_payload_is_serialized_once_per_upsert(client, monkeypatch):
    collection = MilvusCollection(URI, "shop", SPARSE)
    dumps, serialized = json.dumps, []

    def dump(value, **options):
        serialized.append(value)
        return dumps(value, **options)

    monkeypatch.setattr(json, "dumps", dump)
    collection.upsert([1, 2], DATA[:2], [{"a": 1}, {"a": 2}])
    assert serialized == [{"a": 1}, {"a": 2}]


def test_large_payloads_are_written_in_smaller_batches(client):
    collection = MilvusCollection(URI, "shop", SPARSE)
    collection.upsert(range(300), DATA[:300], [{"a": "x" * 60_000}] + [{}] * 299)
    sizes = [asked["n"] for what, asked in client.asked if what == "upsert" and "__items" in asked["name"]]
    assert max(sizes) * 60_000 < 8 << 20
    assert sum(sizes) == 300


def test_what_milvus_would_refuse_is_refused_before_anything_is_written(client):
    collection = MilvusCollection(URI, "shop")
    with pytest.raises(ValueError, match="expected payloads of at most 65,536 bytes as JSON"):
        collection.upsert([1, 2], DATA[:2], [{}, {"a": "x" * 70_000}])
    assert (len(collection), collection.n_features) == (0, None)
    with pytest.raises(ValueError, match="expected metadata of at most 40,000 bytes as JSON for Milvus"):
        collection.set_metadata({"a": "x" * 50_000})
    assert collection.metadata == {}
    with pytest.raises(ValueError, match="expected refine to be one of None, 'vectors', 'cosine' on Milvus"):
        MilvusCollection(URI, "other", SPARSE, refine="decoder")
    with pytest.raises(ValueError, match="expected a name of up to 200 letters"):
        MilvusCollection(URI, "no-dashes")
    assert sorted(client.databases[URI]) == ["shop__settings"]


@pytest.mark.parametrize(
    ("operation", "error", "expected", "message"),
    [
        ("connect", fake.MilvusException(2, "Fail connecting to server"), ServiceError, "got none"),
        ("connect", fake.MilvusException(16, "auth check failure"), ServiceError, "refuses the token"),
        (
            "query",
            fake.MilvusException(1, "UNAVAILABLE"),
            ServiceError,
            "expected a Milvus server that answers",
        ),
        ("query", fake.MilvusException(65, "out of luck"), ServiceError, r"could not query \(out of luck\)"),
    ],
)
def test_errors_of_milvus(client, operation, error, expected, message):
    client.failing[operation] = error
    with pytest.raises(expected, match=message) as caught:
        len(MilvusCollection(URI, "shop", SPARSE))
    assert URI in str(caught.value)


def test_errors_in_the_middle_of_reading(client):
    collection, _ = both()
    client.failing["next"] = fake.MilvusException(1, "UNAVAILABLE")
    for call in (lambda: list(collection.items()), lambda: collection.count({"n": 1})):
        with pytest.raises(ServiceError, match="expected a Milvus server that answers"):
            call()
    client.failing.clear()
    with MilvusCollection(URI, "shop") as other:
        other.reindex(OTHER)
    with pytest.raises(ServiceError, match="changed its hasher, open it again"):
        collection.search(DATA[0])


@pytest.mark.parametrize(("package", "name"), [("pymilvus", "pymilvus"), ("milvus_lite", "milvus-lite")])
def test_a_missing_package_is_named(client, monkeypatch, tmp_path, package, name):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingExtraError, match=re.escape(f"needs {name}: {find_install_command('milvus')}")):
        Milvus(tmp_path / "shop.db")
