"""Commands on a full disk and in a read-only folder: the error names the target and a remedy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import posh
from tests.cli.conftest import DIGITS

FULL = "No space left on device: free some space on the disk, or choose another one, and try again"
REFUSED = "Read-only file system: make the folder and its files writable, or choose another folder"
MOUNTED = 'mount -t tmpfs -o size=24k posh-test disk && exec "$0" -c "$@"'
COMMANDS = {
    "fit digits -o disk/model --n-bits 512 --method lsh": "disk/model",
    "export c disk/items.jsonl": "disk/items.jsonl",
    "export c disk/items.npz": "disk/items.npz",
    "export c disk/items.parquet": "disk/items.parquet",
    "batch encode digits.safetensors digits -o disk/codes.npy": "disk/codes.npy",
    "build digits --model digits.safetensors -o disk/index": "disk/index",
    "batch build shards -o disk/job --metric cosine --local --n-workers 1": "disk/job/sample/part-00000",
}
RUN = """
import subprocess, sys
from posh.cli import main
for command in sys.argv[1:]:
    if command == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", "disk"], check=True)
    else:
        main(command.split())
"""


@pytest.fixture
def here(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSH_DEBUG", raising=False)
    for name in ("disk", "shards"):
        (tmp_path / name).mkdir()
    shutil.copy(home / "digits.safetensors", tmp_path)
    np.save("shards/a.npy", DIGITS.base)
    with posh.Collection("c", metric="cosine") as collection:
        collection.upsert(range(len(DIGITS.base)), DIGITS.base)


def test_a_full_disk_and_then_a_read_only_one(here):
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNTED, sys.executable]
    if shutil.which("unshare") is None or subprocess.run([*prefix, ""], capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here, not even in a namespace of its own")
    refused = [command for command in COMMANDS if "batch" not in command]
    done = subprocess.run([*prefix, RUN, *COMMANDS, "read-only", *refused], capture_output=True, text=True)
    expected = [f"posh: error: {target}: {FULL}" for target in COMMANDS.values()]
    expected += [f"posh: error: {COMMANDS[command]}: {REFUSED}" for command in refused]
    found = [line.replace(f"{Path.cwd()}/", "") for line in done.stderr.splitlines() if ": error: " in line]
    assert found == expected, done.stderr
    assert done.stdout == ""
