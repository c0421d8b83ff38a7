"""``posh serve`` under load, compared with the same service that searches by faiss.IndexBinaryFlat.

    python -m benchmarks.serve [--seconds 60] [--rounds 3] [--documents N] [--output results/serve.json]

GloVe (glove-100), POSH with 32 of 1,024 bits, k = 10, an embedded collection on disk. Each round measures,
each in a new service: ours with 64 clients, ours with 64 clients and a writer, ours with one client, the
rival with one client, and the rival with 64. The ratios compare with the rival that has one client. The rival
is the same program with another search: faiss, over the same codes. Clients, service and writer share the
machine's cores.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import posh
from posh.bench import environment, seconds
from posh.client import Client

N_BITS, N_ACTIVE, K, QUERIES, CLIENTS = 1024, 32, 10, 2000, 64
OURS = "from posh.cli import main"
RIVAL = "from benchmarks.serve_rival import main"


def prepare(folder: Path, documents: int | None) -> dict[str, Any]:
    """A collection of word vectors, and queries with the scores of a direct search."""
    data = posh.datasets.load("glove-100")
    base = data.base[:documents]
    hasher = posh.POSH(N_BITS, N_ACTIVE, random_state=0).fit(base[:5000])
    queries = data.queries[:QUERIES].round(6)

    def write() -> None:
        with posh.Collection(folder / "glove", hasher) as collection:
            for start in range(0, len(base), 10_000):
                rows = slice(start, start + 10_000)
                collection.upsert(range(start, start + len(base[rows])), base[rows])

    took = seconds(write)
    scores = posh.CodeIndex(hasher).add(base).search(queries, K).scores
    np.savez(folder / "queries.npz", queries=queries, scores=scores)
    return {"documents": len(base), "queries": len(queries), "write_seconds": round(took, 1)}


@contextmanager
def service(program: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Start a service at a free port, and yield its address and the id of its process."""
    command = [sys.executable, "-c", f"import sys; {program}; sys.exit(main())", "serve", str(folder)]
    process = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        match = re.search(r"http://\S+", process.stdout.readline())
        assert match, "the service did not start"
        yield match[0], process.pid
        process.terminate()
        process.communicate(timeout=120)
        assert process.returncode == 0, process.returncode
    finally:
        process.kill()
        process.communicate()


class Writer:
    """Adds 100 items at a time, each batch as soon as the last one is durable, until it is stopped."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = threading.Event()
        self.written = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        rng = np.random.default_rng(0)
        with Client(self._address) as client:
            while not self._stop.is_set():
                ids = [f"new {self.written + i}" for i in range(100)]
                client.collection("glove").upsert(ids, rng.normal(size=(100, 100)), [{"new": True}] * 100)
                self.written += 100

    def stop(self) -> int:
        """Wait for the last write, and return the number of items written."""
        self._stop.set()
        self._thread.join()
        return self.written


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    who: str, program: str, folder: Path, clients: int, length: float, writes: bool
) -> dict[str, Any]:
    with service(program, folder) as (address, process):
        load = [sys.executable, "-m", "benchmarks.serve_load", f"{address}/v1/collections/glove/search"]
        load += [str(folder / "queries.npz"), "--clients", str(clients)]
        subprocess.run([*load, "--seconds", "1"], check=True, capture_output=True)  # warm
        writer = Writer(address) if writes else None
        before = cpu_seconds(process)
        options = ["--seconds", str(length)] + (["--growing"] if writes else [])
        done = subprocess.run([*load, *options], check=True, capture_output=True, text=True)
        cpu = cpu_seconds(process) - before
        written = 0 if writer is None else writer.stop()
        if writes:
            _remove_written(address, written)
    found = json.loads(done.stdout)
    row = {"service": who, "clients": clients, "seconds": length, **found}
    row["service_cpu_microseconds_per_request"] = round(1e6 * cpu / found["requests"])
    return row | ({"items_written_meanwhile": written} if writes else {})


def _remove_written(address: str, n: int) -> None:
    """Remove the items of the writer, so that the next round finds the same collection."""
    with Client(address) as client:
        for start in range(0, n + 100, 10_000):
            client.collection("glove").delete([f"new {i}" for i in range(start, start + 10_000)])
        client.collection("glove").compact()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--documents", type=int)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    length = arguments.seconds
    plan = [
        ("posh", OURS, CLIENTS, length, False),
        ("posh, writes meanwhile", OURS, CLIENTS, length, True),
        ("posh", OURS, 1, length / 3, False),
        ("faiss", RIVAL, 1, length / 3, False),
        ("faiss", RIVAL, CLIENTS, length / 3, False),
    ]
    with tempfile.TemporaryDirectory() as name:
        setup = prepare(Path(name), arguments.documents)
        print(json.dumps(setup), flush=True)
        rows = []
        for number in range(arguments.rounds):
            for who, program, clients, duration, writes in plan:
                row = {"round": number, **measure(who, program, Path(name), clients, duration, writes)}
                rows.append(row)
                print(json.dumps(row), flush=True)
    result = {"environment": environment(), **setup, "ratios": ratios(rows), "rows": rows}
    print(json.dumps(result["ratios"]))
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


def ratios(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Throughput of 64 clients divided by that of the rival with one client, for each round."""

    def rates(who: str, clients: int) -> list[float]:
        return [
            row["requests_per_second"] for row in rows if (row["service"], row["clients"]) == (who, clients)
        ]

    one_by_one = rates("faiss", 1)
    return {
        who: [round(mine / its, 1) for mine, its in zip(rates(who, CLIENTS), one_by_one, strict=True)]
        for who in ("posh", "posh, writes meanwhile")
    }


if __name__ == "__main__":
    main()
