"""Large data sets, and data sets that need their authors' files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median

from posh_reproduction.experiments.records import Record
from posh_reproduction.report import formatting, paper
from posh_reproduction.report.document import NO_RECORDS, Block, Heading, Table, Text
from posh_reproduction.report.estimates import Difference, differences, estimate, gain, mean_of
from posh_reproduction.report.evidence import Evidence, Trials
from posh_reproduction.report.judge import MISSING, Claim, mostly
from posh_reproduction.report.paper import NAMES, Printed

__all__ = ["authors", "claims", "places205", "scale"]


def claims(evidence: Evidence) -> Iterator[Claim]:
    """Judge the claims of the paper about its large set, on that set and on others."""
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
        leads = [_lead(trials, data, pair, size, measure) for data, size in cells]
        note = f"{pair[0]} − {pair[1]}, {measure.replace('_', '@')}, intervals over trials and queries"
        yield mostly(f"{where}: {text}", leads, note)
    gains = [_gain(trials, data, size, f"cr2_{measure}", measure) for data, size in cells]
    yield mostly(f"{where}: refinement by a factor 2 helps POSH", gains)
    losses = [_gain(trials, data, size, measure, f"coarse_{measure}") for data, size in cells]
    known = [loss for loss in losses if loss is not None]
    yield mostly(f"{where}: a coarse quantizer costs POSH accuracy", known)


def _lead(trials: Trials, data: str, pair: tuple[str, str], size: int, measure: str) -> Difference | None:
    """By how much the first method is ahead of the second, paired by trial."""
    one, other = (trials.of_cell(data, method, size, measure=measure) for method in pair)
    if not one or not other:
        return None
    return mean_of(differences(one, other, measure), [estimate(side, measure) for side in (one, other)])


def _gain(trials: Trials, data: str, size: int, one: str, other: str) -> Difference | None:
    """By how much one measure of POSH is larger than another, paired by trial."""
    records = trials.of_cell(data, "POSH", size, measure=one)
    records = [record for record in records if other in record["measures"]]
    if not records:
        return None
    gains = [100 * (r["measures"][one]["mean"] - r["measures"][other]["mean"]) for r in records]
    return mean_of(gains, [estimate(records, measure) for measure in (one, other)])


def places205(evidence: Evidence) -> Iterator[Block]:
    """The paper's large set, if its files are there."""
    yield Heading(2, "Table 3: Places205")
    trials = evidence.trials("places205")
    if not trials.by_cell:
        yield _needs("places205", "places205", evidence)
        return
    columns = ("LSH", "ITQ", "KNNH", "FruitFly", "SphericalHash", "POSH", "POSH+CR2")
    for measure, name in (("map", "MAP@1000"), ("precision", "Precision@1000")):
        rows = []
        for size in sorted({size for _, _, size in trials.by_cell}):
            cells = []
            for column in columns:
                method, prefix = column.removesuffix("+CR2"), "cr2_" if column.endswith("CR2") else ""
                own = trials.estimate("places205", method, size, f"{prefix}{measure}_1000")
                cells.append(formatting.compare_with_paper(own, paper.places205(measure, column, size)))
            rows.append([f"{size} bits", *cells])
        yield Heading(3, name)
        yield Table(["", *columns], rows)
    printed = paper.tables()["places205_coarse_quantizer"]
    coarse = trials.estimate("places205", "POSH", 64, "coarse_map_1000")
    yield Text.of(
        "Coarse quantizer, 64 bits:",
        formatting.compare_with_paper(coarse, Printed(printed["map_at_1000_to"])).replace("\n", ", "),
    )


def scale(evidence: Evidence) -> Iterator[Block]:
    """Yield the protocol of Places205 on available data sets."""
    yield Heading(2, "Beyond the paper: large sets, judged by true neighbours")
    yield Text.of(
        "Places205 is not available here, so its protocol runs on image patches and on GloVe. These have no",
        "labels: the 100 vectors of the largest cosine are relevant, and recall is their share within 1,000",
        "results; intervals are over trials and queries. Rates are queries per second of CPU time on one",
        "thread, for 1,000 results, without encoding for exact search and with it for the coarse quantizer:",
        f"the median of the trials ({_machines(evidence)}). The paper reports 14,000 queries per second for",
        "its parallel code and 2.4 million targets, and a fall of MAP@1000 from 32.83 to 30.67.",
    )
    trials = evidence.trials("scale")
    if not trials.by_cell:
        yield NO_RECORDS
        return
    rows = []
    for (data, method, size), records in sorted(trials.by_cell.items(), key=lambda item: item[0][::2]):
        kinds = {"": method, "cr2_": f"{method}+CR2", "coarse_": f"{method}, coarse"}
        for prefix, name in kinds.items():
            if f"{prefix}recall_1000" not in records[0]["measures"]:
                continue
            what = {"": "exact", "coarse_": "coarse"}.get(prefix, "")
            rates = [r["queries_per_second"][what] for r in records if what in r["queries_per_second"]]
            cells = [
                _with_interval(records, f"{prefix}{measure}")
                for measure in ("recall_1000", "recall_100", "map_1000")
            ]
            rows.append([data, str(size), name, *cells, f"{median(rates):,.0f}" if rates else "–"])
    yield Table(
        ["", "bits", "method", "recall@1000 (%)", "recall@100 (%)", "MAP@1000 (%)", "queries/s"], rows
    )


def _machines(evidence: Evidence) -> str:
    """Return the number of trials of each kernel: rates depend on it."""
    kernels = Counter(str(record["environment"].get("kernel")) for record in evidence.records("scale"))
    return ", ".join(f"{n} with {kernel}" for kernel, n in sorted(kernels.items())) or "none yet"


def _with_interval(records: list[Record], measure: str) -> str:
    found = estimate(records, measure)
    return f"{found.mean:.2f} ± {gain(found).half:.2f}"


def authors(evidence: Evidence) -> Iterator[Block]:
    """The sets of figure 3 and table 2 that only their authors have."""
    yield Heading(2, "Sets of the authors of KNNH")
    trials = evidence.trials("figure-3-authors")
    methods = sorted({method for _, method, _ in trials.by_cell})
    sizes = sorted({size for _, _, size in trials.by_cell})
    for data in sorted({unit["data"] for unit in evidence.units("figure-3-authors")}):
        yield Heading(3, f"{NAMES[data]} (`{data}`)")
        if not any(cell[0] == data for cell in trials.by_cell):
            yield _needs(data, "figure-3-authors", evidence)
            continue
        rows = [
            [
                method,
                *(
                    formatting.compare_with_paper(
                        trials.estimate(data, method, size, "map_1000"), paper.figure_3(data, method, size)
                    )
                    for size in sizes
                ),
            ]
            for method in methods
        ]
        yield Table(["MAP@1000", *(f"{size} bits" for size in sizes)], rows)


def _needs(data: str, spec: str, evidence: Evidence) -> Text:
    quick = " --quick" if evidence.quick else ""
    return Text.of(
        f"Needs the authors' file: `posh data fetch {data}` names it, and the place to put it. Then `posh",
        f"reproduce run {spec}{quick}` and `posh reproduce report{quick}`.",
    )
