"""Processes that compete for a collection: ``python -m tests.adversary.competitors FOLDER LOGS ROUNDS``.

Four workers open the collection in turn, write, and close it or are killed. A write adds one item and the
number of items so far, all in one call: so a write that is lost or done twice shows. A worker notes a write
in its log after it was acknowledged. Workers are forked from a process that has written, too: importing takes
longer than a round.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import posh

WORKERS = 4
REFUSAL = "expected a collection that is not open elsewhere, but "


def write_some(folder: Path, log: int, name: str, rng: random.Random) -> None:
    """Open the collection, write a few items, and close it."""
    with posh.Collection(folder) as collection:
        for n in range(rng.randrange(1, 6)):
            count = collection.get(["count"])[0].payload["n"]
            assert count == collection.count() - 1
            vector = [[rng.random() for _ in range(8)]] * 2
            collection.upsert(["count", f"{name}/{n}"], vector, [{"n": count + 1}, {"by": name}])
            os.write(log, f"written {name}/{n}\n".encode())
        time.sleep(0.05)  # others run and find it open, however busy the machine is


def work(folder: Path, logs: Path, worker: int, n_rounds: int) -> None:
    """Take part until the rounds are over; where the folder is in use, say so in the log and try again."""
    log = os.open(logs / f"{worker}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    rng = random.Random(os.getpid())
    for number in range(n_rounds):
        while True:
            try:
                write_some(folder, log, f"{os.getpid()}/{number}", rng)
                break
            except posh.StorageError as error:
                os.write(log, b"refused\n" if REFUSAL in str(error) else f"wrong {error}\n".encode())
                time.sleep(rng.uniform(0, 0.02))


def main(folder: Path, logs: Path, n_rounds: int) -> None:
    with posh.Collection(folder) as collection:
        collection.upsert(["count"], [[0.0] * 8], [{"n": 0}])
    rng = random.Random(0)
    children: dict[int, int] = {}
    for _ in range(n_rounds):
        for worker in set(range(WORKERS)) - set(children.values()):
            child = os.fork()
            if child == 0:
                work(folder, logs, worker, 3)
                os._exit(0)
            children[child] = worker
        time.sleep(rng.uniform(0.02, 0.15))
        victim = rng.choice(list(children))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        del children[victim]
        for child in list(children):
            if os.waitpid(child, os.WNOHANG)[0]:
                del children[child]
    for child in children:
        _, status = os.waitpid(child, 0)
        assert status == 0, status
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
