"""Figure 2: whether a better objective means better accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.stats

from posh_reproduction.experiments.records import Record
from posh_reproduction.report import plots
from posh_reproduction.report.document import NO_RECORDS, Block, Figure, Heading, Table, Text
from posh_reproduction.report.evidence import Evidence
from posh_reproduction.report.judge import CONFIRMED, REFUTED, UNDECIDED, Claim, missing
from posh_reproduction.report.plots import drawn, style

__all__ = ["claims", "section"]

_NOISE = 0.5  # points of MAP@1000 within which no trend can be seen


def claims(evidence: Evidence) -> Iterator[Claim]:
    """Judge the claims of the paper about objectives and accuracy by figure 2."""
    groups = _by_rate(evidence.records("figure-2"))
    rates = [key for key in groups if key[0] == "BioHash"]
    ends = {key: [record["epochs"][-1] for record in records] for key, records in groups.items()}
    objective = {key: float(np.mean([end["objective"] for end in found])) for key, found in ends.items()}
    accuracy = {key: 100 * float(np.mean([end["mean"] for end in found])) for key, found in ends.items()}
    shown = "; ".join(
        f"rate {rate}: objective {objective['BioHash', rate]:.3f}, MAP@1000 {accuracy['BioHash', rate]:.2f}"
        for _, rate in rates
    )
    yield _ordered(
        "A larger learning rate gives BioHash a better objective",
        [objective[key] for key in rates],
        f"at the end, {shown}",
    )
    yield _ordered(
        "With that better objective, BioHash's accuracy is worse",
        [-accuracy[key] for key in rates],
        f"at the end, {shown}",
    )
    spherical, posh, stream = ("SphericalHash", None), ("POSH", None), ("POSH by mini-batches", None)
    yield _spherical_objective(objective, rates, spherical)
    yield _correlation(
        "BioHash's accuracy is not positively correlated with its objective", groups, rates, -1
    )
    yield _correlation("SphericalHash's accuracy is unrelated to its objective", groups, [spherical], 0)
    better = "A better (lower) objective of POSH goes with better accuracy"
    yield _correlation(f"{better}: from the random start on", groups, [stream], 1, sign=-1)
    yield _correlation(f"{better}: from the first epoch on", groups, [posh], 1, sign=-1)


def _ordered(text: str, values: list[float], note: str) -> Claim:
    """Whether values rise from each to the next."""
    if len(values) < 2:
        return missing(text)
    steps = np.diff(values)
    verdict = (
        CONFIRMED if (steps > 0).all() else REFUTED if (steps < 0).any() and steps.sum() <= 0 else UNDECIDED
    )
    return Claim(text, verdict, note)


def _spherical_objective(
    objective: dict[tuple[str, float | None], float],
    rates: list[tuple[str, float | None]],
    spherical: tuple[str, None],
) -> Claim:
    text = "SphericalHash attains a significantly higher objective than BioHash"
    if spherical not in objective or not rates:
        return missing(text)
    ahead = [objective[spherical] > objective[key] for key in rates]
    verdict = CONFIRMED if all(ahead) else REFUTED
    low, high = (extreme(objective[key] for key in rates) for extreme in (min, max))
    note = f"{objective[spherical]:.3f} against {low:.3f} to {high:.3f} of BioHash"
    return Claim(text, verdict, f"{note}; higher than with {sum(ahead)} of {len(rates)} learning rates")


def _correlation(
    text: str,
    groups: dict[tuple[str, float | None], list[Record]],
    keys: list[tuple[str, float | None]],
    wanted: int,
    sign: int = 1,
) -> Claim:
    """Rank correlation of objective and accuracy over epochs; wanted: 1 positive, 0 none, -1 not positive."""
    found = [
        sign * _spearman(record)
        for key in keys
        for record in groups.get(key, [])
        if len(record["epochs"]) > 3
    ]
    if not found:
        return missing(text)
    middle = float(np.median(found))
    moved = max(100 * np.ptp([e["mean"] for e in r["epochs"]]) for key in keys for r in groups.get(key, []))
    holds = {1: middle > 0.5, 0: abs(middle) <= 0.5, -1: middle <= 0.5}[wanted]
    verdict = CONFIRMED if holds else REFUTED
    if wanted != -1 and moved < _NOISE:
        verdict = UNDECIDED
    spread = f"median {middle:+.2f}, {min(found):+.2f} to {max(found):+.2f} in {len(found)} runs"
    note = f"rank correlation over epochs of a better objective with MAP@1000: {spread}"
    return Claim(text, verdict, f"{note}, in which MAP@1000 moves by {moved:.2f} points")


def _spearman(record: Record) -> float:
    values = [[epoch[name] for epoch in record["epochs"]] for name in ("objective", "mean")]
    if min(np.ptp(column) for column in values) == 0:
        return 0.0
    return float(scipy.stats.spearmanr(*values).statistic)


def section(evidence: Evidence) -> Iterator[Block]:
    """Objective and accuracy by epoch."""
    yield Heading(2, "Figure 2: objective against accuracy")
    yield Text.of(
        "CIFAR10-GIST, a subset of each class, 64 of 1,024 bits set. BioHash runs all of its epochs with",
        "learning rates that fall to zero; the paper does not print the rates it used. Accuracy is",
        "MAP@1000.",
    )
    yield Text.of(
        "The following was chosen after a look at the first trial, so this is not a blind test: the rates,",
        "disabling the early stop of BioHash, following POSH by mini-batches (after the first epoch its",
        "accuracy hardly changes, and tends to fall), and ignoring trends below half a point.",
    )
    groups = _by_rate(evidence.records("figure-2"))
    if not groups:
        yield NO_RECORDS
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


def _by_rate(records: Sequence[Record]) -> dict[tuple[str, float | None], list[Record]]:
    """Records of figure 2 by method and learning rate, in the order of the catalogue."""
    groups: dict[tuple[str, float | None], list[Record]] = {}
    for record in records:
        unit = record["unit"]
        name = f"{unit['method']} by mini-batches" if unit.get("batches") else unit["method"]
        groups.setdefault((name, unit["params"].get("learning_rate")), []).append(record)
    return groups
