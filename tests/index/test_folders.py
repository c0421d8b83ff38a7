"""Index folders that others use, too: what is not ours stays; full disks and mapped files."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import posh
from posh import _durable
from posh.index.open import load_index
from tests.conftest import clusters
from tests.index.test_files import GOLDEN, KINDS, files_of

DATA = clusters(600, 8)
HASHER = posh.LSH(12, random_state=0).fit(DATA)
INDEXES = [posh.CodeIndex(HASHER).add(DATA[: 100 * (i + 1)]) for i in range(4)]
UUID = "0123456789abcdef" * 2


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def sizes() -> list[int]:
    return [len(index) for index in INDEXES]


# What is not ours ------------------------------------------------------------------------------------

FOREIGN = {
    "data-train": {"data-train/x.npy": "precious"},
    "posh-data-train": {"posh-data-train/x.npy": "precious"},
    "a manifest": {"manifest.json": '{"name": "app", "data": "data-train"}', "data-train/x.npy": "precious"},
    "a list": {"manifest.json": "[]"},
    "no JSON": {"manifest.json": "{"},
    "a note": {"thesis.txt": "precious"},
}


@pytest.mark.parametrize("files", FOREIGN.values(), ids=FOREIGN)
def test_a_users_folder_is_refused_before_anything_is_written(tmp_path, files):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    before = tree(tmp_path)
    with pytest.raises(FileExistsError, match=r"choose another folder"):
        INDEXES[0].save(tmp_path)
    assert tree(tmp_path) == before


def test_a_users_files_beside_an_index_stay(tmp_path):
    INDEXES[0].save(tmp_path)
    names = ["thesis.txt", "data-train/x.npy", f"data-{UUID}/x.npy", f"posh-data-{UUID}/notes.txt"]
    names += [f"{next(tmp_path.glob('posh-data-*')).name}/notes.txt", ".manifest.json.swp"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("precious")
    INDEXES[1].save(tmp_path)
    INDEXES[2].save(tmp_path)
    assert len(posh.CodeIndex.load(tmp_path)) == len(INDEXES[2])
    assert all((tmp_path / name).read_text() == "precious" for name in names)


@pytest.mark.parametrize("name", ["thesis", "..", "data-train"])
def test_a_manifest_that_names_a_users_folder(tmp_path, name):
    folder, users = tmp_path / "index", tmp_path / "index" / name
    INDEXES[0].save(folder)
    users.mkdir(exist_ok=True)
    (users / "precious.npy").write_text("precious")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest |= {"data": name, "files": {}}
    manifest.pop("sha256")
    (folder / "manifest.json").write_text(
        json.dumps(manifest | {"sha256": _durable._compute_digest(manifest)})
    )
    with pytest.raises(posh.FormatError, match="outside of its folder"):
        posh.CodeIndex.load(folder)
    INDEXES[1].save(folder)
    assert (users / "precious.npy").read_text() == "precious"
    assert len(posh.CodeIndex.load(folder)) == len(INDEXES[1])


def test_an_older_folder_is_saved_over(tmp_path):
    folder = tmp_path / "index"
    shutil.copytree(GOLDEN / "posh-index-v1-exact", folder)
    INDEXES[0].save(folder)
    assert not list(folder.glob("data-*"))
    assert len(posh.CodeIndex.load(folder)) == len(INDEXES[0])


def test_what_interrupted_saves_have_left_is_removed(tmp_path):
    for name in (f"posh-data-{UUID}/codes.npy", f"posh-data-{UUID[::-1]}/hasher.safetensors"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("half")
    (tmp_path / f".manifest.json.{UUID}").write_text("half")
    INDEXES[0].save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert "half" not in [path.read_text(errors="replace") for path in files_of(tmp_path)]


# Power failures and full disks -----------------------------------------------------------------------


def test_everything_is_synced_before_what_names_it(tmp_path, monkeypatch):
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def name(path: str | Path) -> str:
        return "data" if Path(path).name.startswith("posh-data-") else Path(path).name.split(".json.")[0]

    def recorded_fsync(file):
        events.append(f"sync {name(Path(f'/proc/self/fd/{file}').readlink())}")
        fsync(file)

    def recorded_replace(self, target):
        events.append(f"rename {name(target)}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "replace", recorded_replace)
    INDEXES[0].save(tmp_path / "parent" / "index")
    files = {f"sync {path.name}" for path in (tmp_path / "parent" / "index").glob("posh-data-*/*")}
    folders = [tmp_path.parent.name, tmp_path.name, "parent"]  # what holds the last old one, and the new ones
    assert events[:3] == [f"sync {folder}" for folder in folders]
    assert set(events[3:-5]) == files
    expected = ["sync data", "sync index", "sync .manifest", "rename manifest.json", "sync index"]
    assert events[-5:] == expected


@pytest.mark.parametrize("when", range(1, 11))
def test_a_disk_that_fails_leaves_an_index(tmp_path, monkeypatch, when):
    INDEXES[0].save(tmp_path)
    before, count, fsync = tree(tmp_path), iter(range(1, 100)), os.fsync

    def failing(file):
        if next(count) >= when:
            raise OSError(errno.EIO, "Input/output error")
        fsync(file)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match=f"Input/output error: repair the disk.*{tmp_path}"):
        INDEXES[1].save(tmp_path)
    monkeypatch.undo()
    found = len(posh.CodeIndex.load(tmp_path))
    if found == len(INDEXES[0]):
        assert tree(tmp_path) == before
    else:  # the last sync failed: after a power failure the old manifest may be back, and needs its files
        assert found == len(INDEXES[1])
        assert before.keys() <= tree(tmp_path).keys()
    INDEXES[2].save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


# Mapped files ----------------------------------------------------------------------------------------


@pytest.fixture
def small_files_are_mapped(monkeypatch):
    """As if they were large."""
    monkeypatch.setattr(_durable, "_COPIED", 0)


@pytest.mark.usefixtures("small_files_are_mapped")
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_mapped_file_that_was_cut_is_named(tmp_path, kind):
    KINDS[kind].save(tmp_path / "index")
    index = load_index(tmp_path / "index", mmap=True)
    held = [file.path for file in index.snapshot().mapped if file.mapping() is not None]
    assert {"ids.npy", "vectors.npy" if kind == "nearest" else "codes.npy"} <= {path.name for path in held}
    for path in held:
        content = path.read_bytes()
        os.truncate(path, len(content) - 1)
        with pytest.raises(posh.FormatError, match=rf"{path.name}: expected {len(content)} bytes, found"):
            index.search(DATA[:2], 3)
        path.write_bytes(content)
    np.testing.assert_array_equal(index.search(DATA[:2], 3).ids, KINDS[kind].search(DATA[:2], 3).ids)


TRUNCATED = """
import os, sys, pathlib, numpy as np, posh
from posh import _durable
_durable._COPIED = 0
index = posh.CodeIndex.load(sys.argv[1], mmap=True)
for file in pathlib.Path(sys.argv[1]).glob("*/*.npy"):
    os.truncate(file, 0)
try:
    index.search(np.ones((1, 8)))
except posh.FormatError:
    print("noticed")
"""


def test_an_emptied_mapped_file_does_not_kill_the_process(tmp_path):
    INDEXES[0].save(tmp_path)
    done = subprocess.run([sys.executable, "-c", TRUNCATED, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "noticed\n"), done.stderr


@pytest.mark.usefixtures("small_files_are_mapped")
def test_a_mapped_index_outlives_saves_and_what_is_not_mapped_any_more_may_change(tmp_path):
    INDEXES[0].save(tmp_path)
    index = posh.CodeIndex.load(tmp_path, mmap=True)
    expected = INDEXES[0].search(DATA[:5], 3).ids
    INDEXES[1].save(tmp_path)
    np.testing.assert_array_equal(index.search(DATA[:5], 3).ids, expected)
    other = posh.CodeIndex.load(tmp_path, mmap=True).delete([199]).compact()
    for file in tmp_path.glob("*/*.npy"):
        os.truncate(file, 0)
    assert other.search(DATA[0], 3).ids[0, 0] == 0
