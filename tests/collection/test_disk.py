"""Full disks and folders that are read-only: a clear error, nothing lost, and searches go on."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import posh

ROOT = Path(__file__).parent.parent.parent
MOUNTED = 'mount -t tmpfs -o size=16m posh-test "$0" && exec "$@"'


def require_fine(program: str, folder: Path, *prefix: str) -> None:
    command = [*prefix, sys.executable, "-m", "tests.collection.disk", program, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "fine\n", done.stderr


def test_files_that_may_not_grow(tmp_path):
    require_fine("limited", tmp_path / "shop")


@pytest.mark.parametrize("program", ["filled", "brim"])
def test_a_full_disk(tmp_path, program):
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNTED, str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here, not even in a namespace of its own")
    require_fine(program, tmp_path / "shop", *prefix)
    assert not any(tmp_path.iterdir())  # it was another file system


def test_a_read_only_folder():
    folder = Path(tempfile.mkdtemp(prefix="posh-"))  # which any user can reach
    try:
        folder.chmod(0o755)
        require_fine("read-only", folder / "shop")
    finally:
        shutil.rmtree(folder)


def test_a_place_where_no_folder_can_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        posh.StorageError, match="expected a folder that can be created and read, got Not a directory"
    ):
        posh.Collection(tmp_path / "file" / "below")
