"""Sections on large sets, and on sets that need their authors' files."""

from __future__ import annotations

from collections.abc import Iterator

from posh_reproduction.report import paper, shown
from posh_reproduction.report.document import Block, Heading, Table, Text
from posh_reproduction.report.evidence import Evidence
from posh_reproduction.report.paper import NAMES, Printed

__all__ = ["authors", "places205", "scale"]

_NO_RECORDS = Text.of("No records yet.")


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
                cells.append(shown.beside_paper(own, paper.places205(measure, column, size)))
            rows.append([f"{size} bits", *cells])
        yield Heading(3, name)
        yield Table(["", *columns], rows)
    printed = paper.tables()["places205_coarse_quantizer"]
    coarse = trials.estimate("places205", "POSH", 64, "coarse_map_1000")
    yield Text.of(
        "Coarse quantizer, 64 bits:",
        shown.beside_paper(coarse, Printed(printed["map_at_1000_to"])).replace("\n", ", "),
    )


def scale(evidence: Evidence) -> Iterator[Block]:
    """The protocol of Places205 on sets that can be had."""
    yield Heading(2, "Beyond the paper: large sets, judged by true neighbours")
    yield Text.of(
        "Places205 cannot be had here, so its protocol runs on image patches and on GloVe. These have no",
        "labels: relevant are the 100 vectors of the largest cosine. Recall of them within 1,000 results,",
        "one trial; the interval is over queries. Rates are queries per second of CPU time on one thread,",
        "for 1,000 results, without encoding for exact search and with it for the coarse quantizer. The",
        "paper reports 14,000 queries per second for its parallel code and 2.4 million targets, and a",
        "fall of MAP@1000 from 32.83 to 30.67.",
    )
    records = evidence.records("scale")
    if not records:
        yield _NO_RECORDS
        return
    rows = []
    for record in sorted(records, key=lambda r: (r["unit"]["data"], r["unit"]["size"])):
        unit, found = record["unit"], record["measures"]
        kinds = {"": unit["method"], "cr2_": f"{unit['method']}+CR2", "coarse_": f"{unit['method']}, coarse"}
        for prefix, name in kinds.items():
            if f"{prefix}recall_1000" not in found:
                continue
            rate = record["queries_per_second"].get({"": "exact", "coarse_": "coarse"}.get(prefix, ""))
            cells = [
                _over_queries(found[f"{prefix}{measure}"])
                for measure in ("recall_1000", "recall_100", "map_1000")
            ]
            rows.append(
                [unit["data"], str(unit["size"]), name, *cells, "–" if rate is None else f"{rate:,.0f}"]
            )
    yield Table(
        ["", "bits", "method", "recall@1000 (%)", "recall@100 (%)", "MAP@1000 (%)", "queries/s"], rows
    )


def _over_queries(found: dict[str, float]) -> str:
    half = 196 * found["std"] / found["n_queries"] ** 0.5
    return f"{100 * found['mean']:.2f} ± {half:.2f}"


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
                    shown.beside_paper(
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
        f"Needs the authors' file: `posh data fetch {data}` says which, and where to put it.",
        f"Then `posh reproduce run {spec}{quick}` and `posh reproduce report{quick}`.",
    )
