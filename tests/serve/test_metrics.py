"""The metrics of a service: its process, its collections, its work, and what it refuses."""

from __future__ import annotations

import threading
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import posh
from posh.client import Client
from posh.serve.capacity import Limits
from posh.serve.metrics import Metrics
from posh.serve.sources import Folder
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.conftest import filled
from tests.serve.service import MemorySource, running


def read(address: str) -> dict[tuple, float]:
    """The values by name and labels."""
    families = text_string_to_metric_families(httpx.get(f"{address}/metrics").text)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A service with a collection by a metric, one by codes, and an empty one."""
    root = tmp_path_factory.mktemp("metrics")
    limits = Limits(k=20)
    folder = Folder(root / "served", backups=root / "backups")
    with running(folder, limits=limits) as address, Client(address) as client:
        client.create("metric", metric="cosine", recall=0.9).upsert(range(300), DATA[:300])
        client.create("codes", SPARSE).upsert(range(300), DATA[:300])
        client.create("empty")
        yield client, address, root


def test_each_collection_has_its_state(served):
    client, address, _ = served
    values = read(address)
    for name, items in (("metric", 300), ("codes", 300), ("empty", 0)):
        info = client.collection(name).info()
        assert values["posh_collection_items", name] == items
        assert values["posh_collection_memory_bytes", name] == info.memory_bytes
        assert values["posh_collection_disk_bytes", name] == info.disk_bytes > 0
        states = {state: values["posh_collection_indexing", name, state] for state in ("idle", "running")}
        assert states == {"idle": 1, "running": 0}
        assert values["posh_collection_calls", name, "write"] == 0
        assert values["posh_collection_waiting_queries", name] == 0


def test_the_recall_is_that_of_the_report(served):
    client, address, _ = served
    values = read(address)
    assert values["posh_collection_recall", "metric"] == client.collection("metric").report().recall
    assert values["posh_collection_recall_asked", "metric"] == 0.9
    assert ("posh_collection_recall", "codes") not in values
    assert ("posh_collection_recall_asked", "codes") not in values


def test_a_measured_recall(tmp_path):
    """With so many items not all are compared, and the recall is measured."""
    data = posh.datasets.load("digits").base
    with posh.create(tmp_path / "digits", metric="cosine", recall=0.5) as digits:
        digits.upsert(range(len(data)), data)
        assert digits.measured_recall() == digits.report().recall
    with posh.create(tmp_path / "codes", SPARSE) as codes:
        assert codes.measured_recall() is None


def test_the_time_of_the_last_backup(served):
    client, address, _ = served
    assert ("posh_collection_last_backup_timestamp_seconds", "metric") not in read(address)
    before = time.time()
    client.collection("metric").backup("first")
    values = read(address)
    assert before <= values["posh_collection_last_backup_timestamp_seconds", "metric"] <= time.time()
    assert ("posh_collection_last_backup_timestamp_seconds", "codes") not in values


def test_it_survives_a_restart_and_ends_with_the_backup(tmp_path):
    folder = Folder(tmp_path / "served", backups=tmp_path / "backups")
    shop = folder.create("shop", {}, {})
    folder.backup(shop, "first")
    folder.backup(shop, "second")
    shop.close()
    times = Folder(tmp_path / "served", backups=tmp_path / "backups").backup_times()
    assert list(times) == ["shop"]
    (tmp_path / "backups" / "second" / "backup.json").unlink()
    (tmp_path / "backups" / "first" / "backup.json").write_text("[]")
    assert folder.backup_times() == {}


def test_the_process(served):
    _, address, _ = served
    values = read(address)
    assert values["process_resident_memory_bytes",] > 1 << 20
    assert 0 < values["process_open_fds",] < values["process_max_fds",]
    assert values["process_start_time_seconds",] < time.time()
    assert values["process_cpu_seconds_total",] > 0


def test_refusals_by_limit(served):
    client, address, _ = served
    before = read(address)
    assert before["posh_refusals_total", "items"] == 0  # present before the first, so that rates see it
    with pytest.raises(ValueError, match="expected at most 20 for k"):
        client.collection("metric").search(DATA[:1], 21)
    after = read(address)
    assert after["posh_refusals_total", "k"] == before["posh_refusals_total", "k"] + 1


class Held(ReferenceCollection):
    """Reads items when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.entered = threading.Event(), threading.Event()

    def _get(self, ids):
        self.entered.set()
        assert self.go.wait(30)
        return super()._get(ids)


def test_work_in_flight():
    held = Held()
    with running(MemorySource(held=held)) as address:
        url, body = f"{address}/v1/collections/held/get", {"ids": [1]}
        reading = threading.Thread(target=httpx.post, args=(url,), kwargs={"json": body, "timeout": 60})
        reading.start()
        assert held.entered.wait(30)
        values = read(address)
        assert values["posh_requests_in_work",] == values["posh_collection_calls", "held", "read"] == 1
        assert values["posh_work_bytes", "bodies"] > 0
        held.go.set()
        reading.join()
        values = read(address)
        assert values["posh_requests_in_work",] == values["posh_collection_calls", "held", "read"] == 0


def test_bytes_of_requests_in_progress():
    taken = 7
    metrics = Metrics()
    metrics.watch_bytes("bodies", lambda: taken)
    metrics.watch_requests(lambda: 3)
    assert b'posh_work_bytes{budget="bodies"} 7.0' in metrics.dump()
    assert b"posh_requests_in_work 3.0" in metrics.dump()
    with running(MemorySource(things=filled())) as address:
        values = read(address)
        for budget in ("received", "bodies", "responses", "answers", "fits"):
            assert values["posh_work_bytes", budget] == 0


def test_a_dropped_collection_has_no_metrics(served):
    client, address, _ = served
    client.create("gone", SPARSE).upsert([1], DATA[:1]).search(DATA[:1], 1)
    assert ("posh_search_batch_queries_count", "gone") in read(address)
    client.delete("gone")
    assert [key for key in read(address) if "gone" in key] == []
