"""The promise of ``recall=``, checked from outside: the public interface against a comparison of all vectors.

    python -m benchmarks.promise table [--seeds 3] [--size 20000] [--markdown]
    python -m benchmarks.promise sweep [--quick] [--output build/promise.jsonl] [--fresh]

``table`` measures the situations of :mod:`benchmarks.promise_situations`, with several seeds. ``sweep``
measures the product of distributions, metrics, histories, filters, k and recalls: about an hour on two cores.
It appends a line of JSON for each setting and resumes where it stopped. Use ``--fresh`` for another version
of the library. ``--quick`` measures each distribution with one metric and one history, in about two minutes,
and always starts over. Both modes print Markdown.

A setting falls short if its recall plus two standard errors is more than 0.02 below the promise. The
standard error is that of the mean over queries. The promise is kept if the setting does not fall short,
neither in a batch nor with one query at a time, and if both return the same ids. Records and tables have the
raw recall, too.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.promise_situations import SITUATIONS, Queries, measure_case
from benchmarks.promise_sweep import Group, Record, all_groups, measure_group, n_settings, quick_groups
from benchmarks.promise_truth import TOLERANCE, Measured
from posh.bench import environment

QUICK = Queries(few_neighbours=400, many_neighbours=100, single=20)
DIMENSIONS = ("distribution", "metric", "history", "queries", "filter", "k", "promised")
N_WORST = 15

Cell = tuple[str, str, Measured]
"""A situation, its variant, and the measurement."""


# Situations ---------------------------------------------------------------------------------------------


def measure_table(n_seeds: int, size: int) -> list[Cell]:
    """Measure all situations with indexes of about this many documents, once for each seed."""
    jobs = [(name, seed) for name in SITUATIONS for seed in range(n_seeds)]
    return [
        (name, case.variant, measured)
        for name, seed in tqdm(jobs, "situations", disable=None)
        for case in SITUATIONS[name](np.random.default_rng(seed), size)
        for measured in measure_case(case, Queries())
    ]


def table_lines(cells: Iterable[Cell], *, has_details: bool) -> list[str]:
    """Return a Markdown table with a row for each promise of a situation, or for each variant and k."""
    rows: dict[tuple[str, ...], list[Measured]] = defaultdict(list)
    for name, variant, measured in cells:
        details = (variant, f"{measured.k:,}") if has_details else ()
        rows[(name, *details, f"{measured.promised:.2f}")].append(measured)
    titles = ["situation", *(("variant", "k") if has_details else ()), "promised"]
    titles += ["lowest", "mean", "error", "one at a time", "other ids", "verdict"]
    return markdown(titles, [[*key, *_outcome(group)] for key, group in rows.items()])


def _outcome(group: Sequence[Measured]) -> list[str]:
    """Return the last columns of a row: recalls, the largest standard error, differing ids, the verdict."""
    return [
        f"{min(m.found for m in group):.3f}",
        f"{np.mean([m.found for m in group]):.3f}",
        f"{max(m.error for m in group):.3f}",
        f"{min(m.found_single for m in group):.3f}",
        percent(sum(m.n_different for m in group), sum(m.n_single for m in group)),
        verdict(any(m.is_short for m in group), any(m.n_different for m in group)),
    ]


def verdict(is_short: bool, is_different: bool) -> str:
    """Return "kept", or the reasons why not."""
    return ", ".join(["**short**"] * is_short + ["**other ids**"] * is_different) or "kept"


# The sweep ----------------------------------------------------------------------------------------------


def measure_sweep(groups: Sequence[Group], queries: Queries, output: Path) -> list[Record]:
    """Measure the groups that the file does not have yet, append their records, and return all records."""
    records = read_complete(output, groups)
    done = {_group_of(record) for record in records}
    with output.open("a") as file:
        for group in tqdm(groups, "indexes", disable=None):
            if group not in done:
                new = list(measure_group(group, queries))
                file.writelines(json.dumps(record) + "\n" for record in new)
                file.flush()
                records += new
    return records


def read_complete(output: Path, groups: Sequence[Group]) -> list[Record]:
    """Read the records of complete groups, and remove those of a group that was interrupted."""
    output.parent.mkdir(parents=True, exist_ok=True)
    lines = output.read_text().splitlines(keepends=True) if output.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    numbers = Counter(map(_group_of, records))
    complete = [record for record in records if numbers[_group_of(record)] == n_settings(_group_of(record))]
    if len(complete) < len(lines):
        output.write_text("".join(json.dumps(record) + "\n" for record in complete))
    return [record for record in complete if _group_of(record) in set(groups)]


def _group_of(record: Record) -> Group:
    return Group(*(record[field] for field in Group._fields))


def margin(record: Record) -> float:
    """Return by how much the recall in a batch exceeds the promise; single queries are too few for this."""
    return float(record["found"] - record["promised"])


def summary_lines(records: Sequence[Record]) -> list[str]:
    """Return the summary of a sweep as Markdown."""
    n, n_short = len(records), sum(record["is_short"] for record in records)
    n_raw = sum(record["found"] < record["promised"] - TOLERANCE for record in records)
    n_different = sum(record["n_different"] > 0 for record in records)
    seconds = sum(record["seconds"] for record in records)
    return [
        f"{n:,} settings. More than {TOLERANCE} below the promise: "
        f"{n_short:,} ({percent(n_short, n)}) beyond two standard errors; "
        f"{n_raw:,} ({percent(n_raw, n)}) in batches as measured. "
        f"Other ids one at a time: {n_different:,} ({percent(n_different, n)}). "
        f"Searches took {seconds:,.0f} s.",
        "",
        *markdown(
            ["dimension", "value", "settings", "short", "share", "other ids", "lowest margin"],
            [row for dimension in DIMENSIONS for row in _dimension_rows(records, dimension)],
        ),
        "",
        "The settings farthest below their promise:",
        "",
        *_worst_lines(records),
    ]


def _dimension_rows(records: Sequence[Record], dimension: str) -> list[list[str]]:
    parts = group_by(records, lambda record: record[dimension])
    return [
        [
            dimension,
            f"{value:,}" if isinstance(value, int) else str(value),
            f"{len(part):,}",
            str(n_short := sum(record["is_short"] for record in part)),
            percent(n_short, len(part)),
            str(sum(record["n_different"] > 0 for record in part)),
            f"{min(map(margin, part)):+.3f}",
        ]
        for value, part in parts.items()
    ]


def _worst_lines(records: Sequence[Record]) -> list[str]:
    titles = [*DIMENSIONS, "found", "error", "one at a time", "error "]
    fields = ("found", "error", "found_single", "error_single")
    worst = sorted(records, key=margin)[:N_WORST]
    return markdown(
        titles,
        [
            [*(str(record[name]) for name in DIMENSIONS), *(f"{record[name]:.3f}" for name in fields)]
            for record in worst
        ],
    )


# Text ---------------------------------------------------------------------------------------------------


def group_by(records: Iterable[Record], key: Callable[[Record], Any]) -> dict[Any, list[Record]]:
    """Return the records by the value of a key, in the order in which values first occur."""
    parts: dict[Any, list[Record]] = defaultdict(list)
    for record in records:
        parts[key(record)].append(record)
    return parts


def percent(part: int, whole: int) -> str:
    """Return a share in percent."""
    return f"{100 * part / whole:.1f} %" if part else "0"


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table whose columns line up."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    lines = [titles, ["-" * width for width in widths], *rows]
    return [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = parser.add_subparsers(dest="mode", required=True)
    table = modes.add_parser("table", help="situations that broke the promise once")
    table.add_argument("--seeds", type=int, default=3)
    table.add_argument("--size", type=int, default=20_000, help="documents; 8,000 at least")
    table.add_argument("--markdown", action="store_true", help="one row for each promise of a situation")
    sweep = modes.add_parser("sweep", help="distributions, metrics, histories, filters, k and recalls")
    sweep.add_argument("--quick", action="store_true", help="each distribution once")
    sweep.add_argument("--size", type=int, help="documents: 30,000, or 15,000 if quick")
    sweep.add_argument("--seed", type=int, default=0)
    sweep.add_argument("--output", type=Path, help="records, one a line")
    sweep.add_argument("--fresh", action="store_true", help="start over")
    arguments = parser.parse_args()
    lines = run_table(arguments) if arguments.mode == "table" else run_sweep(arguments)
    print(*lines, "", f"{environment()}", sep="\n")


def run_table(arguments: argparse.Namespace) -> list[str]:
    cells = measure_table(arguments.seeds, arguments.size)
    return table_lines(cells, has_details=not arguments.markdown)


def run_sweep(arguments: argparse.Namespace) -> list[str]:
    is_quick = arguments.quick
    output = arguments.output or Path("build") / ("promise-quick.jsonl" if is_quick else "promise.jsonl")
    if is_quick or arguments.fresh:
        output.unlink(missing_ok=True)
    choose = quick_groups if is_quick else all_groups
    groups = choose(arguments.size or (15_000 if is_quick else 30_000), arguments.seed)
    return summary_lines(measure_sweep(groups, QUICK if is_quick else Queries(), output))


if __name__ == "__main__":
    main()
