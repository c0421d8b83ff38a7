"""Sections on labelled data: figure 3, tables 1 and 2, the length of codes, asymmetric scoring."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from posh_reproduction.report import formatting, paper, plots
from posh_reproduction.report.claims_trials import DATA, DEEP, DENSE, METHODS
from posh_reproduction.report.document import Block, Figure, Heading, Table, Text
from posh_reproduction.report.estimates import CLOSE, estimate, gain, versus_paper
from posh_reproduction.report.evidence import Evidence, Trials
from posh_reproduction.report.paper import NAMES
from posh_reproduction.report.plots import Series

__all__ = [
    "agreement",
    "asymmetric",
    "curves",
    "differences",
    "figure_3",
    "gaps",
    "hash_length",
    "precision",
    "refinement",
    "table_1",
    "table_2",
]

_TABLE_2_SIZE = 64
_COLUMNS = {"map_100": "POSH", "map_100_cr2": "CR2", "map_100_cr5": "CR5", "map_100_cr10": "CR10"}


def agreement(
    trials: Trials, data: str, but: Callable[[str, int], bool] = lambda method, size: False
) -> tuple[int, int]:
    """Return how many cells of figure 3 agree with the paper, of how many; ``but`` excludes cells."""
    gaps = [
        versus_paper(estimate(records, "map_1000"), paper.figure_3(*cell))
        for cell, records in trials.by_cell.items()
        if cell[0] == data and not but(*cell[1:])
    ]
    return sum(gap.agrees for gap in gaps), len(gaps)


def differences(evidence: Evidence) -> Iterator[Block]:
    """Yield the differences of all cells of figure 3 from the paper's."""
    trials = evidence.trials("figure-3")
    if evidence.quick or not trials.by_cell:
        return
    picture = gaps({NAMES[data]: (trials, data) for data in DATA})
    caption = "MAP@1000, ours minus the paper's, with joint 95 % intervals; shaded: within 1.5 points."
    yield Figure("differences", picture, caption)


def gaps(panels: Mapping[str, tuple[Trials, str]]) -> bytes:
    """A picture of MAP@1000 minus the paper's; each panel has a title, trials, and the name of a data set."""
    sizes = sorted(
        {size for trials, data in panels.values() for name, _, size in trials.by_cell if name == data}
    )
    content: list[list[Series]] = []
    for trials, data in panels.values():
        lines: list[Series] = []
        for number, method in enumerate(METHODS):
            shift = 2 ** (0.08 * (number - (len(METHODS) - 1) / 2))  # so that intervals are side by side
            found = {size: trials.estimate(data, method, size, "map_1000") for size in sizes}
            apart = {
                size: versus_paper(value, paper.figure_3(data, method, size))
                for size, value in found.items()
                if value is not None
            }
            x = [shift * size for size in apart]
            lines.append(
                (method, x, [gap.value for gap in apart.values()], [gap.half for gap in apart.values()])
            )
        content.append(lines)
    return plots.panels(
        list(panels),
        content,
        "length (dense) or set bits (sparse)",
        "ours − the paper's, points",
        ticks=sizes,
        band=CLOSE,
    )


def figure_3(evidence: Evidence) -> Iterator[Block]:
    """MAP@1000 of all methods, a table for each data set."""
    trials = evidence.trials("figure-3")
    yield Heading(2, "Figure 3: MAP@1000 of eight methods")
    yield Text.of(
        "Each cell: our mean over trials with its 95 % interval over trials; the paper's mean and standard",
        "deviation; the difference with the joint 95 % interval over trials and query samples. An",
        "exclamation mark means that the difference is larger than 1.5 points and the interval does not",
        "contain zero.",
    )
    yield from _plot(evidence, trials, "figure-3", "map_1000", "MAP@1000 (%)")
    for data in DATA:
        yield Heading(3, NAMES[data])
        agreeing, total = agreement(trials, data)
        if not total:
            yield Text.of("No trials yet.")
        elif not evidence.quick:
            yield Text.of(f"{agreeing} of {total} cells agree with the paper.")
        yield _table(evidence, trials, data, "map_1000", METHODS)


