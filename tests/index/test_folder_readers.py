"""One writer of an index folder, any number of readers."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

import posh
from posh import _durable
from tests.index.test_files import GOLDEN
from tests.index.test_folders import INDEXES, sizes, tree


def test_threads_that_save_to_one_folder_wait_for_one_another(tmp_path):
    def save(index: posh.CodeIndex) -> None:
        for _ in range(10):
            index.save(tmp_path / "index")

    threads = [threading.Thread(target=save, args=(index,)) for index in INDEXES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(posh.CodeIndex.load(tmp_path / "index")) in sizes()
    assert len(list((tmp_path / "index").iterdir())) == 3


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("n_saves", [1, 5])
def test_a_reader_whose_files_are_removed_reads_the_new_ones(tmp_path, monkeypatch, mmap, n_saves):
    INDEXES[0].save(tmp_path)
    read, saves = _durable._read_manifest, list(INDEXES[1:] + INDEXES)[:n_saves]
    last = saves[-1]

    def overtaken(*args):
        manifest = read(*args)
        if saves:
            saves.pop(0).save(tmp_path)
        return manifest

    monkeypatch.setattr(_durable, "_read_manifest", overtaken)
    assert len(posh.CodeIndex.load(tmp_path, mmap=mmap)) == len(last)


def test_a_reader_that_is_always_overtaken_gives_up(tmp_path, monkeypatch):
    INDEXES[0].save(tmp_path)
    read = _durable._read_manifest

    def overtaken(*args):
        manifest = read(*args)
        INDEXES[0].save(tmp_path)
        return manifest

    monkeypatch.setattr(_durable, "_read_manifest", overtaken)
    monkeypatch.setattr(_durable, "_TRIES", 3)
    with pytest.raises(posh.FormatError, match="3 saves have replaced them: try again"):
        posh.CodeIndex.load(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    INDEXES[0].save(tmp_path)
    next(tmp_path.glob("*/ids.npy")).unlink()
    with pytest.raises(posh.FormatError, match=r"ids\.npy: listed in the manifest, but missing"):
        posh.CodeIndex.load(tmp_path)


def test_loading_writes_nothing(tmp_path):
    shutil.copytree(GOLDEN / "posh-index-v1-exact", tmp_path / "index")
    before = tree(tmp_path)
    posh.CodeIndex.load(tmp_path / "index")
    assert tree(tmp_path) == before


HOLDER = """
import os, signal, sys, time
from posh import _durable
from pathlib import Path
with _durable.hold_lock(Path(sys.argv[1])):
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
    assert len(posh.CodeIndex.load(tmp_path)) == len(INDEXES[0])


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
        with _durable.hold_lock(tmp_path / "lock"):
            pass
    assert forked.wait(20)
    thread.join()


def test_who_waited_for_a_lock_file_that_was_replaced_waits_for_the_new_one(tmp_path, monkeypatch):
    path, opened, entered = tmp_path / "lock", threading.Event(), threading.Event()
    really_lock = _durable.LockFile.lock

    def lock(file, *, wait: bool) -> None:
        if threading.current_thread() is waiting:
            opened.set()
        really_lock(file, wait=wait)

    def wait() -> None:
        with _durable.hold_lock(path):
            entered.set()

    monkeypatch.setattr(_durable.LockFile, "lock", lock)
    waiting = threading.Thread(target=wait)
    with contextlib.ExitStack() as new:
        with _durable.hold_lock(path):
            waiting.start()
            assert opened.wait(20)
            path.unlink()
            new.enter_context(_durable.hold_lock(path))
        assert not entered.wait(0.3)
    waiting.join(timeout=20)
    assert entered.is_set()
