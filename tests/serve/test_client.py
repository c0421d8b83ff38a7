"""The Python client, beside what the conformance suite asks of it."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys

import httpx
import numpy as np
import pytest

import posh
from posh import client as client_module
from posh.client import AsyncClient, Client
from posh.errors import (
    CollectionExistsError,
    ServiceError,
    StorageError,
    UnknownCollectionError,
    find_install_command,
)
from posh.serve.capacity import Limits
from posh.serve.sources import Folder
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.conftest import filled
from tests.serve.service import MemorySource, running


@pytest.fixture
def client(address):
    with Client(address) as client:
        yield client


def test_collections_are_made_listed_and_dropped(client):
    made = client.create("made", SPARSE, metadata={"a": 1}, scoring="asymmetric")
    made.upsert(["x", 2], DATA[:2], [{"p": 1}, {}])
    info = made.info()
    assert (info.name, info.count, info.n_features, info.metadata) == ("made", 2, 8, {"a": 1})
    assert info.hasher is not None
    assert (info.hasher.method, info.hasher.n_active) == ("POSH", 4)
    assert made.search(DATA[0], 1).kind == "asymmetric"
    assert "made" in [info.name for info in client.collections()]
    with pytest.raises(CollectionExistsError, match="expected a new name, got 'made', which is taken"):
        client.create("made")
    client.delete("made")
    with pytest.raises(UnknownCollectionError, match="expected the name of a collection, got 'made'"):
        client.collection("made").count()
    with pytest.raises(UnknownCollectionError):
        client.delete("made")


def test_names_cannot_lead_elsewhere(client):
    for name in ("a/b", "../things", "..", "é", "a?b", "a#b", "", None):
        for call in (client.create, client.delete, client.collection):
            with pytest.raises(ValueError, match="expected a name of 1 to 64 of the characters"):
                call(name)
    assert client.collection("things").count() == 200


def test_errors_are_those_of_the_library(client):
    things = client.collection("things")
    with pytest.raises(ValueError, match="expected at most 100,000 hits of all queries") as refused:
        things.search(DATA[:101], 1000)
    assert type(refused.value) is ValueError
    with pytest.raises(TypeError, match="unknown field colour"):
        things.reindex(SPARSE, colour="red")
    with pytest.raises(KeyError, match="expected after to be the id of an item"):
        next(things.items(after="nothing"))
    with pytest.raises(ValueError, match="expected a collection with a hasher or a metric, got neither"):
        client.collection("empty").search(DATA[0])


def test_the_token_is_sent_and_asked_for():
    with running(MemorySource(things=filled()), token="secret") as address:
        with Client(address, token="secret") as client:
            assert client.collection("things").count() == 200
        for wrong in (None, "other"):
            with (
                Client(address, token=wrong) as client,
                pytest.raises(ServiceError, match="expected the service's token"),
            ):
                client.collections()


def test_a_service_that_is_not_there_is_said_so():
    with (
        Client("http://127.0.0.1:9") as client,
        pytest.raises(ServiceError, match="expected a response, got none"),
    ):
        client.collections()


class Full(ReferenceCollection):
    def _upsert(self, ids, vectors, payloads):
        raise StorageError("/srv/x: full")


def test_a_disk_that_fails_is_a_storage_error():
    with (
        running(MemorySource(full=Full())) as address,
        Client(address) as client,
        pytest.raises(StorageError, match="expected a disk that works, got an error"),
    ):
        client.collection("full").upsert([1], DATA[:1])


def test_all_items_come_page_by_page():
    everything = np.tile(DATA, (5, 1))
    collection = ReferenceCollection().upsert(list(range(3000)), everything, [{"i": i} for i in range(3000)])
    with (
        running(MemorySource(many=collection), limits=Limits(page=1100)) as address,
        Client(address) as client,
    ):
        items = list(client.collection("many").items())
        assert [item.id for item in items] == list(range(3000))
        np.testing.assert_array_equal([item.vector for item in items], everything)
        few = client.collection("many").items({"i": {"gte": 5}}, after=10, limit=2500)
        assert [item.id for item in few] == list(range(11, 2511))
        assert client.collection("many").get(list(range(50)))[49].payload == {"i": 49}


def test_items_with_many_columns_come_in_smaller_pages():
    """All of them are 36 MB of JSON, more than an answer may have."""
    wide = np.random.default_rng(0).normal(size=(400, 8192)).astype(np.float32)
    collection = ReferenceCollection().upsert(list(range(400)), wide)
    with running(MemorySource(wide=collection)) as address, Client(address) as client:
        for item, vector in zip(client.collection("wide").items(), wide, strict=True):
            np.testing.assert_array_equal(item.vector, vector)


def test_items_are_of_one_moment(client):
    collection = client.create("moving").upsert(list(range(50)), DATA[:50])
    items = collection.items()
    first = next(items)
    assert collection.delete([10]) == 1
    collection.upsert([11], DATA[:1], [{"new": True}])
    rest = list(items)
    assert [first.id, *(item.id for item in rest)] == list(range(50))
    client.delete("moving")


def test_closing_a_collection_leaves_the_client_open(client):
    things = client.collection("things")
    things.close()
    with pytest.raises(ValueError, match="expected an open collection, got a closed one"):
        things.count()
    assert client.collection("things").count() == 200


def test_another_service_is_recognised():
    def elsewhere(request: httpx.Request) -> httpx.Response:
        return httpx.Response(502, text="bad gateway")

    client = Client("http://127.0.0.1:1")
    client._http = httpx.Client(transport=httpx.MockTransport(elsewhere), base_url="http://127.0.0.1:1")
    with client, pytest.raises(ServiceError, match="expected a response of posh serve, got status 502"):
        client.collections()


def test_hashers_are_copies(client):
    hasher = client.collection("things").hasher
    assert hasher.encode(DATA) == SPARSE.encode(DATA)
    assert client.collection("empty").hasher is None
    assert isinstance(hasher, posh.POSH)


USE = """
import importlib.abc, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[2].split():
            raise ImportError(f"{name} is not one of the client's packages")

