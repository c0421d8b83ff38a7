"""Index folders that others use, too: what is not ours stays, writers wait, readers are not disturbed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import posh
from posh import _files, _folder
from tests.conftest import clusters
from tests.index.test_files import GOLDEN, KINDS, files_of

DATA = clusters(600, 8)
HASHER = posh.LSH(12, random_state=0).fit(DATA)
INDEXES = [posh.Index(HASHER).add(DATA[: 100 * (i + 1)]) for i in range(4)]
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
    assert len(posh.Index.load(tmp_path)) == len(INDEXES[2])
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
    (folder / "manifest.json").write_text(json.dumps(manifest | {"sha256": _folder._digest(manifest)}))
    with pytest.raises(posh.FormatError, match="outside of its folder"):
        posh.Index.load(folder)
    INDEXES[1].save(folder)
    assert (users / "precious.npy").read_text() == "precious"
    assert len(posh.Index.load(folder)) == len(INDEXES[1])


def test_an_older_folder_is_saved_over(tmp_path):
    folder = tmp_path / "index"
    shutil.copytree(GOLDEN / "posh-index-v1-exact", folder)
    INDEXES[0].save(folder)
    assert not list(folder.glob("data-*"))
    assert len(posh.Index.load(folder)) == len(INDEXES[0])


def test_what_interrupted_saves_have_left_is_removed(tmp_path):
    for name in (f"posh-data-{UUID}/codes.npy", f"posh-data-{UUID[::-1]}/hasher.safetensors"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("half")
    (tmp_path / f".manifest.json.{UUID}").write_text("half")
    INDEXES[0].save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert "half" not in [path.read_text(errors="replace") for path in files_of(tmp_path)]


# One writer, any number of readers -------------------------------------------------------------------


def test_threads_that_save_to_one_folder_wait_for_one_another(tmp_path):
    def save(index: posh.Index) -> None:
        for _ in range(10):
            index.save(tmp_path / "index")

    threads = [threading.Thread(target=save, args=(index,)) for index in INDEXES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(posh.Index.load(tmp_path / "index")) in sizes()
    assert len(list((tmp_path / "index").iterdir())) == 3


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("n_saves", [1, 5])
def test_a_reader_whose_files_are_removed_reads_the_new_ones(tmp_path, monkeypatch, mmap, n_saves):
    INDEXES[0].save(tmp_path)
    read, saves = _folder._read_manifest, list(INDEXES[1:] + INDEXES)[:n_saves]
    last = saves[-1]

    def overtaken(*args):
        manifest = read(*args)
        if saves:
            saves.pop(0).save(tmp_path)
        return manifest

    monkeypatch.setattr(_folder, "_read_manifest", overtaken)
    assert len(posh.Index.load(tmp_path, mmap=mmap)) == len(last)


def test_a_reader_that_is_always_overtaken_gives_up(tmp_path, monkeypatch):
    INDEXES[0].save(tmp_path)
    read = _folder._read_manifest

    def overtaken(*args):
        manifest = read(*args)
        INDEXES[0].save(tmp_path)
        return manifest

    monkeypatch.setattr(_folder, "_read_manifest", overtaken)
    monkeypatch.setattr(_folder, "_TRIES", 3)
    with pytest.raises(posh.FormatError, match="3 saves have replaced them: try again"):
        posh.Index.load(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    INDEXES[0].save(tmp_path)
    next(tmp_path.glob("*/ids.npy")).unlink()
    with pytest.raises(posh.FormatError, match=r"ids\.npy: listed in the manifest, but missing"):
        posh.Index.load(tmp_path)


def test_loading_writes_nothing(tmp_path):
    shutil.copytree(GOLDEN / "posh-index-v1-exact", tmp_path / "index")
    before = tree(tmp_path)
    posh.Index.load(tmp_path / "index")
    assert tree(tmp_path) == before


HOLDER = """
import os, signal, sys, time
from posh import _files
from pathlib import Path
with _files.locked(Path(sys.argv[1])):
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_lock_ends_with_its_process_though_a_child_lives(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path / ".posh-lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
    try:
        saver = threading.Thread(target=INDEXES[0].save, args=(tmp_path,), daemon=True)
        saver.start()
        saver.join(timeout=20)
        assert not saver.is_alive()
    finally:
        os.kill(child, signal.SIGKILL)
    assert len(posh.Index.load(tmp_path)) == len(INDEXES[0])


def test_no_fork_comes_between_opening_a_lock_file_and_knowing_of_it(tmp_path, monkeypatch):
    """The child would not close the file, and would keep the lock."""
    forked, really_open = threading.Event(), os.open

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        forked.set()

    def slowly_open(path, *args, **options) -> int:
        file = really_open(path, *args, **options)
        thread.start()
        assert not forked.wait(0.3)
        return file

    thread = threading.Thread(target=fork)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", slowly_open)
        with _files.locked(tmp_path / "lock"):
            pass
    assert forked.wait(20)
    thread.join()


def test_who_waited_for_a_lock_file_that_was_replaced_waits_for_the_new_one(tmp_path):
    path, entered = tmp_path / "lock", threading.Event()

    def wait() -> None:
        with _files.locked(path):
            entered.set()

    waiting = threading.Thread(target=wait)
    with contextlib.ExitStack() as new:
        with _files.locked(path):
            waiting.start()
            while len(_files._lock_files) < 2:  # until it has opened the file
                time.sleep(0.01)
            path.unlink()
            new.enter_context(_files.locked(path))
        assert not entered.wait(0.3)
    waiting.join(timeout=20)
    assert entered.is_set()


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
            raise OSError("disk full")
        fsync(file)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="disk full"):
        INDEXES[1].save(tmp_path)
    monkeypatch.undo()
    found = len(posh.Index.load(tmp_path))
    if found == len(INDEXES[0]):
        assert tree(tmp_path) == before
    else:  # the last sync failed: after a power failure the old manifest may be back, and needs its files
        assert found == len(INDEXES[1])
        assert before.keys() <= tree(tmp_path).keys()
    INDEXES[2].save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


# Mapped files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_mapped_file_that_was_cut_is_named(tmp_path, kind):
    KINDS[kind].save(tmp_path / "index")
    index = posh.Index.load(tmp_path / "index", mmap=True)
    held = [file.path for file in index.snapshot().documents.mapped if file.mapping() is not None]
    assert {"codes.npy", "ids.npy"} <= {path.name for path in held}
    for path in held:
        content = path.read_bytes()
        os.truncate(path, len(content) - 1)
        with pytest.raises(posh.FormatError, match=rf"{path.name}: expected {len(content)} bytes, found"):
            index.search(DATA[:2], 3)
        path.write_bytes(content)
    np.testing.assert_array_equal(index.search(DATA[:2], 3).ids, KINDS[kind].search(DATA[:2], 3).ids)


TRUNCATED = """
import os, sys, pathlib, numpy as np, posh
index = posh.Index.load(sys.argv[1], mmap=True)
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


def test_a_mapped_index_outlives_saves_and_what_is_not_mapped_any_more_may_change(tmp_path):
    INDEXES[0].save(tmp_path)
    index = posh.Index.load(tmp_path, mmap=True)
    expected = INDEXES[0].search(DATA[:5], 3).ids
    INDEXES[1].save(tmp_path)
    np.testing.assert_array_equal(index.search(DATA[:5], 3).ids, expected)
    other = posh.Index.load(tmp_path, mmap=True).remove([199]).compact()
    for file in tmp_path.glob("*/*.npy"):
        os.truncate(file, 0)
    assert other.search(DATA[0], 3).ids[0, 0] == 0
