"""Figure 1: the orthogonality of random weights, and the gain from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from posh_reproduction.experiments.records import Record
from posh_reproduction.report import formatting, plots
from posh_reproduction.report.claims_trials import DATA
from posh_reproduction.report.document import NO_RECORDS, Block, Figure, Heading, Table
from posh_reproduction.report.estimates import paired
from posh_reproduction.report.evidence import Evidence, Trials
from posh_reproduction.report.judge import CONFIRMED, REFUTED, Claim, always, missing
from posh_reproduction.report.paper import NAMES
from posh_reproduction.report.plots import Series, drawn, style

__all__ = ["claims", "section"]

_ORTHOGONAL, _BERNOULLI = {"weights": "orthogonal"}, {"p": 0.2}


def claims(evidence: Evidence) -> Iterator[Claim]:
    """Judge the claims of the paper about orthogonality by figures 1a and 1b."""
    yield _binomial(evidence)
    yield _orthogonal(evidence)


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
        return missing(text)
    mean, std = (100 * max(column) for column in zip(*errors, strict=True))
    verdict = CONFIRMED if mean < 2 and std < 5 else REFUTED
    return Claim(text, verdict, f"means are off by at most {mean:.2f} %, standard deviations by {std:.2f} %")


def _orthogonal(evidence: Evidence) -> Claim:
    records = evidence.records("figure-1b")
    one, other = (_with_params(records, params) for params in (_ORTHOGONAL, _BERNOULLI))
    cells = sorted(one.by_cell)
    leads = [paired(one.of_cell(*cell), other.of_cell(*cell), "map_1000") for cell in cells]
    text = (
        "Orthogonal random weights have a consistent, albeit small, advantage over Bernoulli ones (p = 0.2)"
    )
    return always(text, leads)


def section(evidence: Evidence) -> Iterator[Block]:
    """Yield the orthogonality of Bernoulli weights, and the gain from it."""
    yield Heading(2, "Figure 1: orthogonality")
    yield from _entries(evidence.records("figure-1a"))
    yield from _weights(evidence.records("figure-1b"))


def _entries(records: Sequence[Record]) -> Iterator[Block]:
    yield Heading(3, "1a: the entries of WᵀW / (D p)")
    if not records:
        yield NO_RECORDS
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
        yield NO_RECORDS
        return
    kinds = sorted({(params.get("p", 9.0), str(params)): params for params in _params(records)}.items())
    named = {f"p = {key[0]:g}" if "p" in params else "orthogonal": params for key, params in kinds}
    trials = {name: _with_params(records, params) for name, params in named.items()}
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
        lead = formatting.difference(paired(orthogonal, sparse, "map_1000")) if sparse and orthogonal else "–"
        cells = ["–" if value is None else formatting.mean(value) for value in found.values()]
        rows.append([NAMES[data], str(size), *cells, lead])
    yield Table(["", "set bits", *trials, "orthogonal − (p = 0.2)"], rows)


def _params(records: Sequence[Record]) -> Iterator[dict[str, object]]:
    return (record["unit"]["params"] for record in records)


def _with_params(records: Sequence[Record], params: Mapping[str, object]) -> Trials:
    """The trials of units with these parameters of the hasher."""
    return Trials.of(record for record in records if record["unit"].get("params") == params)
