"""The walks of ARCHITECTURE.md are what a profiler sees."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest

import posh
from posh.serve.folder import Folder
from tests.collection.implementations import DATA, SPARSE
from tests.serve.service import running

SOURCE = f"{Path(posh.__file__).parent}/"
DOCUMENT = Path(__file__).parent.parent / "ARCHITECTURE.md"


class Walk:
    """The files of ours in which functions are called, in the order of their first call."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.goes_on = False

    def profile(self, frame, event: str, _) -> None:
        """What ``sys.setprofile`` asks for."""
        if not self.goes_on or event != "call" or frame.f_code.co_name == "<module>":
            return
        file = frame.f_code.co_filename
        if file.startswith(SOURCE) and file.removeprefix(SOURCE) not in self.files:
            self.files.append(file.removeprefix(SOURCE))


def walked(step: Callable[[], object]) -> list[str]:
    """The walk of the second of two equal steps: the first one imports, and fills caches."""
    step()
    walk = Walk()
    walk.goes_on = True
    sys.setprofile(walk.profile)
    try:
        step()
    finally:
        sys.setprofile(None)
    return walk.files


def searched(folder: Path) -> list[str]:
    index = posh.Index(SPARSE).add(DATA)
    return walked(lambda: index.search(DATA[:2], 3))


def searched_by_metric(folder: Path) -> list[str]:
    index = posh.Index(metric="cosine", structure="ivf", n_lists=4).add(
        np.resize(DATA, (3000, DATA.shape[1]))
    )
    return walked(lambda: index.search(DATA[:2], 3))


def searched_over_http(folder: Path) -> list[str]:
    with posh.Collection(folder / "things", SPARSE) as things:
        things.upsert(range(100), DATA[:100])
    walk = Walk()
    threading.setprofile(walk.profile)  # threads that start from now on: all of the service
    try:
        with running(Folder(folder)) as address:

            def ask() -> None:
                body = {"vectors": DATA[:2].tolist(), "k": 3}
                httpx.post(f"{address}/v1/collections/things/search", json=body).raise_for_status()

            ask()
            walk.goes_on = True
            ask()
            end = time.monotonic() + 30
            while "serve/metrics.py" not in walk.files and time.monotonic() < end:
                time.sleep(0.01)  # the request is counted after its answer was sent
            walk.goes_on = False
    finally:
        threading.setprofile(None)
    return [file for file in walk.files if file != "serve/server.py"]  # which has a timer of its own


def upserted(folder: Path) -> list[str]:
    with posh.Collection(folder / "things", SPARSE) as things:
        things.upsert(range(100), DATA[:100])
        return walked(lambda: things.upsert([1, "new"], DATA[:2], [{"n": 1}, {"n": 2}]))


WALKS = {
    "From vectors to hits": searched,
    "From vectors to the nearest": searched_by_metric,
    "From an HTTP search to its answer": searched_over_http,
    "From an upsert to what is durable": upserted,
}


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_visits_the_files_that_the_document_lists(title, tmp_path):
    written = re.search(rf"\*\*{title}\*\*(.*?)\n\n", DOCUMENT.read_text(), re.DOTALL)
    listed, visited = re.findall(r"`([\w/]+\.py)`", written[1]), WALKS[title](tmp_path)
    if title == "From an HTTP search to its answer":  # threads decide which of two files comes first
        listed, visited = sorted(listed), sorted(visited)
    assert listed == visited