def precision(evidence: Evidence) -> Iterator[Block]:
    """Precision@1000, which the paper only draws."""
    trials = evidence.trials("figure-3-precision")
    yield Heading(2, "Figure 3 with Precision@1000")
    yield Text.of(
        "The paper shows this as a figure without numbers: its values cannot be compared with ours."
    )
    yield from _plot(evidence, trials, "figure-3-precision", "precision_1000", "Precision@1000 (%)")
    for data in DATA:
        yield Heading(3, NAMES[data])
        yield _table(evidence, trials, data, "precision_1000", METHODS)


def table_1(evidence: Evidence) -> Iterator[Block]:
    """Yield MAP of the whole base, compared with deep methods."""
    trials = evidence.trials("table-1")
    ours = ("KNNH", "FruitFly", "SphericalHash", "POSH")
    yield Heading(2, "Table 1: MAP of the whole base, compared with deep methods")
    yield Text.of("The deep methods' values are cited as the paper reports them; it gives no deviations.")
    rows = []
    for data, size in product(("cifar10-gist", "mnist"), (16, 32, 64)):
        deep = [paper.deep(data, name, size) for name in DEEP]
        cells = [
            formatting.compare_with_paper(
                trials.estimate(data, name, size, "map"), paper.deep(data, name, size)
            )
            for name in ours
        ]
        cited = ["–" if value is None else f"{value.mean:.2f}" for value in deep]
        rows.append([NAMES[data], str(size), *cited, *cells])
    yield Table(["", "bits", *(f"{name} (cited)" for name in DEEP), *ours], rows)


def refinement(trials: Trials, names: Sequence[str]) -> Table:
    """Return MAP@100 of POSH, plain and refined, compared with the paper's, for some data sets."""
    rows = []
    for data in names:
        found = {name: trials.estimate(data, "POSH", _TABLE_2_SIZE, name) for name in _COLUMNS}
        cells = [
            formatting.compare_with_paper(found[name], paper.refinement(data, column))
            for name, column in _COLUMNS.items()
        ]
        rows.append([NAMES[data], *cells])
    return Table(["", "POSH", "POSH+CR2", "POSH+CR5", "POSH+CR10"], rows)


def table_2(evidence: Evidence) -> Iterator[Block]:
    """Yield candidate refinement, compared with the paper's, and at other sizes."""
    trials = evidence.trials("table-2")
    yield Heading(2, "Table 2: candidate refinement, MAP@100")
    yield Text.of(
        f"The paper does not state the number of set bits; its values suggest {_TABLE_2_SIZE}, which the",
        "first table uses. Gains are over the same queries, with intervals over trials and queries.",
    )
    gains = []
    for data in DATA:
        printed = {name: paper.refinement(data, column) for name, column in _COLUMNS.items()}
        base = printed["map_100"].mean
        own = [_gain(trials, data, _TABLE_2_SIZE, name) for name in list(_COLUMNS)[1:]]
        paper_gains = [f"{printed[name].mean - base:+.2f}" for name in list(_COLUMNS)[1:]]
        cells = [f"**{mine}**\npaper {theirs}" for mine, theirs in zip(own, paper_gains, strict=True)]
        gains.append([NAMES[data], *cells])
    yield refinement(trials, DATA)
    yield Text.of("Gains of refinement over POSH:")
    yield Table(["", "CR2", "CR5", "CR10"], gains)
    sizes = sorted({size for _, _, size in trials.by_cell})
    yield Text.of("The gain of a factor 2 at other sizes:")
    rows = [[NAMES[data], *(_gain(trials, data, size, "map_100_cr2") for size in sizes)] for data in DATA]
    yield Table(["", *(f"{size} bits" for size in sizes)], rows)


