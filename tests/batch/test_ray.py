"""The same on Ray: set POSH_TEST_RAY=1. Workers and drivers are killed in the middle of every step."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import numpy as np
import pytest

import posh
from posh import batch
from posh.errors import FormatError, ServiceError
from tests.batch.doing import DIGITS, Here, KilledWorkers, all_steps, equal, write_npy
from tests.batch.test_processes import _threads, check_resuming

pytestmark = pytest.mark.skipif(
    os.environ.get("POSH_TEST_RAY") != "1", reason="starts Ray, which takes a minute: set POSH_TEST_RAY=1"
)
# Ray leaves files and sockets to the garbage collector.
pytestmark = [pytestmark, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def workers():
    with batch.RayWorkers(2) as started:
        yield started


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    write_npy(folder / "shards")
    with all_steps(folder, Here()) as found:
        return found


def test_workers_that_are_killed_in_every_step_change_nothing(workers, expected, tmp_path):
    write_npy(tmp_path / "shards")
    killed = KilledWorkers(workers, tmp_path)
    with all_steps(tmp_path, killed) as found:
        equal(found, expected)
    assert killed.kills == 5
    assert list(tmp_path.rglob(".unfinished*")) == []


@pytest.mark.skipif(shutil.which("ss") is None, reason="ss, which lists sockets, is not installed: iproute2")
def test_ray_listens_on_loopback_only(workers):
    assert len(list(workers.results(_threads, range(4)))) == 4
    listed = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout.splitlines()
    sockets = [line.split()[3] for line in listed if re.search(r'"(ray|gcs_server)', line)]
    assert len(sockets) > 4
    assert [
        address for address in sockets if "127.0.0.1]:" not in address and "127.0.0.1:" not in address
    ] == []


def test_a_metric_is_that_of_one_index(workers, tmp_path):
    write_npy(tmp_path / "shards")
    index = posh.Index(metric="cosine", recall=0.95)
    batch.build([tmp_path / "shards"], tmp_path / "index", index, workers)
    batch.search(tmp_path / "index", DIGITS.queries, tmp_path / "hits", workers, exact=True)
    one = posh.Index.load(tmp_path / "index" / "template" / "index").add(DIGITS.base)
    equal(batch.read_hits(tmp_path / "hits"), one.search(DIGITS.queries, exact=True))


def test_errors_name_the_shard_and_workers_have_their_threads(workers, tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1.0, np.inf]]))
    posh.POSH(64, 4, n_epochs=1).fit(DIGITS.base[:, :2]).save(tmp_path / "model")
    with pytest.raises(FormatError, match=r"a\.npy: row 0: expected finite numbers") as caught:
        batch.encode(tmp_path / "model", [tmp_path / "a.npy"], tmp_path / "codes", workers)
    assert type(caught.value) is FormatError
    assert list(workers.results(_threads, [0])) == [1]


def test_nobody_at_the_address():
    with pytest.raises(ServiceError, match=r"expected a Ray cluster at 127\.0\.0\.1:9, but none answers"):
        batch.RayWorkers(address="127.0.0.1:9").__enter__()


@pytest.mark.parametrize("step", ["model", "codes", "index", "hits"])
def test_a_killed_driver_can_be_resumed(tmp_path, step):
    check_resuming(tmp_path, step, "RayWorkers(1)")
