"""``recall-under-filters.md`` and its pictures, from records alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posh._durable import write_atomically
from posh_reproduction.filters.contenders import OURS, PROMISED
from posh_reproduction.filters.evidence import ENOUGH, CaseRecords, Point, cases_in
from posh_reproduction.filters.pictures import cells_picture
from posh_reproduction.report.document import NO_RECORDS, Block, Figure, Heading, Table, Text
from posh_reproduction.report.writers import to_markdown

__all__ = ["cases_in", "summary", "values", "write"]

_NAME = "recall-under-filters"
_PROTOCOL = (
    "Filters leave 50, 10, 4, 1, 0.1 or 0.01 % of the documents. **Independent** filters leave random "
    "documents. **Correlated** ones leave the documents nearest to one of 16 centroids, the one nearest to "
    "the query; **anti-correlated** ones those nearest to the centroid that is farthest from the query.",
    "Recall is the share of the true nearest documents among those that pass. If fewer than k pass, all of "
    "these have to be found. A result counts if it passes and is no farther than the k-th true one.",
    "Queries are asked one at a time on one thread, since each has its own filter. The rate counts processor "
    "time of the process, including its background threads. Contenders follow one another in each cell; the "
    "best round counts. The first search with a filter is not measured: some look up a condition only once.",
    "Indexes get the filter as a mask (`posh`: `Index.search(…, filter=mask)`; faiss: `IDSelectorBitmap`), "
    "which is made before the measurement. Databases get a condition, `column < bound`, on an indexed column "
    "(lancedb: prefilter), so their rate includes its evaluation. Compare each with its own kind.",
    "`posh` and `posh-collection` are built with the default of every option, and asked for "
    f"recall={PROMISED}. The parameters of the others are the least careful ones that find {PROMISED} of the "
    "neighbours of other queries **without a filter**. Next to these, **+** enlarges them for each filter: "
    "lists to visit, or candidates to keep, are divided by the share that passes (at most all lists; "
    "one document in 50 for faiss-hnsw; 2,048 for zvec). This needs to know that share.",
    f"Bold is the fastest that finds {ENOUGH:.2f}: {PROMISED} less 0.02 for the error of the measurement.",
    "Compare numbers within a run only.",
)
_QUIET = 0.9  # of a core
_BUSY = (
    "**The machine was busy with other work**: rates are rough, and contenders may have been measured at "
    "different times. Recalls are not affected."
)


def write(results: Path, output: Path) -> list[Path]:
    """Write ``recall-under-filters.md`` and its pictures into ``output``; return the paths."""
    blocks = list(_blocks(results))
    folder = output / _NAME
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / f"{b.name}.png": b.content for b in blocks if isinstance(b, Figure)}
    files[output / f"{_NAME}.md"] = to_markdown(blocks, _NAME).encode()
    for path, content in files.items():
        with write_atomically(path) as temporary:
            temporary.write_bytes(content)
    return list(files)


def summary(cases: list[CaseRecords]) -> list[str]:
    """One line for each contender of each case."""
    lines = []
    for case in cases:
        lines.append(f"{_title(case)}; {len(case.cells)} cells:")
        for name, (lowest, n_short, n_faster, ratio) in ((n, case.verdict(n)) for n in case.points):
            found = f"lowest recall {lowest:.3f}, below {ENOUGH:.2f} in {n_short}"
            lines.append(f"  {name}: {found}, faster than {OURS[0]} in {n_faster} others ({_factor(ratio)})")
    return lines


def values(case: CaseRecords) -> dict[str, Any]:
    """All cells of a case, for programs."""
    cells = [
        {"contender": name, **cell._asdict(), **point._asdict()}
        for name, own in case.points.items()
        for cell, point in own.items()
    ]
    return {"case": case.name, "metric": case.metric, "n_base": case.n_base, "cells": cells}


def _blocks(results: Path) -> Iterator[Block]:
    cases = cases_in(results)
    yield Heading(1, "Recall and speed under filters")
    yield Text.of(
        "Recall and speed of searches for the nearest documents that pass a filter, compared with other",
        "libraries. `posh bench filters` repeats the measurement. The raw results are in",
        "`results/filters`.",
        "[The promise of recall](promise.md) has the guarantee, [Filters](filters.md) the usage.",
    )
    if not cases:
        yield NO_RECORDS
        return
    yield Heading(2, "Summary")
    yield Text.of(
        "A cell is a kind of filter, a share of documents that passes, and a number of results. For each "
        f"contender, the table counts the cells with a recall below {ENOUGH:.2f}. Of the other cells, it "
        f"counts those in which the contender is faster than `{OURS[0]}`, and gives the median ratio of its "
        f"rate to that of `{OURS[0]}`. + has enlarged parameters, see below."
    )
    yield _verdicts(cases)
    yield Heading(2, "How it is measured")
    yield Text(_PROTOCOL, is_list=True)
    for case in cases:
        yield from _case_blocks(case)


def _verdicts(cases: list[CaseRecords]) -> Table:
    rows = []
    for case in cases:
        for name in case.points:
            lowest, n_short, n_faster, ratio = case.verdict(name)
            n = len(case.points[name])
            judged = [f"{n_short} of {n}", "–" if name == OURS[0] else str(n_faster), _factor(ratio)]
            rows.append([f"{case.name}, {case.n_base:,}", name, f"{lowest:.3f}", *judged])
    header = ["data", "contender", "lowest recall", f"cells below {ENOUGH:.2f}"]
    return Table([*header, f"cells where faster than {OURS[0]}", "ratio"], rows)


def _case_blocks(case: CaseRecords) -> Iterator[Block]:
    yield Heading(2, _title(case))
    yield Text.of(_run_of(case))
    for k in sorted({cell.k for cell in case.cells}):
        caption = (
            f"{_title(case)}, {k} results: recall (the line is at {PROMISED}) and queries per second "
            f"(hollow: less than {ENOUGH:.2f} found)."
        )
        name = f"{case.name}-{case.metric}-{case.n_base}-{k}"
        if len(case.points) > 1:
            yield Figure(name, cells_picture(case.points, k), caption)
        yield Text.of(f"Recall of {k} results, and queries per second:")
        yield _cells(case, k)
    yield Text.of("Parameters, and costs of the indexes:")
    yield _costs(case)


def _cells(case: CaseRecords, k: int) -> Table:
    rows = []
    for cell in case.cells:
        if cell.k == k:
            best = case.fastest(cell)
            own = {name: points.get(cell) for name, points in case.points.items()}
            n_passing = next(point.n_passing for point in own.values() if point is not None)
            shown = [_shown(point, is_best=name == best) for name, point in own.items()]
            rows.append([f"{cell.relation}, {100 * cell.share:g} % ({n_passing:,})", *shown])
    return Table(["filter (documents that pass)", *case.points], rows)


def _costs(case: CaseRecords) -> Table:
    rows = []
    for name in dict.fromkeys(name.rstrip("+") for name in case.points):
        own = [r for r in case.choices if r["unit"]["contender"] == name]
        choices = [f"{r['unit']['k']} results: {_params(r['params'])} ({r['recall']:.3f})" for r in own]
        built = [r for r in case.builds if r["unit"]["contender"] == name][-1:]
        costs = [[f"{r['cpu_seconds']:.1f}", f"{r['bytes_per_vector']:,.0f}"] for r in built] or [["–", "–"]]
        version = own[-1]["identity"]["version"] if own else "–"
        rows.append([name, version, "\n".join(choices), *costs[0]])
    header = ["contender", "version", "parameters (recall without a filter, on other queries)"]
    return Table([*header, "build, processor seconds", "bytes per vector"], rows)


def _run_of(case: CaseRecords) -> str:
    machine = case.builds[-1]["environment"] if case.builds else {}
    where = ", ".join(f"{name} {machine[name]}" for name in ("chip", "cores", "kernel") if name in machine)
    rounds = "one round" if case.rounds == 1 else f"best of {case.rounds} rounds"
    busy = "" if case.busy >= _QUIET else f" {_BUSY}"
    most = max(point.error for own in case.points.values() for point in own.values())
    errors = f"Standard errors of recalls are at most {most:.3f}."
    return f"{case.n_queries} queries, {rounds}; {where}. {errors}{busy}"


def _title(case: CaseRecords) -> str:
    return f"{case.name}: {case.n_base:,}, {case.metric}"


def _shown(point: Point | None, *, is_best: bool) -> str:
    if point is None:
        return "–"
    text = f"{point.recall:.3f} / {point.rate:,.0f}"
    return f"**{text}**" if is_best else text


def _params(params: dict[str, Any]) -> str:
    """Parameters in short.

    >>> _params({"nprobe": 32})
    'nprobe=32'
    """
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in params.items())


def _factor(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
