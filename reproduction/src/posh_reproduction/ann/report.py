"""``benchmarks.md`` and its pictures, from records alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posh._durable import write_atomically
from posh_reproduction.ann import pictures
from posh_reproduction.ann.choice import TARGETS, rate_at
from posh_reproduction.ann.contenders import OURS
from posh_reproduction.ann.evidence import CaseRecords, Comparison, cases_in
from posh_reproduction.ann.labels_report import label_blocks
from posh_reproduction.ann.measure import Setting
from posh_reproduction.experiments.records import Record, Records
from posh_reproduction.experiments.spec import key
from posh_reproduction.report.document import NO_RECORDS, Block, Figure, Heading, Table, Text
from posh_reproduction.report.writers import to_markdown

__all__ = ["summary", "values", "write"]

_NAME = "benchmarks"
_MAIN, _DEPTH, _BATCHES = 0.95, 10, (1, 1000)  # of the summary
_PROTOCOL = (
    "All contenders get the same vectors. For cosine similarity the vectors have unit length. The 128-d "
    "image patches are principal components, rotated by a random orthogonal matrix, because product "
    "quantization splits vectors along their axes.",
    "The queries are split into two halves. On the first half, each contender tries its parameters; for "
    "each recall on a ladder, the fastest parameters that reach it are chosen. Only these are measured on "
    "the second half, and only the second half is reported.",
    "`posh-default` is `posh.Index.build(X, metric=…)` without further parameters, asked for several "
    'recalls. `posh-graph` is the same with `optimize="latency"`. Those of searches in `posh-ivf` and '
    "`posh-exact` are tuned.",
    "Parameters are chosen on one thread, separately for single queries and for batches. All are tried with "
    "single queries; batches only try those that reached half of the best rate. Indexes are chosen with 10 "
    "results. A row of ever more careful parameters ends where nearly everything is found, where a step "
    "finds hardly more, or where others that find as much are five times as fast.",
    "The second half is measured in rounds, contender after contender; no two measurements run concurrently. "
    "The best round counts. A warm-up call before each measurement does not count.",
    "The rate at a recall is interpolated between the two nearest chosen points on the second half, "
    "linearly in the logarithm of the rate. If another chosen point has at least this recall and is "
    "faster, its rate counts. Nothing is extrapolated.",
    "A result counts towards recall if it is no farther than the k-th true neighbour. All indexes of a run "
    "are built on the same number of threads. Bytes per vector are those of the saved index, including the "
    "vectors if its searches need them.",
    "Compare numbers within a run only: on shared machines, the same measurement varies by 20 to 40 % "
    "between runs.",
)
_QUIET = 0.9  # of a core
_BUSY = (
    "**The machine was busy with other work**: single threads did not get a full core, so these numbers are "
    "unreliable. Measure again on an idle machine."
)


def write(results: Path, output: Path) -> list[Path]:
    """Write ``benchmarks.md`` and its pictures into ``output``; return the paths."""
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
    """The comparison at the first setting in a few lines, and a table for the README."""
    lines = [line for case in cases for line in _summary_of(case)]
    shown = [case for case in cases if case.settings and case.kernel is None]
    return [*lines, *(to_markdown([_overview(shown)], _NAME).splitlines() if shown else [])]


def _summary_of(case: CaseRecords) -> list[str]:
    if not case.settings:
        return [f"{_title(case)}: nothing reported yet"]
    setting = case.settings[0]
    lines = [f"{_title(case)}; {_shown(setting)}:"]
    for target in TARGETS:
        found = case.compared(setting, target)
        ours = ", ".join(f"{name} {_ratio(found, name)}" for name in found.ours)
        lines.append(f"  recall {target:.2f}: best peer {_peer(found)}; {ours}")
    return [*lines, *([f"  {_BUSY}"] if _was_busy(case) else [])]


def values(case: CaseRecords) -> dict[str, Any]:
    """All comparisons of a case, for programs."""
    found = [
        {**setting._asdict(), **case.compared(setting, target)._asdict()}
        for setting in case.settings
        for target in TARGETS
    ]
    names = {"case": case.name, "metric": case.metric, "n_base": case.n_base, "kernel": case.kernel}
    return {**names, "compared": found}


def _blocks(results: Path) -> Iterator[Block]:
    cases = cases_in(results)
    reported = [case for case in cases if case.settings]
    yield Heading(1, "Recall and speed compared with other libraries")
    yield Text.of(
        "Queries per second at equal recall, with all contenders in one run on one machine.",
        "`make bench-ann` repeats the measurement; `posh bench ann --help` lists the options.",
        "The raw results are in `results/ann`.",
    )
    if reported:
        yield from _summary_blocks(reported)
    yield Heading(2, "How it is measured")
    yield Text(_PROTOCOL, is_list=True)
    if not cases:
        yield NO_RECORDS
    for case in cases:
        yield from _case_blocks(case)
    yield from label_blocks(Records(results))


def _case_blocks(case: CaseRecords) -> Iterator[Block]:
    yield Heading(2, _title(case))
    yield Text.of(_run_of(case))
    if not case.settings:
        yield NO_RECORDS
        return
    if _was_busy(case):
        yield Text.of(_BUSY)
    yield Text.of(
        "Queries per second at each recall; in brackets, the ratio to the best peer in the same run."
    )
    names = [name for name in case.contenders if name in OURS]
    rows = [
        [_shown(setting), f"{target:.2f}", _peer(found), *(_ratio(found, name) for name in names)]
        for setting in case.settings
        for target in TARGETS
        for found in [case.compared(setting, target)]
    ]
    yield Table(["setting", "recall", "best peer", *names], rows)
    yield from _figures(case)
    for setting in case.settings:
        yield Text.of(f"All contenders, {_shown(setting)}:")
        yield _contenders(case, setting)
    yield Text.of("Indexes:")
    yield _builds(case)


def _summary_blocks(cases: list[CaseRecords]) -> Iterator[Block]:
    yield Heading(2, "Summary")
    yield Text.of(
        f"Queries per second at a recall@{_DEPTH} of {_MAIN}, on one thread: the fastest of ours; in",
        "brackets, the fastest of the others and the ratio of the two.",
    )
    for kernel in dict.fromkeys(case.kernel for case in cases):
        own = [case for case in cases if case.kernel == kernel]
        if kernel:
            yield Text.of(f"With {kernel.upper()} only, for the libraries that can be limited to it:")
        yield _overview(own)
    with_default = [case for case in cases if "posh-default" in case.contenders]
    if with_default:
        yield Text.of("The default, `posh-default`, compared with the fastest of ours:")
        yield _defaults(with_default)


def _overview(cases: list[CaseRecords]) -> Table:
    """One row for each case: ours and the best of the others, for single queries and for batches."""
    rows = [[_title(case), *(_versus(case, setting) for setting in _mains(cases))] for case in cases]
    return Table(["data", *(_asked(setting.batch) for setting in _mains(cases))], rows)


def _defaults(cases: list[CaseRecords]) -> Table:
    """One row for each case: the default and the best of ours."""
    mains = _mains(cases)
    rows = []
    for case in cases:
        found = [case.compared(setting, _MAIN) for setting in mains]
        rows.append([_title(case), *(cell for f in found for cell in _default_cells(f))])
    header = [
        title for s in mains for title in (f"default, {_asked(s.batch)}", "best of ours", "default / best")
    ]
    return Table(["data", *header], rows)


def _default_cells(found: Comparison) -> list[str]:
    best = found.best
    return [
        _rate(found.ours.get("posh-default")),
        f"{_rate(best[1])} ({best[0]})" if best else "not reached",
        _factor(found.share_of_default),
    ]


def _mains(cases: list[CaseRecords]) -> list[Setting]:
    """The settings of the summary: 10 results on one thread, small batches first."""
    every = {setting for case in cases for setting in case.settings}
    return sorted(s for s in every if s.k == _DEPTH and s.threads == 1 and s.batch in _BATCHES)


def _versus(case: CaseRecords, setting: Setting) -> str:
    found = case.compared(setting, _MAIN)
    if found.best is None:
        return f"not reached ({_peer(found)})"
    ours = f"{_rate(found.best[1])} {found.best[0]}"
    if found.ratio is None:
        return f"{ours} (no other reaches it)"
    return f"{ours} ({found.peer} {_rate(found.peer_rate)}: **{found.ratio:.1f}×**)"


def _was_busy(case: CaseRecords) -> bool:
    """Whether a contender did not get the core that it asked for."""
    shares = [case.busy(name, 1) for name in case.contenders]
    return any(share is not None and share < _QUIET for share in shares)


def _figures(case: CaseRecords) -> Iterator[Figure]:
    depth = case.settings[0].k
    groups = {
        "": [s for s in case.settings if s.threads == 1 and s.k == depth],
        "-more": [s for s in case.settings if s.threads > 1 or s.k != depth],
    }
    for suffix, settings in groups.items():
        if settings:
            panels = [{name: case.curve(name, s) for name in case.contenders} for s in settings]
            content = pictures.curves([_shown(s) for s in settings], panels)
            caption = f"{_title(case)}: the higher and the further right, the better."
            limit = f"-{case.kernel}" if case.kernel else ""
            yield Figure(f"{case.name}-{case.metric}-{case.n_base}{limit}{suffix}", content, caption)


def _contenders(case: CaseRecords, setting: Setting) -> Table:
    ours = case.compared(setting, _MAIN).best
    rows = []
    for name in case.contenders:
        curve = case.curve(name, setting)
        rates = [rate_at(curve, target) for target in TARGETS]
        main = rates[TARGETS.index(_MAIN)]
        ratio = main / ours[1] if main and ours else None
        cells = [name, *map(_rate, rates), _factor(ratio), *_costs(case.index_for(name, setting, _MAIN))]
        rows.append([*cells, str(case.tried(name, setting)), _factor(case.busy(name, setting.threads))])
    header = ["contender", *(f"at {target:.2f}" for target in TARGETS), f"/ ours at {_MAIN}"]
    costs = ["build, seconds", "threads", "bytes per vector"]
    return Table([*header, *costs, "parameters tried", "cores busy"], rows)


def _costs(build: Record | None) -> list[str]:
    """Seconds and threads of a build, and bytes per vector."""
    if build is None:
        return ["–", "–", "–"]
    return [f"{build['seconds']:.1f}", str(build["unit"]["threads"]), f"{build['bytes_per_vector']:.0f}"]


def _builds(case: CaseRecords) -> Table:
    rows = [
        [
            record["unit"]["contender"],
            key(record["unit"]["build"]).replace('"', "").strip("{}") or "–",
            *_costs(record),
        ]
        for record in case.builds
    ]
    return Table(["contender", "parameters", "seconds", "threads", "bytes per vector"], rows)


def _run_of(case: CaseRecords) -> str:
    """Machine, versions and rounds."""
    versions = case.reporting[-1]["identity"]["versions"] if case.reporting else {}
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    machine = case.builds[-1]["environment"] if case.builds else {}
    where = ", ".join(f"{name} {machine[name]}" for name in ("chip", "cores", "kernel") if name in machine)
    return f"Best of {case.rounds} rounds; {where}. Versions: {named}."


def _title(case: CaseRecords) -> str:
    width = f" × {case.builds[-1]['n_features']}" if case.builds else ""
    limit = f", {case.kernel} only" if case.kernel else ""
    return f"{case.name}: {case.n_base:,}{width}, {case.metric}{limit}"


def _shown(setting: Setting) -> str:
    """A setting in words.

    >>> _shown(Setting(10, 1, 1)), _shown(Setting(100, 1000, 2))
    ('recall@10, one query at a time, 1 thread', 'recall@100, batches of 1,000, 2 threads')
    """
    threads = f"{setting.threads} thread{'s' * (setting.threads > 1)}"
    return f"recall@{setting.k}, {_asked(setting.batch)}, {threads}"


def _asked(batch: int) -> str:
    return "one query at a time" if batch == 1 else f"batches of {batch:,}"


def _peer(found: Comparison) -> str:
    return "not reached" if found.peer is None else f"{_rate(found.peer_rate)} ({found.peer})"


def _ratio(found: Comparison, name: str) -> str:
    rate = found.ours.get(name)
    if rate is None or found.peer_rate is None:
        return _rate(rate)
    return f"{_rate(rate)} (**{rate / found.peer_rate:.2f}×**)"


def _factor(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _rate(rate: float | None) -> str:
    return "not reached" if rate is None else f"{rate:,.0f}"