sys.meta_path.insert(0, Blocker())
import numpy as np
import posh
from posh.client import Client

vectors = np.random.default_rng(0).normal(size=(50, 8))
with Client(sys.argv[1]) as client:
    light = client.create("light", posh.LSH(n_bits=32, random_state=0).fit(vectors), metadata={"a": [1]})
    light.upsert(range(50), vectors, [{"label": i % 2} for i in range(50)])
    ids, _ = light.search(vectors[:2], k=3, filter={"label": 0})
    light.fit(posh.LSH(n_bits=16, random_state=0), n_probe=2)
    info = light.info()
    print(info.hasher.n_bits, ids[0, 0], len(list(light.items())), info.indexing.state)
    assert info in client.collections()
    client.delete("light")
"""
SERVICE_ONLY = "orjson pydantic pydantic_core starlette granian uvloop prometheus_client"


def test_the_client_needs_httpx_and_the_core_only(tmp_path):
    with running(Folder(tmp_path)) as address:
        command = [sys.executable, "-c", USE, address, SERVICE_ONLY]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stderr, done.stdout) == ("", "16 0 50 idle\n")


def test_without_httpx_the_pip_line_is_printed():
    command = [sys.executable, "-c", USE, "http://127.0.0.1:1", f"httpx {SERVICE_ONLY}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert f"posh.client needs httpx: {find_install_command('client')}" in done.stderr


def test_options_of_a_new_collection_are_kept_without_a_hasher(tmp_path):
    with running(Folder(tmp_path)) as address, Client(address) as client:
        made = client.create("made", refine="vectors", oversample=3.0)
        assert made.info().index == {"refine": "vectors", "oversample": 3.0}
        made.upsert(range(50), DATA[:50]).fit(posh.LSH(n_bits=32, random_state=0))
        assert made.info().index["refine"] == "vectors"
        with pytest.raises(TypeError, match=r"unknown field index\.colour"):
            client.create("other", colour="red")
        assert [info.name for info in client.collections()] == ["made"]


def test_parts_of_a_large_write_are_within_the_limits_of_a_service():
    """Half of each is left for what is beside the payloads."""
    limits = Limits()
    assert limits.items / 2 >= client_module._MAX_ITEMS
    assert limits.body_bytes / 2 >= client_module._MAX_BYTES
    assert limits.body_values / 2 >= client_module._MAX_VALUES


def test_large_writes_are_split(tmp_path, monkeypatch):
    """Each limit is exceeded; all of them are a hundredth of the usual ones, on both sides."""
    usual = Limits()
    limits = Limits(
        items=usual.items // 100,
        body_bytes=usual.body_bytes // 100,
        body_values=usual.body_values // 100,
    )
    for name in ("_MAX_ITEMS", "_MAX_BYTES", "_MAX_VALUES"):
        monkeypatch.setattr(client_module, name, getattr(client_module, name) // 100)
    with running(Folder(tmp_path), limits=limits) as address, Client(address) as client:
        for name, n, payload in [
            ("items", 120, {"n": 1}),
            ("values", 30, {"list": [[0] * 400]}),
            ("bytes", 60, {"text": "x" * 10_000}),
        ]:
            collection = client.create(name)
            collection.upsert(range(n), np.resize(DATA, (n, 8)), [payload] * n)
            assert len(collection) == n
            collection.update_payload(range(n), [{"new": payload}] * n, replace=True)
            assert collection.get([0, n - 1])[1].payload == {"new": payload}
            assert collection.delete(range(n)) == n
            client.delete(name)


def test_clients_and_collections_say_what_they_are(client, address):
    assert repr(client) == f"Client('{address}')"
    things = client.collection("things")
    assert repr(things) == "RemoteCollection('things')"
    things.close()
    assert repr(things) == "RemoteCollection('things', closed)"
    for one in (client, client.collection("things")):
        with pytest.raises(TypeError, match="cannot be pickled: create another client"):
            pickle.dumps(one)


def test_the_same_calls_can_be_awaited(tmp_path):
    async def use(address: str) -> None:
        async with AsyncClient(address) as client:
            shop = await client.create("shop", SPARSE, metadata={"a": 1})
            assert await shop.upsert(range(250), DATA[:250], [{"n": i} for i in range(250)]) is shop
            found = await asyncio.gather(*(shop.search(DATA[i], 3, payloads=True) for i in range(40)))
            assert [hits[0][0].score for hits in found] == [4.0] * 40
            assert (await shop.search(ids=[3], k=2)).ids.shape == (1, 2)
            await shop.update_payload([7], [{"n": -7}])
            assert (await shop.get([7]))[0].payload == {"n": -7}
            assert await shop.count({"n": {"lt": 100}}) == 100
            assert [item.id async for item in shop.items({"n": {"gte": 20}}, limit=150)] == list(
                range(20, 170)
            )
            assert await shop.delete(filter={"n": {"lt": 0}}) == 1
            assert [info.name for info in await client.collections()] == ["shop"]
            with pytest.raises(ValueError, match="expected k at least 1"):
                await shop.search(DATA[0], 0)
            assert repr(client.collection("shop")) == "AsyncCollection(RemoteCollection('shop'))"
            assert repr(client) == f"AsyncClient('{address}')"
            await client.delete("shop")
            with pytest.raises(UnknownCollectionError):
                await client.collection("shop").count()

    with running(Folder(tmp_path)) as address:
        asyncio.run(use(address))
