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
from posh_reproduction.experiments.records import Records
from posh_reproduction.experiments.spec import key
from posh_reproduction.report.document import NO_RECORDS, Block, Figure, Heading, Table, Text
from posh_reproduction.report.writers import to_markdown

__all__ = ["summary", "values", "write"]

_NAME = "benchmarks"
_PROTOCOL = (
    "All contenders get the same vectors. For cosine similarity the vectors have unit length. Image "
    "patches are rotated by a random orthogonal matrix, because product quantization splits vectors along "
    "their axes.",
    "The queries are split into two halves. On the first half, each contender tries its parameters; for "
    "each recall on a ladder, the fastest parameters that reach it are chosen. Only these are measured on "
    "the second half, and only the second half is reported.",
    "Parameters are chosen separately for each batch size, on one thread. Parameters that did badly in "
    "batches of 1,000 are not tried with smaller batches.",
    "The second half is measured in rounds that alternate between contenders, point by point; no two "
    "measurements run concurrently. The best round counts. A warm-up call before each measurement does not "
    "count.",
    "The rate at a recall is interpolated between the two nearest chosen points on the second half, "
    "linearly in the logarithm of the rate. If another chosen point has at least this recall and is "
    "faster, its rate counts. Nothing is extrapolated.",
    "A result counts towards recall if it is no farther than the k-th true neighbour. Indexes are built on "
    "all cores available to the run. Bytes per vector are those of the saved index, including the vectors "
    "if its searches need them.",
    "Compare numbers within a run only: on shared machines, the same measurement varies by 20 to 40 % "
    "between runs.",
)
_MISSING = (
    "**Quantised graphs are not in these tables yet.** SymphonyQG (`rabitqlib` on PyPI) is 2 to 3 times as "
    "fast as POSH for single queries on every data set that we tried except GloVe."
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


def summary(case: CaseRecords) -> list[str]:
    """The comparison at the first setting in a few lines."""
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
    return {"case": case.name, "metric": case.metric, "n_base": case.n_base, "compared": found}


def _blocks(results: Path) -> Iterator[Block]:
    cases = cases_in(results)
    yield Heading(1, "Recall and speed compared with other libraries")
    yield Text.of(
        "Queries per second at equal recall, with all contenders in one run on one machine.",
        "`make bench-ann` repeats the measurement; `posh bench ann --help` lists the options.",
        "The raw results are in `results/ann`.",
    )
    yield Text.of(_MISSING)
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
    yield Text.of(f"All contenders, {_shown(case.settings[0])}:")
    yield _contenders(case)
    yield Text.of("Indexes:")
    yield _builds(case)


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
            yield Figure(f"{case.name}-{case.metric}-{case.n_base}{suffix}", content, caption)


def _contenders(case: CaseRecords) -> Table:
    setting = case.settings[0]
    rows = []
    for name in case.contenders:
        curve = case.curve(name, setting)
        rates = [_rate(rate_at(curve, target)) for target in TARGETS]
        busy = case.busy(name, setting.threads)
        more = [_factor(busy), _factor(case.gain_of_threads(name, 0.95))]
        rows.append([name, *rates, str(case.tried(name, setting)), *more])
    header = ["contender", *(f"at {target:.2f}" for target in TARGETS)]
    return Table([*header, "parameters tried", "cores busy", "2 threads / 1, at 0.95"], rows)


def _builds(case: CaseRecords) -> Table:
    rows = [
        [
            record["unit"]["contender"],
            key(record["unit"]["build"]).replace('"', "").strip("{}") or "–",
            f"{record['seconds']:.1f}",
            str(record["unit"]["threads"]),
            f"{record['bytes_per_vector']:.0f}",
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
    return f"{case.name}: {case.n_base:,}{width}, {case.metric}"


def _shown(setting: Setting) -> str:
    """A setting in words.

    >>> _shown(Setting(10, 1, 1)), _shown(Setting(100, 1000, 2))
    ('recall@10, one query at a time, 1 thread', 'recall@100, batches of 1,000, 2 threads')
    """
    asked = "one query at a time" if setting.batch == 1 else f"batches of {setting.batch:,}"
    return f"recall@{setting.k}, {asked}, {setting.threads} thread{'s' * (setting.threads > 1)}"


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
