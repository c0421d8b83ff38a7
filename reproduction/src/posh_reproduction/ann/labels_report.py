"""The section of the report on label retrieval."""

from __future__ import annotations

from collections.abc import Iterator

from posh_reproduction.ann.labels import FLOATS, METHODS
from posh_reproduction.experiments.records import Record, Records
from posh_reproduction.report.document import NO_RECORDS, Block, Heading, Table, Text
from posh_reproduction.report.estimates import Difference, estimate, gain

__all__ = ["label_blocks"]


def label_blocks(records: Records) -> Iterator[Block]:
    """A table for each data set: exact searches of the vectors, then codes and their gains."""
    every = records.every("labels")
    yield Heading(2, "Labels: codes compared with the original vectors")
    if not every:
        yield NO_RECORDS
        return
    yield Text.of(
        "MAP@1000 in percent; a result is relevant if it has the query's label. Exact searches rank float32",
        "vectors. Codes are ranked by shared bits or by the query's projection (asymmetric). Intervals are",
        "95 %, over queries and trials; gains are computed per query. The three settings were selected after",
        "the reproduction had measured many on the same queries, so a gain that barely exceeds its interval",
        "may be due to chance.",
    )
    for data in dict.fromkeys(record["unit"]["data"] for record in every):
        own = [record for record in every if record["unit"]["data"] == data]
        yield Table([data, "MAP@1000", *(f"gain over {metric}" for metric in FLOATS), "trials"], _rows(own))


def _rows(records: list[Record]) -> list[list[str]]:
    rows = []
    for record in records:
        if record["unit"]["method"] == "float":
            for metric in FLOATS:
                mean = gain(estimate([record], f"{metric}_map_1000"))
                rows.append([f"exact search, {metric}", _mean(mean), "", "", ""])
    for method in METHODS:
        own = [record for record in records if record["unit"]["method"] == method]
        if own:
            gains = [_gain(gain(estimate(own, f"gain_over_{metric}"))) for metric in FLOATS]
            rows.append([method, _mean(gain(estimate(own, "map_1000"))), *gains, str(len(own))])
    return rows


def _mean(value: Difference) -> str:
    return f"{value.value:.2f} ± {value.half:.2f}"


def _gain(value: Difference) -> str:
    """A gain, strong if its interval is above zero.

    >>> _gain(Difference(1.0, 0.5)), _gain(Difference(0.2, 0.5))
    ('**+1.00 ± 0.50**', '+0.20 ± 0.50')
    """
    text = f"{value.value:+.2f} ± {value.half:.2f}"
    return f"**{text}**" if value.verdict > 0 else text
