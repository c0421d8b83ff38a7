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
    """Check that the installed package is the one that is imported, then use it."""
    assert Path(posh.__file__).is_relative_to(sysconfig.get_path("platlib")), posh.__file__
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        library()
        every_kernel_agrees()
        command_line()
        if "--serve" in sys.argv[1:]:
            service()
        os.chdir("/")
    print(f"Python {sys.version.split()[0]}, kernels {', '.join(posh.kernels.available())}: ok")


def library() -> None:
    """A hasher, both kinds of index, files, and a collection that is opened again."""
    data = posh.datasets.load("digits")
    hasher = posh.POSH(n_bits=256, n_active=16, random_state=0).fit(data.base)
    index = posh.Index(hasher).add(data.base)
    ids, _ = index.search(data.queries, k=10)
    assert posh.metrics.mean_average_precision(data.base_labels[ids], data.query_labels) > 0.7
    index.save("digits.posh")
    again, _ = posh.Index.load("digits.posh", mmap=True).search(data.queries, k=10)
    assert np.array_equal(ids, again)

    by_metric = posh.Index.build(data.base, metric="cosine", recall=0.95)
    nearest, _ = by_metric.search(data.base[:50], k=1)
    assert np.array_equal(nearest[:, 0], np.arange(50))

    with posh.Collection("collections/digits", hasher) as digits:
        digits.upsert(range(len(data.base)), data.base, [{"label": int(one)} for one in data.base_labels])
    with posh.Collection("collections/digits") as digits:
        found, _ = digits.search(data.queries[:5], k=3, filter={"label": 3})
        assert all(data.base_labels[one] == 3 for row in found for one in row)


def every_kernel_agrees() -> None:
    """The wheel has all kernels of its platform, and each gives the same hits here."""
    data = posh.datasets.load("digits")
    index = posh.Index.load("digits.posh")
    expected = index.search(data.queries, k=10)
    for name in posh.kernels.available():
        posh.kernels.use(name)
        ids, scores = index.search(data.queries, k=10)
        assert np.array_equal(ids, expected.ids), name
        assert np.array_equal(scores, expected.scores), name
    posh.kernels.use(None)


def command_line() -> None:
    """The commands from vectors to hits."""
    run("--version")
    run("fit", "digits", "-o", "digits.safetensors", "--bits", "256", "--active", "16")
    run("build", "digits", "-o", "digits-index", "--metric", "cosine", "--recall", "0.95")
    run("search", "digits-index", "digits", "-k", "5", "-o", "hits.npz")
    run("check", "digits-index")
    assert np.load("hits.npz")["ids"].shape[1] == 5


def run(*arguments: str) -> None:
    """Run ``posh`` with arguments; its exit code must be 0."""
    subprocess.run([POSH, *arguments], check=True, stdout=subprocess.DEVNULL)


def service() -> None:
    """``posh serve`` on a free port, a search by the client, and SIGTERM, after which it must exit with 0."""
    from posh.serve.client import Client

    command = [POSH, "serve", "collections", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as serving:
        try:
            address = re.search(r"http://\S+", serving.stdout.readline())[0]
            with Client(address) as client:
                (one,) = client.collections()
                assert one.name == "digits", one
                assert len(client.collection("digits").search(np.zeros(64), k=3).ids[0]) == 3
        finally:
            serving.send_signal(signal.SIGTERM)
        rest = serving.stdout.read()
    assert serving.returncode == 0, rest


if __name__ == "__main__":
    main()