def hash_length(evidence: Evidence) -> Iterator[Block]:
    """MAP@1000 by the length of the code."""
    records = evidence.records("hash-length")
    yield Heading(2, "Hash length D against accuracy")
    yield Text.of(
        "If codes have fewer bits than the data has features, the number of principal components equals the",
        "number of set bits, as in the paper. LabelMe, the paper's fourth set, needs the authors' file.",
    )
    if not records:
        yield Text.of("No records yet.")
        return
    by_length: dict[int, list[dict[str, object]]] = {}
    for record in records:
        by_length.setdefault(record["unit"]["n_bits"], []).append(record)
    trials = {n_bits: Trials.of(by_length[n_bits]) for n_bits in sorted(by_length)}
    sizes = sorted({unit["size"] for unit in evidence.units("hash-length")})
    methods = ("FruitFly", "SphericalHash", "POSH")
    cells = list(product(DATA, sizes))
    content: list[list[Series]] = []
    rows = []
    for data, size in cells:
        lines: list[Series] = []
        for method in methods:
            found = {n: t.estimate(data, method, size, "map_1000") for n, t in trials.items()}
            known = {n: value for n, value in found.items() if value is not None}
            halves = [value.half for value in known.values()]
            lines.append((method, list(known), [value.mean for value in known.values()], halves))
            rows.append(
                [NAMES[data], str(size), method, *(formatting.mean(value) for value in found.values())]
            )
        content.append(lines)
    titles = [f"{NAMES[data]}, α = {size}" for data, size in cells]
    picture = plots.panels(titles, content, "hash length D", "MAP@1000 (%)", columns=len(sizes))
    yield Figure(
        "hash-length", picture, "MAP@1000 by the length of the code; bars are 95 % intervals over trials."
    )
    yield Table(["", "set bits", "method", *(f"D = {n:,}" for n in trials)], rows)


def asymmetric(evidence: Evidence) -> Iterator[Block]:
    """Asymmetric scoring in the same tables."""
    trials = evidence.trials("asymmetric")
    yield Heading(2, "Beyond the paper: asymmetric scoring")
    yield Text.of(
        "The same codes of documents, scored by the query's projection summed over the document's set bits",
        "instead of by shared bits, for at most the first 2,000 queries. Each cell: MAP@1000 and the gain",
        "over shared bits for the same queries (with the 95 % interval over trials and queries).",
    )
    sizes = sorted({unit["size"] for unit in evidence.units("asymmetric")})
    for data in DATA:
        yield Heading(3, NAMES[data])
        rows = []
        for method in (*METHODS[len(DENSE) :], "PowerHash"):
            cells = []
            for size in sizes:
                own = trials.estimate(data, method, size, "asymmetric_map_1000")
                extra = trials.estimate(data, method, size, "asymmetric_map_1000_gain")
                gained = "" if extra is None else f"\n{formatting.difference(gain(extra))}"
                cells.append(f"{formatting.mean(own)}{gained}")
            rows.append([method, *cells])
        yield Table(["", *(f"{size} bits" for size in sizes)], rows)


def curves(
    trials: Trials, data: str, methods: Sequence[str], sizes: Sequence[int], measure: str
) -> list[Series]:
    """A measure of each method over sizes, with intervals over trials."""
    lines: list[Series] = []
    for method in methods:
        found = {size: trials.estimate(data, method, size, measure) for size in sizes}
        known = {size: value for size, value in found.items() if value is not None}
        halves = [value.half for value in known.values()]
        lines.append((method, list(known), [value.mean for value in known.values()], halves))
    return lines


def _plot(evidence: Evidence, trials: Trials, name: str, measure: str, label: str) -> Iterator[Block]:
    if not trials.by_cell:
        return
    sizes = sorted({unit["size"] for unit in evidence.units(name)})
    picture = plots.panels(
        [NAMES[data] for data in DATA],
        [curves(trials, data, METHODS, sizes, measure) for data in DATA],
        "length (dense) or set bits (sparse)",
        label,
    )
    yield Figure(name, picture, f"{label} of eight methods; bars are 95 % intervals over trials.")


def _table(evidence: Evidence, trials: Trials, data: str, measure: str, methods: tuple[str, ...]) -> Table:
    sizes = sorted({unit["size"] for unit in evidence.units("figure-3")})
    rows = [
        [
            method,
            *(
                formatting.compare_with_paper(
                    trials.estimate(data, method, size, measure),
                    paper.figure_3(data, method, size) if measure == "map_1000" else None,
                )
                for size in sizes
            ),
        ]
        for method in methods
    ]
    return Table(["", *(f"{size} bits" for size in sizes)], rows)


def _gain(trials: Trials, data: str, size: int, name: str) -> str:
    found = trials.estimate(data, "POSH", size, f"{name}_gain")
    return formatting.difference(None if found is None else gain(found))
