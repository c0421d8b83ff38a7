"""Processes that save and load the same index folder and model file: ``python -m tests.adversary.savers``.

Arguments: a folder, the number of processes and the number of rounds of each. What is saved differs each time
and tells who has saved it and in which round, so that every load can be compared with what was saved. Prints
what went wrong, a line each, and then the numbers of saves and loads. Importing takes longer than a round:
that is why the processes are forked.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import posh
from tests.conftest import clusters

DATA = clusters(400, 8)
HASHER = posh.FruitFly(32, 4, random_state=0).fit(DATA)
ROUNDS = 1_000_000  # more than there are
Version = tuple[int, int]  # who has saved, and in which round


def index_of(version: Version) -> posh.CodeIndex:
    """The index that one process saves in one round."""
    who, number = version
    rows = DATA[: 20 + (37 * who + 11 * number) % 300]
    ids = (who * ROUNDS + number) * ROUNDS + np.arange(len(rows))
    return posh.CodeIndex(HASHER, refine="vectors").add(rows, ids=ids).delete(ids[3:5])


def version_of_index(index: posh.CodeIndex) -> Version:
    """Who has saved an index."""
    return divmod(int(index.ids[0]) // ROUNDS, ROUNDS)


def content_of_index(index: posh.CodeIndex) -> list[Any]:
    """All that an index has of live documents."""
    snapshot = index.snapshot()
    live = snapshot.live  # files have nothing of deleted documents
    parts = (snapshot.id_column.rows, snapshot.structure.codes, snapshot.refiner_rows)
    rows = [part.rows[live].tolist() for part in parts]
    rows.append(live.tolist())
    hits = index.search(DATA[:3], 5, n_threads=1)
    found = [hits.ids.tolist(), hits.scores.tolist()]
    return [repr(index), content_of_model(index.hasher), snapshot.id_column.next_id, rows, found]


def model_of(version: Version) -> posh.LSH:
    """The hasher that one process saves in one round."""
    return posh.LSH(8 + version[1] % 9, random_state=version[0] * ROUNDS + version[1]).fit(DATA[:20])


def version_of_model(model: Any) -> Version:
    """Who has saved a hasher."""
    return divmod(model.random_state, ROUNDS)


def content_of_model(hasher: Any) -> list[Any]:
    """All that a hasher has; the order in its file is not always the same."""
    model = posh._model_files.parse_model(hasher.to_bytes(), "model")
    return [model.name, model.params, {name: array.tolist() for name, array in model.arrays.items()}]


KINDS: dict[str, tuple[Callable[..., Any], ...]] = {
    "index": (posh.CodeIndex.load, index_of, version_of_index, content_of_index),
    "mapped index": (
        lambda path: posh.CodeIndex.load(path, mmap=True),
        index_of,
        version_of_index,
        content_of_index,
    ),
    "model": (posh.Hasher.load, model_of, version_of_model, content_of_model),
}
FILES = {"index": "index", "mapped index": "index", "model": "model"}


def wrong(kind: str, path: Path, seen: dict[tuple[str, int], int]) -> Iterator[str]:
    """Load what is there, and tell what is wrong with it; ``seen`` are the latest rounds that were seen."""
    load, make, version_of, content_of = KINDS[kind]
    try:
        loaded = load(path)
        version = version_of(loaded)
        if content_of(loaded) != content_of(make(version)):
            yield f"{kind}: not what was saved as {version}"
        key = FILES[kind], version[0]
        if version[1] < seen.get(key, 0):
            yield f"{kind}: {version} is back, after round {seen[key]}"
        seen[key] = version[1]
    except Exception:
        yield f"{kind}: {traceback.format_exc()}"


def work(folder: Path, who: int, n_rounds: int, report: Callable[[str], None]) -> None:
    """Save and load, and report what goes wrong."""
    seen: dict[tuple[str, int], int] = {}
    for number in range(n_rounds):
        for file, make in (("index", index_of), ("model", model_of)):
            try:
                make((who, number)).save(folder / file)
                seen[file, who] = number
            except Exception:
                report(f"{file}: {traceback.format_exc()}")
        for kind, file in FILES.items():
            for problem in wrong(kind, folder / file, seen):
                report(problem)


def main(folder: Path, n_processes: int, n_rounds: int) -> None:
    """Start the processes, wait for them, and print what went wrong and how much was done."""
    children = []
    for who in range(n_processes):
        if not (child := os.fork()):
            with (folder / f"problems-{who}").open("w") as file:
                work(folder, who, n_rounds, lambda problem, file=file: print(problem, file=file, flush=True))
            os._exit(0)
        children.append(child)
    for who, child in enumerate(children):
        if os.waitpid(child, 0)[1]:
            print(f"process {who} has failed")
        print((folder / f"problems-{who}").read_text(), end="")
    last = dict.fromkeys(
        [(file, who) for file in ("index", "model") for who in range(n_processes)], n_rounds - 1
    )
    for kind, file in FILES.items():
        for problem in wrong(kind, folder / file, dict(last)):
            print(problem)
    n = n_processes * n_rounds
    print(f"{n} saves and {2 * n} loads of an index, {n} saves and {n} loads of a model")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
