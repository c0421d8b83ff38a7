"""SBIHT iteration by iteration: the appendix of the paper."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from posh_reproduction.report import plots
from posh_reproduction.report.document import NO_RECORDS, Block, Figure, Heading, Table
from posh_reproduction.report.estimates import mean_of
from posh_reproduction.report.evidence import Evidence
from posh_reproduction.report.judge import CONFIRMED, REFUTED, UNDECIDED, Claim, missing
from posh_reproduction.report.plots import drawn, style

__all__ = ["claims", "section"]


def claims(evidence: Evidence) -> Iterator[Claim]:
    """Judge the claims of the paper about SBIHT."""
    records = evidence.records("sbiht")
    falls = "SBIHT decreases its objective monotonically, to exactly zero"
    hardly = "SBIHT has no meaningful advantage over the linear decoder"
    if not records:
        yield missing(falls)
        yield missing(hardly)
        return
    losses = [[step["loss"] for step in record["iterations"]] for record in records]
    rises = sum(int((np.diff(loss) > 0).sum()) for loss in losses)
    ends: dict[int, list[float]] = {}
    for record in records:
        ends.setdefault(record["unit"]["size"], []).append(record["iterations"][-1]["loss"])
    last = ", ".join(f"{np.mean(found):.4f} of {size}" for size, found in sorted(ends.items()))
    verdict = CONFIRMED if rises == 0 and max(loss[-1] for loss in losses) == 0 else UNDECIDED
    steps = sum(len(loss) - 1 for loss in losses)
    note = f"{rises} of {steps} steps go up; wrong bits per code at the end, on average: {last}"
    yield Claim(falls, verdict if rises < 0.1 * steps else REFUTED, note)
    by_seed: dict[int, list[float]] = {}  # sizes of one trial are not independent of each other
    for record in records:
        first, last_step = record["iterations"][0], record["iterations"][-1]
        by_seed.setdefault(record["unit"]["seed"], []).append(100 * (last_step["mean"] - first["mean"]))
    gains = mean_of([float(np.mean(found)) for found in by_seed.values()])
    assert gains is not None
    verdict = CONFIRMED if abs(gains.value) < 0.5 else REFUTED
    yield Claim(hardly, verdict, f"MAP@100 changes by {gains.value:+.2f} ± {gains.half:.2f} points")


def section(evidence: Evidence) -> Iterator[Block]:
    """SBIHT by iteration."""
    yield Heading(2, "SBIHT: objective and accuracy by iteration")
    records = evidence.records("sbiht")
    if not records:
        yield NO_RECORDS
        return
    sizes = sorted({record["unit"]["size"] for record in records})
    with drawn(len(sizes), width=5) as (_, axes, buffer):
        for axis, size in zip(axes, sizes, strict=True):
            accuracy, loss = plots.twins(axis)
            for record in records:
                if record["unit"]["size"] == size:
                    steps = record["iterations"]
                    x = [step["iteration"] for step in steps]
                    accuracy.plot(x, [100 * s["mean"] for s in steps], **{**style("", 0), "markersize": 3})
                    loss.plot(x, [s["loss"] for s in steps], **{**style("", 1), "markersize": 3})
            accuracy.set_title(f"POSH, α = {size}")
            accuracy.set_xlabel("iteration")
            accuracy.set_ylabel("MAP@100 (%)", color=style("", 0)["color"])
            loss.set_ylabel("wrong bits per code", color=style("", 1)["color"])
    caption = (
        "Wrong bits of the decoded vectors (squares, dashed) and MAP@100 of 200 refined candidates (circles)."
    )
    yield Figure("sbiht", buffer.getvalue(), caption)
    rows = []
    for record in records:
        first, last = record["iterations"][0], record["iterations"][-1]
        rows.append(
            [
                str(record["unit"]["size"]),
                str(record["unit"]["seed"]),
                f"{100 * record['unrefined']['mean']:.2f}",
                f"{100 * first['mean']:.2f}",
                f"{100 * last['mean']:.2f}",
                f"{first['loss']:.2f}",
                f"{last['loss']:.4f}",
                f"{100 * last['met']:.2f} %",
            ]
        )
    header = [
        "set bits",
        "trial",
        "MAP@100 unrefined",
        "linear decoder",
        f"SBIHT, {last['iteration']} iterations",
    ]
    yield Table([*header, "wrong bits at first", "at last", "codes met exactly"], rows)
