"""Claims of the paper about methods on labelled data, judged by the trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, product

from posh_reproduction.experiments.records import Record
from posh_reproduction.report import paper
from posh_reproduction.report.estimates import Difference, estimate, gain, mean_of
from posh_reproduction.report.evidence import Evidence, Trials
from posh_reproduction.report.judge import CONFIRMED, MISSING, REFUTED, Claim, always, mostly

__all__ = ["claims"]

DATA = ("mnist", "mnist-gist", "cifar10-gist")
DENSE = ("LSH", "ITQ", "KNNH")
METHODS = (*DENSE, "FruitFly", "BOSL", "BioHash", "SphericalHash", "POSH")
DEEP = ("Deepbit", "DH", "UHBDNN")
_MAP = "map_1000"


def claims(evidence: Evidence) -> Iterator[Claim]:
    """Every claim about figure 3, tables 1 and 2, and the length of codes."""
    trials = evidence.trials("figure-3")
    sizes = sorted({unit["size"] for unit in evidence.units("figure-3")})
    yield from _figure_3(trials, sizes)
    yield _precision(trials, sizes)
    yield from _deep(trials)
    yield from _refinement(trials)
    yield from _lengths(evidence)
    yield _asymmetric(evidence.trials("asymmetric"), sizes)


def _figure_3(trials: Trials, sizes: list[int]) -> Iterator[Claim]:
    few, some, many = (
        [s for s in sizes if s <= 16],
        [s for s in sizes if s <= 32],
        [s for s in sizes if s >= 64],
    )
    yield mostly(
        "FruitFly, which learns nothing, generally outperforms dense hashing (LSH, ITQ, KNNH)",
        [trials.lead(d, ("FruitFly", m), s, _MAP) for d, s, m in product(DATA, sizes, DENSE)],
        _printed(lambda d, s: [_gap(d, s, "FruitFly", m) for m in DENSE], sizes),
    )
    yield mostly(
        "SphericalHash and BOSL dominate at few set bits (8 and 16)",
        [_lead_of_best(trials, d, s, ("SphericalHash", "BOSL")) for d, s in product(DATA, few)],
        _printed(lambda d, s: [_gap_of_best(d, s, ("SphericalHash", "BOSL"))], few),
    )
    yield mostly(
        "POSH dominates at many set bits (64 and 128)",
        [_lead_of_best(trials, d, s, ("POSH",)) for d, s in product(DATA, many)],
        _printed(lambda d, s: [_gap_of_best(d, s, ("POSH",))], many),
    )
    yield always(
        "SphericalHash significantly outperforms BioHash at up to 32 set bits",
        [trials.lead(d, ("SphericalHash", "BioHash"), s, _MAP) for d, s in product(DATA, some)],
    )
    yield always(
        "POSH is superior to SphericalHash at 64 bits in MAP@1000 (caption of table 1)",
        [trials.lead(d, ("POSH", "SphericalHash"), 64, _MAP) for d in ("mnist", "cifar10-gist")],
    )
    yield mostly(
        "POSH and SphericalHash outperform other unsupervised methods (LSH, ITQ, KNNH, FruitFly, BioHash)",
        [
            _lead_of_best(trials, d, s, ("SphericalHash", "POSH"), (*DENSE, "FruitFly", "BioHash"))
            for d, s in product(DATA, sizes)
        ],
    )


def _precision(trials: Trials, sizes: list[int]) -> Claim:
    """Whether the two measures put pairs of methods in the same order."""
    same, total = 0, 0
    for data, size in product(DATA, sizes):
        for pair in combinations(METHODS, 2):
            leads = [trials.lead(data, pair, size, measure) for measure in (_MAP, "precision_1000")]
            if leads[0] is not None and leads[1] is not None:
                total += 1
                same += leads[0].value * leads[1].value > 0
    text = "Precision@1000 shows the same as MAP@1000"
    if not total:
        return Claim(text, MISSING, "no trials yet")
    verdict = CONFIRMED if same >= 0.9 * total else REFUTED
    return Claim(text, verdict, f"{same} of {total} pairs of methods are in the same order (wanted: 90 %)")


def _deep(trials: Trials) -> Iterator[Claim]:
    leads: list[Difference | None] = []
    for data, size in product(("cifar10-gist", "mnist"), (16, 32, 64)):
        deep = [printed.mean for name in DEEP if (printed := paper.deep(data, name, size))]
        ours = [trials.estimate(data, name, size, "map") for name in ("SphericalHash", "POSH")]
        best = max((value for value in ours if value is not None), key=lambda e: e.mean, default=None)
        if best is None:
            leads.append(None)
        else:
            leads.append(Difference(best.mean - max(deep), gain(best).half))
    yield mostly(
        "SphericalHash and POSH are competitive with deep methods (MAP of the whole base)",
        leads,
        "the better of the two against the best deep value that the paper cites",
    )


def _refinement(trials: Trials) -> Iterator[Claim]:
    size = 64
    cells = [trials.of_cell(data, "POSH", size, measure="map_100_cr2") for data in DATA]
    yield always(
        "Refinement by a factor 2 improves MAP@100 on every data set",
        [_gain(records, "map_100_cr2_gain") for records in cells],
        "64 set bits, the same queries",
    )
    yield mostly(
        "A factor of 2 is better than 5 and 10",
        [
            None if not records else _difference(records, "map_100_cr2", f"map_100_cr{factor}")
            for records, factor in product(cells, (5, 10))
        ],
        "64 set bits, the same queries",
    )


def _lengths(evidence: Evidence) -> Iterator[Claim]:
    by_length: dict[int, Trials] = {}
    records = evidence.records("hash-length")
    for n_bits in sorted({unit["n_bits"] for unit in evidence.units("hash-length")}):
        by_length[n_bits] = Trials.of(r for r in records if r["unit"]["n_bits"] == n_bits)
    for size, (one, other), word in (
        (16, ("SphericalHash", "POSH"), "SphericalHash is generally better than POSH at 16 set bits"),
        (64, ("POSH", "SphericalHash"), "POSH dominates SphericalHash at 64 set bits"),
    ):
        leads = [t.lead(d, (one, other), size, _MAP) for t, d in product(by_length.values(), DATA)]
        yield mostly(f"{word}, for any length of the code", leads)


def _asymmetric(trials: Trials, sizes: list[int]) -> Claim:
    sparse = METHODS[len(DENSE) :]
    gains = [
        _gain(trials.of_cell(d, m, s, measure="asymmetric_map_1000_gain"), "asymmetric_map_1000_gain")
        for d, m, s in product(DATA, sparse, sizes)
    ]
    return mostly("Beyond the paper: asymmetric scoring improves MAP@1000 of sparse methods", gains)


def _gain(records: list[Record], measure: str) -> Difference | None:
    """The mean of a difference that was taken query by query."""
    return gain(estimate(records, measure)) if records else None


def _difference(records: list[Record], one: str, other: str) -> Difference | None:
    return mean_of([100 * (r["measures"][one]["mean"] - r["measures"][other]["mean"]) for r in records])


def _lead_of_best(
    trials: Trials, data: str, size: int, ours: tuple[str, ...], others: tuple[str, ...] = METHODS
) -> Difference | None:
    """By how much the best of ours is ahead of the best of the others; None unless all have trials."""
    rest = [method for method in others if method not in ours]
    means = {m: trials.estimate(data, m, size, _MAP) for m in (*ours, *rest)}
    if any(value is None for value in means.values()):
        return None
    best = [max(group, key=lambda m: means[m].mean) for group in (ours, rest)]  # type: ignore[union-attr]
    return trials.lead(data, (best[0], best[1]), size, _MAP)


def _gap(data: str, size: int, one: str, other: str) -> float:
    return paper.figure_3(data, one, size).mean - paper.figure_3(data, other, size).mean


def _gap_of_best(data: str, size: int, ours: tuple[str, ...]) -> float:
    rest = [method for method in METHODS if method not in ours]
    best = [max(paper.figure_3(data, m, size).mean for m in group) for group in (ours, rest)]
    return best[0] - best[1]


def _printed(gaps: Callable[[str, int], list[float]], sizes: list[int]) -> str:
    """Return the values of the paper's own table for the same cells."""
    values = [gap for data, size in product(DATA, sizes) for gap in gaps(data, size)]
    return f"in the paper's own tables ahead in {sum(v > 0 for v in values)} of {len(values)}"
