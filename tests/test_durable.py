"""Syncs and locks, and the fallbacks where the operating system lacks them."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from posh import _durable, _runtime
from posh.errors import FormatError

# Libraries of others are imported first: they look after themselves. Then what other systems lack is removed.
ELSEWHERE = """
import asyncio, concurrent.futures, logging, multiprocessing, os, random, signal
import sqlite3, subprocess, sys, tempfile
import httpx, joblib, numpy, safetensors.numpy, scipy.sparse, scipy.linalg, sklearn.cluster, sklearn.datasets
import haystack, langchain_core.documents, langchain_core.vectorstores, mcp.server.mcpserver
import starlette.applications, threadpoolctl, granian.server.embed
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
for name in ("register_at_fork", "fork", "sched_getaffinity", "pread", "pwrite", "O_CLOEXEC", "O_DIRECTORY",
             "O_NOFOLLOW", "posix_fadvise", "fdatasync", "getuid", "geteuid", "uname", "sysconf"):
    delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "pause", "setitimer", "pthread_kill"):
    delattr(signal, name)
"""

IMPORTED = """
import importlib, pkgutil, posh
for module in pkgutil.walk_packages(posh.__path__, "posh."):
    importlib.import_module(module.name)
"""

USED = """
import posh, pytest
from posh.cli import main

data = posh.datasets.load("digits")
hasher = posh.POSH(n_bits=64, n_active=4, n_epochs=1, random_state=0).fit(data.base)
index = posh.CodeIndex(hasher).add(data.base)
with pytest.warns(RuntimeWarning, match="no file locks"):
    index.save("index")
    index.save("index")
loaded = posh.CodeIndex.load("index", mmap=True)
assert (loaded.search(data.queries).ids == index.search(data.queries).ids).all()
with pytest.warns(RuntimeWarning, match="no file locks"):
    with posh.Collection("digits", hasher) as digits:
        digits.upsert(range(len(data.base)), data.base)
        with pytest.raises(posh.StorageError, match="this process has it open"):
            posh.Collection("digits")
    assert main(["info", "--check", "digits"]) == 0
    assert len(posh.Collection("digits")) == len(data.base)
"""


@pytest.mark.parametrize("then", [IMPORTED, USED], ids=["all modules are imported", "files and collections"])
def test_posh_works_without_what_other_systems_lack(then, tmp_path):
    pytest.importorskip("granian", reason="needs the extra 'serve'")
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE + then], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def two_descriptors(path):
    return [os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2)]


@pytest.fixture(params=["flock", "in this process"])
def descriptors(request, monkeypatch, tmp_path):
    if request.param != "flock":
        monkeypatch.setattr(_durable, "fcntl", None)
    opened = two_descriptors(tmp_path / "lock")
    yield opened
    for one in opened:
        os.close(one)


@pytest.mark.filterwarnings("ignore:this system has no file locks")
def test_a_lock_excludes_other_descriptors_until_it_is_released(descriptors):
    first, second = descriptors
    _durable.lock_descriptor(first, wait=True)
    with pytest.raises(BlockingIOError):
        _durable.lock_descriptor(second, wait=False)
    _durable.unlock_descriptor(second)  # which has none: the first keeps its own
    with pytest.raises(BlockingIOError):
        _durable.lock_descriptor(second, wait=False)
    _durable.unlock_descriptor(first)
    _durable.lock_descriptor(second, wait=False)
    _durable.unlock_descriptor(second)


@pytest.mark.filterwarnings("ignore:this system has no file locks")
def test_a_waiting_thread_gets_the_lock_when_it_is_released(descriptors):
    first, second = descriptors
    has_it = threading.Event()

    def wait_for_it() -> None:
        _durable.lock_descriptor(second, wait=True)
        has_it.set()

    _durable.lock_descriptor(first, wait=True)
    thread = threading.Thread(target=wait_for_it)
    thread.start()
    assert not has_it.wait(0.1)
    _durable.unlock_descriptor(first)
    assert has_it.wait(10)
    thread.join()
    _durable.unlock_descriptor(second)


def test_shared_locks_exclude_only_others(tmp_path):
    first, second = two_descriptors(tmp_path / "lock")
    _durable.lock_descriptor(first, wait=False, shared=True)
    _durable.lock_descriptor(second, wait=False, shared=True)
    with pytest.raises(BlockingIOError):
        _durable.lock_descriptor(second, wait=False)
    os.close(first)
    os.close(second)


@pytest.mark.parametrize("has_full", [True, False], ids=["full", "only fsync"])
def test_macos_writes_the_cache_of_the_disk_too(has_full, monkeypatch):
    calls = []

    def control(descriptor, what):
        calls.append((descriptor, what))
        if not has_full:
            raise OSError("not on this file system")

    monkeypatch.setattr(_durable, "fcntl", SimpleNamespace(F_FULLFSYNC=51, fcntl=control))
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append(descriptor))
    _durable.sync_descriptor(7)
    assert calls == ([(7, 51)] if has_full else [(7, 51), 7])


def test_windows_neither_opens_folders_nor_ends_processes(monkeypatch, tmp_path):
    def refuse(*arguments):
        raise AssertionError(arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        patch.setattr(os, "open", refuse)
        patch.setattr(os, "kill", refuse)
        _durable.sync_folder(tmp_path)
        assert _runtime.is_process_alive(12345)


def test_a_sync_that_fails_names_the_folder(monkeypatch, tmp_path):
    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(_durable, "sync_descriptor", failing)
    with pytest.raises(OSError, match=re.escape(f"Input/output error: '{tmp_path}'")):
        _durable.sync_folder(tmp_path)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(15, dtype=np.float32).reshape(3, 5),
        np.asfortranarray(np.arange(15, dtype=np.int64).reshape(3, 5)),
        np.array([True, False]),
        np.empty((0, 7), np.uint8),
        np.float64(2.5),
    ],
    ids=["rows", "columns", "bool", "empty", "number"],
)
def test_arrays_are_read_into_whole_cache_lines(array, tmp_path):
    path = tmp_path / "array.npy"
    _durable.write_with_checksum(path, np.asarray(array))
    with path.open("rb") as file:
        found = _durable.read_array(path, file, mmap=False)
    np.testing.assert_array_equal(found, array, strict=True)
    assert found.flags.f_contiguous == np.asarray(array).flags.f_contiguous
    assert found.flags.writeable
    assert found.ctypes.data % 64 == 0


def test_an_array_file_that_ends_early_is_named(tmp_path):
    path = tmp_path / "array.npy"
    np.save(path, np.arange(10))
    os.truncate(path, path.stat().st_size - 8)
    with path.open("rb") as file, pytest.raises(FormatError, match="expected 80 bytes of numbers, found 72"):
        _durable.read_array(path, file, mmap=False)
