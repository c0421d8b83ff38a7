"""A collection is open once: in one process, not in its forks, until it is closed or forgotten."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading

import pytest

import posh
from posh.collection import opening
from tests.collection.implementations import DATA


def test_one_at_a_time(path):
    with posh.Collection(path) as collection:
        with pytest.raises(posh.StorageError, match="but this process has it open: close it there first"):
            posh.Collection(path)
        assert collection.count() == 10
    posh.Collection(path).close()


HOLDER = """
import os, sys, time, posh
collection = posh.Collection(sys.argv[1])
collection.upsert(["held"], [[0.0] * 8])
print("open", flush=True)
time.sleep(60)
"""

FORKED = """
import os, sys, posh
collection = posh.Collection(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        collection.count()
    except ValueError as error:
        os.write(1, str(error).encode())
    collection.close()
    os._exit(0)
os.waitpid(child, 0)
try:
    posh.Collection(sys.argv[1])
except posh.StorageError:
    print(" still ours", collection.count())
"""


def test_other_processes(path):
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(posh.StorageError, match=f"but process {process.pid} has it open: close it there"):
            posh.Collection(path)
        os.kill(process.pid, signal.SIGKILL)
    with posh.Collection(path) as collection:
        assert "held" in collection


def test_a_forked_child_may_not_use_it(path):
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(path)], capture_output=True, text=True, check=True
    )
    assert "got one that was opened before a fork: open it in the process that uses it" in done.stdout
    assert done.stdout.endswith("still ours 10\n")


FORKED_AND_KILLED = """
import os, signal, sys, time, posh
collection = posh.Collection(sys.argv[1])
collection.upsert(["kept"], [[0.0] * 8])
child = os.fork()
if child == 0:
    os.write(1, b"%d\\n" % os.getpid())
    sys.stdin.readline()  # lives until it is told to end, then ends as Python does
    sys.exit()
signal.pause()
"""


def test_a_forked_child_does_not_keep_the_folder_of_a_dead_parent(path):
    """The child inherits the locked file, and must not keep the lock when its parent is killed."""
    command = [sys.executable, "-c", FORKED_AND_KILLED, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        child = int(process.stdout.readline())
        with pytest.raises(posh.StorageError, match=f"but process {process.pid} has it open"):
            posh.Collection(path)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        os.kill(child, 0)  # it lives
        with posh.Collection(path) as collection:
            collection.upsert(["later"], DATA[:1])
            process.stdin.close()  # the child ends while the collection is open here
            assert process.stdout.read() == b""
            collection.upsert(["last"], DATA[:1])
    with posh.Collection(path) as collection:
        assert all(name in collection for name in ("kept", "later", "last"))


def test_a_process_that_has_ended_is_not_named_as_the_holder(path):
    """Its number may be that of another program by now; a child that C code has forked may have the file."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    (path / "lock").write_text(f"{ended.pid}\n")
    with (path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(
            posh.StorageError, match=rf"not the one that opened it last \({ended.pid}, which no longer runs"
        ):
            posh.Collection(path)


def test_locks_while_other_threads_fork(path):
    """Between opening the file and knowing of it, no fork may come."""
    stop = threading.Event()

    def fork_all_the_time() -> None:
        while not stop.is_set() and len(children) < 40:
            child = os.fork()
            if child == 0:
                signal.pause()  # with whatever it has inherited
                os._exit(0)
            children.append(child)

    children: list[int] = []
    thread = threading.Thread(target=fork_all_the_time)
    thread.start()
    try:
        for _ in range(100):
            opening.FolderLock(path).release()
            if len(children) > 30:
                break
    finally:
        stop.set()
        thread.join()
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_a_forgotten_collection_lets_go_of_its_folder(path):
    posh.Collection(path)
    with posh.Collection(path) as collection:
        assert collection.count() == 10
