"""A process that writes to a collection until it is killed: ``python -m tests.collection.writer FOLDER``.

It reads a seed per line and starts a child for each, which does the operations of that seed one after the
other and says so after each, so that whoever kills it knows what was acknowledged. Importing takes longer
than a round: that is why the children are forked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import posh
from posh.collection import indexing, snapshot
from tests.collection.implementations import DATA, OTHER, SPARSE

HASHERS = [SPARSE, OTHER]
Operation = tuple[str, Any]


def operations(seed: int) -> Iterator[Operation]:
    """What a child does, in order."""
    rng = np.random.default_rng(seed)
    while True:
        choice = rng.random()
        if choice < 0.55:
            ids = rng.permutation(400)[: int(rng.choice([1, 2, 7, 60, 300]))].tolist()
            rows = rng.integers(len(DATA), size=len(ids)).tolist()
            payloads = [
                {"n": row, "tag": f"{seed % 7}", "half": row / 2, "odd": row % 2 == 1} for row in rows
            ]
            yield "upsert", ([i if i % 3 else f"id {i}" for i in ids], rows, payloads)
        elif choice < 0.75:
            ids = rng.permutation(400)[: int(rng.choice([1, 5, 150]))].tolist()
            yield "delete", [i if i % 3 else f"id {i}" for i in ids]
        elif choice < 0.85:
            yield "reindex", int(rng.integers(len(HASHERS)))
        elif choice < 0.95:
            yield "compact", None
        else:
            yield "reopen", None


def done(collection: posh.BaseCollection, operation: Operation) -> posh.BaseCollection:
    """Do an operation, to any collection; gives the collection to go on with."""
    match operation:
        case "upsert", (ids, rows, payloads):
            collection.upsert(ids, DATA[rows], payloads)
        case "delete", ids:
            collection.delete(ids)
        case "reindex", number:
            collection.reindex(HASHERS[number])
        case "compact", _:
            collection.compact()
        case "reopen", _ if isinstance(collection, posh.Collection):
            collection.close()
            return posh.Collection(collection.path)
    return collection


def small_limits() -> None:
    """So that saved indexes, blocks and compaction come up in small collections."""
    indexing.WORTH, indexing.BLOCK, snapshot._SPARE = 100, 50, 50


def write_until_killed(folder: Path, seed: int) -> None:
    collection: posh.BaseCollection = posh.Collection(folder)
    os.write(1, b"0\n")
    for number, operation in enumerate(operations(seed), 1):
        collection = done(collection, operation)
        os.write(1, b"%d\n" % number)


def main(folder: Path) -> None:
    small_limits()
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.write(1, b"%d\n" % os.getpid())
            write_until_killed(folder, int(line))
        os.waitpid(child, 0)
        os.write(1, b"gone\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
