"""Milvus Lite for tests: a file, and a server at a loopback address, one of each for a process."""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from posh.engines.milvus import Milvus, MilvusCollection

IS_ON = os.environ.get("POSH_TEST_MILVUS") == "1"
needs_milvus = pytest.mark.skipif(not IS_ON, reason="needs pymilvus and milvus-lite: set POSH_TEST_MILVUS=1")


def start_server(file: Path) -> tuple[subprocess.Popen, str]:
    """Start Milvus Lite in a process of its own, at a free port of 127.0.0.1."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if importlib.metadata.version("milvus-lite").startswith("2."):
        import milvus_lite

        folder = Path(milvus_lite.__file__).parent / "lib"
        command = [str(folder / "milvus"), str(file), f"127.0.0.1:{port}", "ERROR"]
        environment = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    else:
        command = [sys.executable, "-m", "milvus_lite", "server", "--data-dir", str(file)]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        environment = dict(os.environ)
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, cwd=file.parent, stdout=quiet, stderr=quiet)
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, f"http://127.0.0.1:{port}"
        time.sleep(0.1)
    process.kill()
    raise TimeoutError("Milvus Lite did not start within 30 seconds")


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="posh-milvus-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def file() -> Milvus:
    """A file of Milvus Lite."""
    return Milvus(_folder() / "tests.db")


@functools.cache
def server() -> Milvus:
    """A server at a loopback address."""
    process, uri = start_server(_folder() / "served.db")
    atexit.register(process.wait)
    atexit.register(process.kill)
    return Milvus(uri)


def name_of(path: Path) -> str:
    """A name for the collection of a test, from the path of its own that the test has."""
    parts = "_".join(path.parts[-3:])
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in f"t_{parts}")


def create_in_file(path: Path, *args, **options) -> MilvusCollection:
    return MilvusCollection(file(), name_of(path), *args, **options)


def create_on_server(path: Path, *args, **options) -> MilvusCollection:
    return MilvusCollection(server(), name_of(path), *args, **options)
