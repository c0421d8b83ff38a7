"""Four processes save and load the same files: nothing is lost, no load fails, none sees half a save.

``POSH_ADVERSARY=1`` makes it 500 rounds of each process; the default keeps the test short.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

N_ROUNDS = 500 if os.environ.get("POSH_ADVERSARY") else 8
ROOT = Path(__file__).parent.parent.parent


def test_processes_that_save_and_load_the_same_files(tmp_path):
    command = [sys.executable, "-m", "tests.adversary.savers", str(tmp_path), "4", str(N_ROUNDS)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # BLAS's threads do not survive a fork
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    assert (done.returncode, done.stderr) == (0, "")
    n = 4 * N_ROUNDS
    numbers = f"{n} saves and {2 * n} loads of an index, {n} saves and {n} loads of a model\n"
    assert done.stdout == numbers, done.stdout[:5000]
    names = sorted(entry.name.split("-")[0] for entry in (tmp_path / "index").iterdir())
    assert names == [".posh", "manifest.json", "posh"]
    leftovers = [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")]
    assert not leftovers
