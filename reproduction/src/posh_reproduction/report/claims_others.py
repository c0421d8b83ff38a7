"""What the paper says about orthogonality, objectives, SBIHT and large sets, judged by its experiments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import scipy.stats

from posh_reproduction.experiments.records import Record
from posh_reproduction.report.estimates import Difference, estimate, mean_of, paired
from posh_reproduction.report.evidence import Evidence, Trials
from posh_reproduction.report.judge import CONFIRMED, MISSING, REFUTED, UNDECIDED, Claim, always, mostly

__all__ = ["by_rate", "claims", "with_params"]

_ORTHOGONAL, _BERNOULLI = {"weights": "orthogonal"}, {"p": 0.2}
_NO_RECORDS = "no records yet"
_NOISE = 0.5  # points of MAP@1000 within which no trend can be seen


def claims(evidence: Evidence) -> Iterator[Claim]:
    """Every claim of figures 1 and 2, of the appendix on SBIHT, and of the large sets."""
    yield _binomial(evidence)
    yield _orthogonal(evidence)
    yield from _objectives(evidence)
    yield from _sbiht(evidence)
    yield from _large(evidence)


def with_params(records: Sequence[Record], params: Mapping[str, object]) -> Trials:
    """The trials of units with these parameters of the hasher."""
    return Trials.of(record for record in records if record["unit"].get("params") == params)


def by_rate(records: Sequence[Record]) -> dict[tuple[str, float | None], list[Record]]:
    """Records of figure 2 by method and learning rate, in the order of the catalogue."""
    groups: dict[tuple[str, float | None], list[Record]] = {}
    for record in records:
        unit = record["unit"]
        name = f"{unit['method']} by mini-batches" if unit.get("batches") else unit["method"]
        groups.setdefault((name, unit["params"].get("learning_rate")), []).append(record)
    return groups


def _binomial(evidence: Evidence) -> Claim:
    text = "Entries of WᵀW are binomial, with means D p and D p² and variances D p (1 − p) and D p² (1 − p²)"
    errors: list[tuple[float, float]] = []
    for record in evidence.records("figure-1a"):
        unit = record["unit"]
        scale = unit["n_bits"] * unit["p"]
        for name, p in (("diagonal", unit["p"]), ("others", unit["p"] ** 2)):
            entries, mean, std = (
                record["entries"][name],
                unit["n_bits"] * p,
                (unit["n_bits"] * p * (1 - p)) ** 0.5,
            )
            errors.append((abs(entries["mean"] * scale / mean - 1), abs(entries["std"] * scale / std - 1)))
    if not errors:
        return Claim(text, MISSING, _NO_RECORDS)
    mean, std = (100 * max(column) for column in zip(*errors, strict=True))
    verdict = CONFIRMED if mean < 2 and std < 5 else REFUTED
    return Claim(text, verdict, f"means are off by at most {mean:.2f} %, standard deviations by {std:.2f} %")


def _orthogonal(evidence: Evidence) -> Claim:
    records = evidence.records("figure-1b")
    one, other = (with_params(records, params) for params in (_ORTHOGONAL, _BERNOULLI))
    cells = sorted(one.by_cell)
    leads = [paired(one.of_cell(*cell), other.of_cell(*cell), "map_1000") for cell in cells]
    text = (
        "Orthogonal random weights have a consistent, albeit small, advantage over Bernoulli ones (p = 0.2)"
    )
    return always(text, leads)


def _objectives(evidence: Evidence) -> Iterator[Claim]:
    groups = by_rate(evidence.records("figure-2"))
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
        return Claim(text, MISSING, _NO_RECORDS)
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
        return Claim(text, MISSING, _NO_RECORDS)
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
        return Claim(text, MISSING, _NO_RECORDS)
    middle = float(np.median(found))
    moved = max(100 * np.ptp([e["mean"] for e in r["epochs"]]) for key in keys for r in groups.get(key, []))
    holds = {1: middle > 0.5, 0: abs(middle) <= 0.5, -1: middle <= 0.5}[wanted]
    verdict = CONFIRMED if holds else REFUTED
    if wanted == 1 and moved < _NOISE:
        verdict = UNDECIDED
    spread = f"median {middle:+.2f}, {min(found):+.2f} to {max(found):+.2f} in {len(found)} runs"
    note = f"rank correlation over epochs of a better objective with MAP@1000: {spread}"
    return Claim(text, verdict, f"{note}, in which MAP@1000 moves by {moved:.2f} points")


def _spearman(record: Record) -> float:
    values = [[epoch[name] for epoch in record["epochs"]] for name in ("objective", "mean")]
    if min(np.ptp(column) for column in values) == 0:
        return 0.0
    return float(scipy.stats.spearmanr(*values).statistic)


def _sbiht(evidence: Evidence) -> Iterator[Claim]:
    records = evidence.records("sbiht")
    falls = "SBIHT decreases its objective monotonically, to exactly zero"
    hardly = "SBIHT has no meaningful advantage over the linear decoder"
    if not records:
        yield Claim(falls, MISSING, _NO_RECORDS)
        yield Claim(hardly, MISSING, _NO_RECORDS)
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
    gains = mean_of([100 * (r["iterations"][-1]["mean"] - r["iterations"][0]["mean"]) for r in records])
    assert gains is not None
    verdict = CONFIRMED if abs(gains.value) < 0.5 else REFUTED
    yield Claim(hardly, verdict, f"MAP@100 changes by {gains.value:+.2f} ± {gains.half:.2f} points")


def _large(evidence: Evidence) -> Iterator[Claim]:
    for name in ("places205", "scale"):
        trials = evidence.trials(name)
        if name == "places205" and not trials.by_cell:
            yield Claim(
                "Places205: POSH is best, SphericalHash does not outperform FruitFly, refinement helps",
                MISSING,
                "needs the authors' file; the next claims are the same on sets that can be had",
            )
            continue
        where = "Places205" if name == "places205" else "Large sets without labels"
        measure = "map_1000" if name == "places205" else "recall_1000"
        yield from _large_set(trials, where, measure)


def _large_set(trials: Trials, where: str, measure: str) -> Iterator[Claim]:
    cells = sorted({(data, size) for data, _, size in trials.by_cell})
    pairs = {
        "SphericalHash does not outperform FruitFly": ("FruitFly", "SphericalHash"),
        "POSH clearly outperforms FruitFly": ("POSH", "FruitFly"),
        "POSH outperforms SphericalHash": ("POSH", "SphericalHash"),
    }
    for text, pair in pairs.items():
        leads = [_unpaired(trials, data, pair, size, measure) for data, size in cells]
        note = f"{pair[0]} − {pair[1]}, {measure.replace('_', '@')}, intervals over queries"
        yield mostly(f"{where}: {text}", leads, note)
    gains = [_gain_of(trials, data, size, f"cr2_{measure}", measure) for data, size in cells]
    yield mostly(f"{where}: refinement by a factor 2 helps POSH", gains)
    losses = [_gain_of(trials, data, size, measure, f"coarse_{measure}") for data, size in cells]
    known = [loss for loss in losses if loss is not None]
    yield mostly(f"{where}: a coarse quantizer costs POSH accuracy", known)


def _unpaired(trials: Trials, data: str, pair: tuple[str, str], size: int, measure: str) -> Difference | None:
    """A difference of two methods with one trial each: intervals over queries, as if these were others."""
    one, other = (trials.estimate(data, method, size, measure) for method in pair)
    if one is None or other is None:
        return None
    return Difference(one.mean - other.mean, 1.96 * (one.query_variance + other.query_variance) ** 0.5)


def _gain_of(trials: Trials, data: str, size: int, one: str, other: str) -> Difference | None:
    records = trials.of_cell(data, "POSH", size, measure=one)
    records = [record for record in records if other in record["measures"]]
    if not records:
        return None
    better, worse = (estimate(records, name) for name in (one, other))
    return Difference(better.mean - worse.mean, 1.96 * (better.query_variance + worse.query_variance) ** 0.5)
