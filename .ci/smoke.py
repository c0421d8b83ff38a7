"""Use an installed posh-ann from a temporary folder: fit, build, search, save, load, command line, service.

Run it with the Python of an environment that has the wheel: ``python smoke.py``, or ``python smoke.py
--serve`` where the extras ``serve`` and ``client`` are installed too. A failure is an exception.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np

import posh
import posh.kernels

POSH = Path(sysconfig.get_path("scripts")) / "posh"


def main() -> None:
    """Check that the installed package is imported, then use it."""
    assert Path(posh.__file__).is_relative_to(sysconfig.get_path("platlib")), posh.__file__
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        use_library()
        compare_kernels()
        use_command_line()
        if "--serve" in sys.argv[1:]:
            use_service()
        os.chdir("/")
    print(f"Python {sys.version.split()[0]}, kernels {', '.join(posh.kernels.available())}: ok")


def use_library() -> None:
    """Fit a hasher, build both kinds of index, save and open files, and reopen a collection."""
    data = posh.datasets.load("digits")
    hasher = posh.POSH(n_bits=256, n_active=16, random_state=0).fit(data.base)
    index = posh.CodeIndex(hasher).add(data.base)
    ids = index.search(data.queries, k=10).ids
    assert posh.metrics.mean_average_precision(data.base_labels[ids], data.query_labels) > 0.7
    index.save("digits.posh")
    assert np.array_equal(ids, posh.open("digits.posh").search(data.queries, k=10).ids)

    by_metric = posh.Index.build(data.base, metric="cosine", recall=0.95)
    nearest = by_metric.search(data.base[:50], k=1).ids
    assert np.array_equal(nearest[:, 0], np.arange(50))

    with posh.create("collections/digits", hasher=hasher) as digits:
        payloads = [{"label": int(label)} for label in data.base_labels]
        digits.upsert(range(len(data.base)), data.base, payloads)
    with posh.open("collections/digits") as digits:
        threes = digits.search(data.queries[:5], k=3, filter={"label": 3}).ids
        assert (data.base_labels[threes.astype(int)] == 3).all()


def compare_kernels() -> None:
    """Check that all kernels of this CPU return the same hits."""
    data = posh.datasets.load("digits")
    index = posh.open("digits.posh")
    expected = index.search(data.queries, k=10)
    for name in posh.kernels.available():
        posh.kernels.use(name)
        hits = index.search(data.queries, k=10)
        assert np.array_equal(hits.ids, expected.ids), name
        assert np.array_equal(hits.scores, expected.scores), name
    posh.kernels.use(None)


def use_command_line() -> None:
    """Run the commands that lead from vectors to hits."""
    run("--version")
    run("fit", "digits", "-o", "digits.safetensors", "--n-bits", "256", "--n-active", "16")
    run("build", "digits", "-o", "digits-index", "--metric", "cosine", "--recall", "0.95")
    run("search", "digits-index", "digits", "-k", "5", "-o", "hits.npz")
    run("info", "--check", "digits-index")
    assert np.load("hits.npz")["ids"].shape[1] == 5


def run(*arguments: str) -> None:
    """Run ``posh`` with arguments; its exit code must be 0."""
    subprocess.run([POSH, *arguments], check=True, stdout=subprocess.DEVNULL)


def use_service() -> None:
    """Start ``posh serve`` on a free port, search with the client, and stop it: it must exit with 0."""
    from posh.client import Client

    command = [POSH, "serve", "collections", "--port", "0", "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as serving:
        try:
            address = re.search(r"http://\S+", serving.stdout.readline())[0]
            with Client(address) as client:
                (info,) = client.collections()
                assert info.name == "digits", info
                assert len(client.collection("digits").search(np.zeros(64), k=3).ids[0]) == 3
        finally:
            serving.send_signal(signal.SIGTERM)
        rest = serving.stdout.read()
    assert serving.returncode == 0, rest


if __name__ == "__main__":
    main()
