"""Threads that search while others add and remove: every answer belongs to some moment."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

import posh
from tests.conftest import clusters

DATA = clusters(2000, 8)
HASHER = posh.POSH(64, 6, n_epochs=1, random_state=0).fit(DATA)
SECONDS = float(os.environ.get("POSH_STRESS_SECONDS", "3"))


@pytest.mark.parametrize(
    "options", [{}, {"structure": "ivf", "n_lists": 8, "n_probe": 8}], ids=["exact", "ivf"]
)
def test_every_answer_belongs_to_some_moment(options):
    """Documents come and go in pairs with the same code: an answer with one of a pair would be a torn one."""
    index = posh.CodeIndex(HASHER, **options).add(DATA[:500])  # these stay
    stop = threading.Event()
    failures: list[str] = []

    def change(seed: int) -> None:
        rng = np.random.default_rng(seed)
        first = 10_000 * (seed + 1)
        while not stop.is_set():
            rows = DATA[rng.integers(500, 2000, size=int(rng.integers(1, 200)))]
            ids = first + np.arange(2 * len(rows))
            index.add(np.repeat(rows, 2, axis=0), ids=ids)
            if rng.random() < 0.3:
                index.update(np.repeat(rows[::-1], 2, axis=0), ids)
            if rng.random() < 0.2:
                index.compact()
            index.delete(ids)

    def ask(seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not stop.is_set():
            queries = DATA[rng.integers(0, 2000, size=3)]
            hits = index.search(queries, 3000, n_threads=int(rng.integers(1, 3)))
            for ids, scores in zip(hits.ids, hits.scores, strict=True):
                found = ids[ids >= 0]
                comers = np.sort(found[found >= 10_000])
                torn = len(np.unique(found)) < len(found) or (comers[0::2] + 1 != comers[1::2]).any()
                if (
                    torn
                    or not (np.diff(scores[ids >= 0]) <= 0).all()
                    or not np.isin(np.arange(500), found).all()
                ):
                    failures.append(f"{ids.tolist()}")

    workers = [threading.Thread(target=change, args=(seed,)) for seed in range(2)]
    workers += [threading.Thread(target=ask, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    time.sleep(SECONDS)
    stop.set()
    for worker in workers:
        worker.join()
    assert not failures, failures[0]
    assert len(index) == 500


def test_many_threads_get_the_same_answers():
    index = posh.CodeIndex(HASHER).add(DATA)
    expected = index.search(DATA[:50], 20, n_threads=1)
    results: list[posh.Hits] = []
    threads = [threading.Thread(target=lambda: results.append(index.search(DATA[:50], 20))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for hits in results:
        np.testing.assert_array_equal(hits.ids, expected.ids)
