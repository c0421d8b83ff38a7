"""A writer that is killed at any moment: what was acknowledged is there, the rest completely or not at all.

``POSH_KILLS=200`` sets how many times; the default keeps the test short.
"""

from __future__ import annotations

import copy
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import posh
from posh.collection.filters import list_fields
from posh.collection.tables import load_payload
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.collection.writer import done, operations, small_limits

KILLS = int(os.environ.get("POSH_KILLS", "8"))
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def writer(tmp_path):
    command = [sys.executable, "-m", "tests.collection.writer", str(tmp_path / "shop")]
    # BLAS's threads do not survive a fork, and a killed child keeps the lock that tqdm's bars share.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


def killed(writer: subprocess.Popen, seed: int, rng: np.random.Generator) -> int:
    """Start a child, kill it at random, and return how many operations it has acknowledged.

    It is killed soon after it was started, while it opens the collection, or soon after some operations.
    """
    writer.stdin.write(f"{seed}\n")
    writer.stdin.flush()
    child = int(writer.stdout.readline())
    wanted, acknowledged = int(rng.integers(-1, 8)), -1
    while acknowledged < wanted:
        acknowledged = int(writer.stdout.readline())
    time.sleep(rng.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    while (line := writer.stdout.readline()) != "gone\n":
        acknowledged = int(line)
    return max(0, acknowledged)


def content(collection: posh.BaseCollection) -> list:
    """Everything in it, in the order of writing, and the hasher."""
    items = [(item.id, item.vector.tolist(), item.payload) for item in collection.items()]
    return [items, collection.hasher.n_bits]


def require_consistency(collection: posh.Collection) -> None:
    """Rows of all tables belong together."""
    with collection._store.reading() as (snapshot, connection):
        stored = connection.execute("SELECT seq, payload, vector FROM items ORDER BY seq").fetchall()
        expected = {
            (*field, seq) for seq, payload, _ in stored for field in list_fields(load_payload(payload))
        }
        assert set(connection.execute("SELECT * FROM fields")) == expected
        codes = connection.execute("SELECT generation, seq, code FROM codes ORDER BY seq").fetchall()
        assert [(generation, seq) for generation, seq, _ in codes] == [
            (snapshot.generation, row[0]) for row in stored
        ]
        if stored:
            vectors = np.frombuffer(b"".join(row[2] for row in stored), "<f4").reshape(len(stored), -1)
            encoded = snapshot.index.encode(vectors).active.astype("<u2")
            assert [code for *_, code in codes] == [code.tobytes() for code in encoded]
        assert connection.execute("SELECT number FROM generations").fetchall() == [(snapshot.generation,)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def answers(collection: posh.BaseCollection) -> list:
    filters = [None, {"odd": True}, {"half": {"lt": 100}}, {"not": {"tag": "3"}}]
    found = [collection.search(DATA[::60], 25, filter=filter_) for filter_ in filters]
    return [[matches.ids.tolist(), matches.scores.tolist()] for matches in found]


def test_killed_at_any_moment(tmp_path, writer, monkeypatch):
    for module, name in [("indexing", "WORTH"), ("indexing", "BLOCK"), ("snapshot", "_SPARE")]:
        monkeypatch.setattr(f"posh.collection.{module}.{name}", None)  # restored after small_limits
    small_limits()
    rng = np.random.default_rng(0)
    plain = ReferenceCollection(SPARSE)
    posh.Collection(tmp_path / "shop", SPARSE).close()
    total = halfway = 0
    for seed in range(KILLS):
        acknowledged = killed(writer, seed, rng)
        todo = operations(seed)
        for _ in range(acknowledged):
            done(plain, next(todo))
        following = copy.deepcopy(plain)
        done(following, next(todo))
        with posh.Collection(tmp_path / "shop") as collection:
            found = content(collection)
            assert found in (content(plain), content(following))
            halfway += found != content(plain)
            plain = plain if found == content(plain) else following
            require_consistency(collection)
            assert answers(collection) == answers(plain)
        ignored = shutil.ignore_patterns("snapshot-*")
        shutil.copytree(tmp_path / "shop", tmp_path / f"copy {seed}", ignore=ignored)
        with posh.Collection(tmp_path / f"copy {seed}") as rebuilt:
            assert answers(rebuilt) == answers(plain)
        shutil.rmtree(tmp_path / f"copy {seed}")
        total += acknowledged
    print(f"{KILLS} kills, {total} operations acknowledged, {halfway} done but not acknowledged")
    assert total > 0
