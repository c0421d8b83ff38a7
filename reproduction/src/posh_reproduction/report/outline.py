"""The order of the report: a summary, the claims, and the sections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from posh_reproduction.experiments.catalogue import SPECS
from posh_reproduction.report import (
    claims_trials,
    gist_settings,
    large_sets,
    objectives,
    orthogonality,
    power_hash,
    sbiht,
    sections_trials,
)
from posh_reproduction.report.claims_trials import DATA
from posh_reproduction.report.document import Block, Contents, Heading, Table, Text
from posh_reproduction.report.evidence import Evidence
from posh_reproduction.report.judge import CONFIRMED, MARKS, MISSING, MIXED, REFUTED, UNDECIDED, Claim
from posh_reproduction.report.paper import NAMES

__all__ = ["blocks_of"]

_WANTED = 90  # per cent of the cells that should agree with the paper


def blocks_of(evidence: Evidence) -> list[Block]:
    """All blocks of the report, in order."""
    topics = (orthogonality, objectives, sbiht, large_sets, claims_trials, power_hash)
    claims = [claim for topic in topics for claim in topic.claims(evidence)]
    sections = _sections(evidence, claims)
    return [
        *_title(evidence),
        Contents([b.text for b in sections if isinstance(b, Heading) and b.level == 2]),
        *sections,
    ]


def _sections(evidence: Evidence, claims: list[Claim]) -> list[Block]:
    return [
        *_summary(evidence, claims),
        *_claims(claims, judged=not evidence.quick),
        *_method(),
        *orthogonality.section(evidence),
        *objectives.section(evidence),
        *sections_trials.figure_3(evidence),
        *sections_trials.precision(evidence),
        *sections_trials.table_1(evidence),
        *sections_trials.table_2(evidence),
        *large_sets.places205(evidence),
        *sbiht.section(evidence),
        *sections_trials.hash_length(evidence),
        *sections_trials.asymmetric(evidence),
        *power_hash.section(evidence),
        *gist_settings.section(evidence),
        *large_sets.scale(evidence),
        *large_sets.authors(evidence),
        *_coverage(evidence),
    ]


def _title(evidence: Evidence) -> Iterator[Block]:
    yield Heading(1, "Reproduction of “Procrustean Orthogonal Sparse Hashing”")
    if evidence.quick:
        yield Text.of(
            "**This is the quick twin**: smaller bases, fewer training vectors, queries and trials.",
            "Levels are not comparable with the paper's, and no claim is judged: it shows that everything",
            "runs, and mostly the order of the methods.",
        )
    yield Text.of(
        "Every table and figure of the paper (Tepper, Sengupta and Willke), measured with this library",
        "and put beside the printed values. Made by `posh reproduce report` from raw records; no number of",
        "a table is typed by hand.",
    )


def _summary(evidence: Evidence, claims: list[Claim]) -> Iterator[Block]:
    yield Heading(2, "Summary")
    yield from _unfinished(evidence)
    if not evidence.quick:
        yield Text(_agreement(evidence), is_list=True)
    yield from sections_trials.differences(evidence)
    if not evidence.quick:
        yield from _verdicts(claims)
    yield Heading(3, "Why values differ")
    yield Text(_REASONS, is_list=True)


def _verdicts(claims: list[Claim]) -> Iterator[Block]:
    counts = Counter(claim.verdict for claim in claims)
    verdicts = (CONFIRMED, REFUTED, MIXED, UNDECIDED, MISSING)
    shown = ", ".join(f"{counts[verdict]} {verdict}" for verdict in verdicts)
    yield Text.of(f"Of {len(claims)} claims, the paper's and a few that go beyond it, judged below: {shown}.")
    for verdict, intro in (
        (CONFIRMED, "What holds:"),
        (REFUTED, "What does not hold here:"),
        (MIXED, "What holds in some cells and not in others:"),
        (UNDECIDED, "What the measurements leave open:"),
    ):
        chosen = [_in_short(claim) for claim in claims if claim.verdict == verdict]
        if chosen:
            yield Text.of(intro)
            yield Text(chosen, is_list=True)


def _unfinished(evidence: Evidence) -> Iterator[Block]:
    """A warning in the beginning as long as trials are missing: with few, intervals are wide."""
    units, records = evidence.units("figure-3"), evidence.records("figure-3")
    if len(records) < len(units):
        wanted, found = (Counter(u["seed"] for u in side) for side in (units, (r["unit"] for r in records)))
        done = sum(found[seed] == n for seed, n in wanted.items())
        yield Text.of(
            f"**The run is not finished**: {done} of {len(wanted)} trials are complete. With few trials",
            "intervals are wide, and most comparisons of methods stay open. What is missing is listed at the",
            "end.",
        )


def _in_short(claim: Claim) -> str:
    """The claim, with its measurement if it is in doubt; those of the others are in the table."""
    shown = f": {claim.evidence}" if claim.verdict in (REFUTED, MIXED) else ""
    return f"{claim.text}{shown}."


_REASONS = (
    "MNIST-GIST: our first features are of digits of 28 pixels, and levels differ by a few points. Digits "
    "that are enlarged to 128 pixels before give the paper's levels: see the section on these features. What "
    "is left there is BioHash. CIFAR10-GIST is made by the same program.",
    "Queries are a sample. MNIST has 1,000 of them, and another choice moves MAP by about a point.",
    "POSH does not start its sum at the random matrix as the paper's listing does, because that would make "
    "codes depend on the scale of the data. Mean and principal components are of the training vectors.",
    "Binary OSL: the paper leaves open how its inner problem is solved. Ours reaches more than the printed "
    "values at many set bits, on CIFAR10-GIST more than POSH, which is why POSH does not lead there.",
    "BioHash's authors report several values of its parameters; ours are named in its documentation.",
)


def _agreement(evidence: Evidence) -> list[str]:
    sources = dict.fromkeys(DATA, "figure-3") | {"mnist-gist-128": "mnist-gist-128"}
    features = {"mnist-gist": " with our first features", "mnist-gist-128": " with digits of 128 pixels"}
    lines = []
    for data, experiment in sources.items():
        name, trials = f"**{NAMES[data]}**{features.get(data, '')}", evidence.trials(experiment)
        agreeing, total = sections_trials.agreement(trials, data)
        if not total:
            lines.append(f"{name}: no trials yet.")
            continue
        cells = "cells of MAP@1000 are within 1.5 points of the paper's or within the joint 95 % interval"
        aim = "" if data == "mnist-gist" else _share(agreeing, total)
        if data == "mnist-gist-128":
            others = sections_trials.agreement(trials, data, but=gist_settings.has_chosen)
            aim = f". Some of these cells chose the size: {others[0]} of the {others[1]} others agree"
            aim += _share(*others)
        lines.append(f"{name}: {agreeing} of {total} {cells}{aim}.")
    return lines


def _share(agreeing: int, total: int) -> str:
    return f" ({100 * agreeing / total:.0f} %; aim: {_WANTED} %)"


def _claims(claims: list[Claim], *, judged: bool) -> Iterator[Block]:
    yield Heading(2, "Every claim, with its measurement")
    if not judged:
        yield Text.of("A quick run measures too little to judge a claim. The full run does.")
        yield Table(["claim", "measurement"], [[claim.text, claim.evidence] for claim in claims])
        return
    yield Text.of(
        "A claim about every cell is confirmed if the 95 % interval of each difference is above zero, and",
        "refuted if one is below. A claim about most cells needs more than half; with neither majority it is",
        "mixed if some cells are clearly ahead and others clearly behind. Differences of methods are paired",
        "by trial.",
    )
    yield Table(
        ["claim", "verdict", "measurement"],
        [[c.text, f"**{MARKS[c.verdict]} {c.verdict}**", c.evidence] for c in claims],
    )


def _method() -> Iterator[Block]:
    yield Heading(2, "How intervals are made")
    yield Text.of(
        "With n trials of variance s², N queries whose values have the variance q², and the paper's",
        "standard deviation σ over 10 trials, the difference to the paper has the variance s²/n + q²/N +",
        "σ²/10 + q²/N: both sides have trials, and both have a sample of queries (of the same size, from",
        "the same data). Student's t with Welch's degrees of freedom gives the joint 95 % interval. Where",
        "the paper prints no σ, or there is one trial, that part is left out. Differences between our own",
        "methods are of the same queries: their interval is Student's over the differences of trials with",
        "the same seed, and says nothing of other queries. Where q²/N of a difference is added, too, the",
        "text says so. Gains of refinement and of asymmetric scoring over shared bits are taken query by",
        "query: s²/n + q²/N of the gain itself. On large sets, q²/N of both sides is added instead.",
    )


def _coverage(evidence: Evidence) -> Iterator[Block]:
    yield Heading(2, "What is in, and what is missing")
    rows = []
    for name, spec in SPECS.items():
        records, units = evidence.records(name), evidence.units(name)
        quick = " --quick" if evidence.quick else ""
        todo = "complete" if len(records) == len(units) else f"`posh reproduce run {name}{quick}`"
        rows.append([name, spec.title, f"{len(records)} of {len(units)} units", todo])
    yield Table(["experiment", "", "recorded", "to complete it"], rows)
    yield Text.of("Made on:", *_environments(evidence))


def _environments(evidence: Evidence) -> list[str]:
    made = {
        tuple(str(record["environment"].get(name)) for name in ("chip", "kernel", "commit"))
        for name in SPECS
        for record in evidence.records(name)
    }
    lines = [f"{chip}, kernel {kernel}, commit `{commit}`" for chip, kernel, commit in sorted(made)]
    return ["; ".join(lines) or "no records yet"]
