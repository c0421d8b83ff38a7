"""Several processes compete for a collection and are killed: nothing is lost, nothing is done twice.

``POSH_ADVERSARY=1`` makes it 300 rounds instead of 10.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import posh
from posh.collection.maintenance import check_collection
from tests.collection.implementations import SPARSE

ROOT = Path(__file__).parent.parent.parent
ROUNDS = 300 if os.environ.get("POSH_ADVERSARY") == "1" else 10


def test_processes_that_compete_for_a_folder(tmp_path):
    folder, logs = tmp_path / "shop", tmp_path / "logs"
    logs.mkdir()
    with posh.Collection(folder, SPARSE) as collection:
        collection.upsert(["count"], [[0.0] * 8], [{"n": 0}])
    command = [sys.executable, "-m", "tests.adversary.competitors", str(folder), str(logs), str(ROUNDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr
    lines = [line for log in logs.iterdir() for line in log.read_text().splitlines()]
    written = [line.removeprefix("written ") for line in lines if line.startswith("written ")]
    assert [line for line in lines if line.startswith("wrong")] == []
    with posh.Collection(folder) as collection:
        ids = [item.id for item in collection.items()]
        assert len(ids) == len(set(ids))
        assert set(written) <= set(ids)  # nothing that was acknowledged is lost
        assert len(ids) - 1 - len(written) <= ROUNDS  # each kill may leave one write without its note
        assert collection.get(["count"])[0].payload == {"n": len(ids) - 1}  # nothing was done twice
    assert check_collection(folder).problems == []
    print(f"{ROUNDS} kills, {len(written)} writes acknowledged, {lines.count('refused')} times refused")
    assert written
    assert "refused" in lines
