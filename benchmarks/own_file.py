"""From a file of one's own to answers: ``posh import``, ``posh query``, ``posh serve``, the page over HTTP.

``python -m benchmarks.own_file --rows 100000 --width 384`` writes a Parquet file of vectors with titles, runs
the commands as a user would, and prints the seconds of each. With ``--kill`` it kills the first import.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

POSH = [sys.executable, "-c", "import sys; from posh.cli import main; sys.exit(main())"]
YEARS = 120


def write_file(path: Path, n: int, width: int) -> None:
    """Write rows with ids, titles, years and vectors in clusters."""
    import pyarrow as pa
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    centres = rng.normal(size=(1000, width)).astype(np.float32)
    vectors = centres[rng.integers(0, 1000, n)] + 0.7 * rng.normal(size=(n, width)).astype(np.float32)
    columns = {
        "id": [f"doc-{i}" for i in range(n)],
        "title": [f"Title of document {i}" for i in range(n)],
        "year": [1900 + i % YEARS for i in range(n)],
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float32).ravel()), width),
    }
    pa.parquet.write_table(pa.table(columns), path)


def timed(name: str, step: Any) -> Any:
    """Do a step, and print its seconds and its CPU seconds (those of processes that have ended)."""
    start, before = time.perf_counter(), os.times()
    outcome = step()
    seconds, after = time.perf_counter() - start, os.times()
    cpu = sum(after[:4]) - sum(before[:4])
    print(f"{name:<28} {seconds:7.1f} s   {cpu:6.1f} s of CPU", flush=True)
    return outcome


def run(*arguments: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run([*POSH, *arguments, "--json"], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout))


def killed_import(folder: Path) -> None:
    """Kill an import as soon as some rows are on the disk."""
    process = subprocess.Popen(
        [*POSH, "import", "rows.parquet", "collections/docs"], cwd=folder, stderr=subprocess.DEVNULL
    )
    log = folder / "collections" / "docs" / "collection.sqlite3"
    while process.poll() is None and not (log.exists() and log.stat().st_size > 20 << 20):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()


def served(folder: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [*POSH, "serve", "collections", "--port", "0"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


def seen(address: str, vector: list[float]) -> dict[str, Any]:
    """Get the page, then search through HTTP with a filter."""
    with urllib.request.urlopen(address) as page:
        assert b"<html" in page.read().lower()
    body = {"vectors": [vector], "k": 3, "filter": {"year": {"gte": 2000}}, "include": ["payload"]}
    request = urllib.request.Request(
        f"{address}/v1/collections/docs/search",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return dict(json.loads(answer.read()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--kill", action="store_true", help="kill the import in the middle first")
    args = parser.parse_args()
    print(f"{args.rows:,} x {args.width}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "collections").mkdir()
        write_file(folder / "rows.parquet", args.rows, args.width)
        if args.kill:
            timed("import, killed", lambda: killed_import(folder))
        imported = timed("import", lambda: run("import", "rows.parquet", "collections/docs", folder=folder))
        assert imported["n_items"] == imported["n_rows"] == args.rows
        print(f"  {imported['n_written']:,} rows written, {imported['n_present']:,} were there already")
        where = json.dumps({"year": {"gte": 2000}})
        query = ["query", "collections/docs", "--like", "doc-17", "-k", "3", "--filter", where]
        hits = timed("query with a filter", lambda: run(*query, folder=folder))["queries"][0]["hits"]
        assert all(hit["payload"]["year"] >= 2000 for hit in hits)
        process, address = timed("serve, until it listens", lambda: served(folder))
        try:
            vector = np.random.default_rng(1).normal(size=args.width).tolist()
            answer = timed("page and a search over HTTP", lambda: seen(address, vector))
            print(json.dumps(answer)[:300])
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
