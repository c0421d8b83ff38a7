"""Sections on orthogonality, objectives and SBIHT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from posh_reproduction.experiments.records import Record
from posh_reproduction.report import plots, shown
from posh_reproduction.report.claims_others import by_rate, with_params
from posh_reproduction.report.claims_trials import DATA
from posh_reproduction.report.document import Block, Figure, Heading, Table, Text
from posh_reproduction.report.estimates import paired
from posh_reproduction.report.evidence import Evidence
from posh_reproduction.report.paper import NAMES
from posh_reproduction.report.plots import Series, drawn, style

__all__ = ["figure_1", "figure_2", "sbiht"]

_NO_RECORDS = Text.of("No records yet.")


def figure_1(evidence: Evidence) -> Iterator[Block]:
    """How orthogonal Bernoulli weights are, and what orthogonality gains."""
    yield Heading(2, "Figure 1: orthogonality")
    yield from _entries(evidence.records("figure-1a"))
    yield from _weights(evidence.records("figure-1b"))


def _entries(records: Sequence[Record]) -> Iterator[Block]:
    yield Heading(3, "1a: the entries of WᵀW / (D p)")
    if not records:
        yield _NO_RECORDS
        return
    p = [record["unit"]["p"] for record in records]
    with drawn(1, width=6) as (_, (axis,), buffer):
        for number, (name, label) in enumerate((("diagonal", "diagonal"), ("others", "off the diagonal"))):
            entries = [record["entries"][name] for record in records]
            look = style("", number)
            axis.plot(p, [entry["mean"] for entry in entries], label=label, **look)
            low, high = ([entry["quantiles"][q] for entry in entries] for q in ("0.025", "0.975"))
            axis.fill_between(p, low, high, color=look["color"], alpha=0.25)
        axis.set_xlabel("density p")
        axis.set_ylabel("entries of WᵀW / (D p)")
        axis.grid(alpha=0.3)
        axis.legend()
    n = records[0]["unit"]["n_matrices"]
    yield Figure("figure-1a", buffer.getvalue(), f"Means over {n} matrices; shaded: 95 % of the entries.")
    rows = [
        [f"{record['unit']['p']:g}", *(_spread(record["entries"][name]) for name in ("diagonal", "others"))]
        for record in records
    ]
    yield Table(["p", "diagonal: mean, 95 % of the entries", "off the diagonal"], rows)


def _spread(entries: dict[str, object]) -> str:
    quantiles = entries["quantiles"]
    assert isinstance(quantiles, dict)
    return f"{entries['mean']:.3f}, {quantiles['0.025']:.3f} to {quantiles['0.975']:.3f}"


def _weights(records: Sequence[Record]) -> Iterator[Block]:
    yield Heading(3, "1b: Bernoulli against orthogonal weights (FruitFly)")
    if not records:
        yield _NO_RECORDS
        return
    kinds = sorted({(params.get("p", 9.0), str(params)): params for params in _params(records)}.items())
    named = {f"p = {key[0]:g}" if "p" in params else "orthogonal": params for key, params in kinds}
    trials = {name: with_params(records, params) for name, params in named.items()}
    sizes = sorted({record["unit"]["size"] for record in records})
    compared = ("p = 0.2", "orthogonal")
    content: list[list[Series]] = []
    for data in DATA:
        lines: list[Series] = []
        for name in compared:
            found = {size: trials[name].estimate(data, "FruitFly", size, "map_1000") for size in sizes}
            known = {size: value for size, value in found.items() if value is not None}
            halves = [value.half for value in known.values()]
            lines.append((name, list(known), [value.mean for value in known.values()], halves))
        content.append(lines)
    picture = plots.panels([NAMES[data] for data in DATA], content, "set bits α", "MAP@1000 (%)")
    yield Figure("figure-1b", picture, "MAP@1000 of FruitFly; bars are 95 % intervals over trials.")
    rows = []
    for data, size in product(DATA, sizes):
        found = {name: trials[name].estimate(data, "FruitFly", size, "map_1000") for name in trials}
        sparse, orthogonal = (trials[name].of_cell(data, "FruitFly", size) for name in compared)
        lead = shown.difference(paired(orthogonal, sparse, "map_1000")) if sparse and orthogonal else "–"
        cells = ["–" if value is None else shown.mean(value) for value in found.values()]
        rows.append([NAMES[data], str(size), *cells, lead])
    yield Table(["", "set bits", *trials, "orthogonal − (p = 0.2)"], rows)


def _params(records: Sequence[Record]) -> Iterator[dict[str, object]]:
    return (record["unit"]["params"] for record in records)


def figure_2(evidence: Evidence) -> Iterator[Block]:
    """Objective and accuracy by epoch."""
    yield Heading(2, "Figure 2: objective against accuracy")
    yield Text.of(
        "CIFAR10-GIST, a subset of each class, 64 of 1,024 bits set. BioHash is left to run all of its",
        "epochs with learning rates that fall to zero; the paper does not print the rates it used.",
        "Accuracy is MAP@1000.",
    )
    yield Text.of(
        "Chosen after a look at the first trial, so not a blind test: the rates, letting BioHash run on",
        "(with its usual stop it ended early), following POSH by mini-batches (from the first epoch on its",
        "accuracy hardly moves, and rather falls), and judging no trend below half a point.",
    )
    groups = by_rate(evidence.records("figure-2"))
    if not groups:
        yield _NO_RECORDS
        return
    values = [100 * e["mean"] for records in groups.values() for record in records for e in record["epochs"]]
    with drawn(4, -(-len(groups) // 4), width=4.3, height=3.2) as (_, axes, buffer):
        for axis, ((method, rate), records) in zip(axes, groups.items(), strict=False):
            _epochs(axis, records)
            axis.set_title(method if rate is None else f"{method}, learning rate {rate:g}")
            axis.set_ylim(min(values) - 0.1, max(values) + 0.1)  # one scale, or else noise looks like a trend
            if "mini-batches" in method:
                axis.set_xscale("symlog", linthresh=0.02)
                axis.set_xlim(left=-0.002)
                axis.set_xticks([0, 0.02, 0.1, 1, 10], ["0", "0.02", "0.1", "1", "10"])
        for axis in axes[len(groups) :]:
            axis.set_visible(False)
    caption = "After each epoch: the objective (squares, dashed) and MAP@1000 (circles), for each trial."
    yield Figure("figure-2", buffer.getvalue(), caption)
    rows = []
    for (method, rate), records in groups.items():
        ends = [record["epochs"][-1] for record in records]
        tops = [max(record["epochs"], key=lambda epoch: float(epoch["mean"])) for record in records]
        rows.append(
            [
                method if rate is None else f"{method}, {rate:g}",
                f"{np.mean([end['objective'] for end in ends]):.3f}",
                f"{100 * np.mean([end['mean'] for end in ends]):.2f}",
                f"{100 * np.mean([top['mean'] for top in tops]):.2f}",
                ", ".join(str(top["epoch"]) for top in tops),
            ]
        )
    yield Table(["", "objective at the end", "MAP@1000 at the end", "highest MAP@1000", "in epoch"], rows)


def _epochs(axis: object, records: Sequence[Record]) -> None:
    accuracy, objective = plots.twins(axis)
    for record in records:
        x = [epoch["epoch"] for epoch in record["epochs"]]
        accuracy.plot(x, [100 * epoch["mean"] for epoch in record["epochs"]], **style("", 0))
        objective.plot(x, [epoch["objective"] for epoch in record["epochs"]], **style("", 1))
    accuracy.set_xlabel("epoch")
    accuracy.set_ylabel("MAP@1000 (%)", color=style("", 0)["color"])
    objective.set_ylabel("objective", color=style("", 1)["color"])


def sbiht(evidence: Evidence) -> Iterator[Block]:
    """SBIHT by iteration."""
    yield Heading(2, "SBIHT: objective and accuracy by iteration")
    records = evidence.records("sbiht")
    if not records:
        yield _NO_RECORDS
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
