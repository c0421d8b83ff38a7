"""The comparison with filters: parameters from one half of the queries, then all cells in turns; resumable.

Every measurement is a record as soon as it is taken, and is not taken again. In each cell, contenders follow
one another, so that a machine that becomes slower is slower for all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from threadpoolctl import threadpool_limits

from posh._runtime import resolve_threads
from posh_reproduction.ann.contenders import Params
from posh_reproduction.ann.indexes import Indexes
from posh_reproduction.ann.measure import measure_searches
from posh_reproduction.experiments.environment import commit, environment
from posh_reproduction.experiments.records import OtherParametersError, Record, Records
from posh_reproduction.experiments.spec import Unit
from posh_reproduction.filters.cells import Cell, FilteredData
from posh_reproduction.filters.contenders import PROMISED, Contender, FilteredIndex

__all__ = ["ENLARGED", "PLAIN", "compare"]

PLAIN, ENLARGED = "plain", "enlarged"
"""The parameters that reach the recall without a filter, and those enlarged by the share that passes."""


def compare(
    data: FilteredData,
    contenders: list[Contender],
    cells: list[Cell],
    rounds: int,
    records: Records,
    *,
    recompute: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Measure all contenders in all cells that have no record."""
    with records.locked():
        comparison = _Comparison(data, contenders, records, recompute, say)
        for contender in contenders:
            comparison.index_of(contender)
        params = {
            (contender.name, k): comparison.choose(contender, k)
            for contender in contenders
            for k in dict.fromkeys(cell.k for cell in cells)
        }
        for number in range(rounds):
            for cell in cells:
                for contender in contenders:
                    comparison.measure(contender, cell, params[contender.name, cell.k], number)
                say(f"{data.prepared.case.name}, round {number + 1}, {cell}: done")


@dataclass
class _Comparison:
    data: FilteredData
    contenders: list[Contender]
    records: Records
    recompute: bool
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self.versions = {contender.name: contender.version() for contender in self.contenders}
        self.environment = environment(commit())
        self.indexes = Indexes(self.data.prepared, self.versions)

    def index_of(self, contender: Contender) -> FilteredIndex:
        """The index of a contender, from the data folder, or built and recorded now."""
        found = self._load(contender)
        if found is None:
            self._build(contender)
            found = self._load(contender)
        assert found is not None
        return found

    def _build(self, contender: Contender) -> None:
        start, cpu = time.perf_counter(), time.process_time()
        stored: Any = contender
        index: Any = contender.build(self.data)
        took = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
        self.say(f"{self.data.prepared.case.name}, {contender.name}: built in {took['cpu_seconds']:.0f} s")
        size = self.indexes.add(stored, {}, index)
        self.indexes.release()  # of databases, only the files count
        unit = self._unit("build", contender) | {"threads": resolve_threads()}
        costs = {"bytes_per_vector": size / len(self.data.base), "environment": self.environment}
        self._append(unit, self._identity(contender), **took, **costs)

    def _load(self, contender: Any) -> FilteredIndex | None:
        # `Indexes` uses `name`, `load` and `save` only.
        return cast("FilteredIndex | None", self.indexes.find(contender, {}))

    def choose(self, contender: Contender, k: int) -> Params:
        """The first parameters that reach the recall without a filter, on the first half of the queries."""
        unit = self._unit("choice", contender) | {"k": k}
        record = self._find(unit, self._identity(contender))
        if record is None:
            params, recall = self._try(contender, k)
            record = self._append(unit, self._identity(contender), params=params, recall=recall)
        return dict(record["params"])

    def _try(self, contender: Contender, k: int) -> tuple[Params, float]:
        index, queries = self.index_of(contender), self.data.queries("choose")
        for params in contender.efforts(len(self.data.base), k):
            search = index.searching(k, None, **params)
            found = measure_searches([search] * len(queries), list(queries[:, None]), k).ids
            recall = self.data.unfiltered_recall(k, found, "choose")
            if recall >= PROMISED:
                break
        return params, recall

    def measure(self, contender: Contender, cell: Cell, params: Params, number: int) -> None:
        """Measure a cell with the chosen parameters, and with enlarged ones where these differ."""
        enlarged = contender.enlarge(params, cell.share, len(self.data.base))
        self._measure(contender, cell, PLAIN, params, number)
        if enlarged is not None:
            self._measure(contender, cell, ENLARGED, enlarged, number)

    def _measure(self, contender: Contender, cell: Cell, effort: str, params: Params, number: int) -> None:
        unit = self._unit("search", contender) | {**cell._asdict(), "effort": effort, "round": number}
        identity = self._identity(contender) | {"params": params}
        if self._find(unit, identity) is not None:
            return
        index, queries = self.index_of(contender), self.data.queries("report")
        filters = self.data.filters(cell.relation, cell.share)
        made = {one: index.searching(cell.k, one, **params) for one in dict.fromkeys(filters)}
        with threadpool_limits(1):
            result = measure_searches([made[one] for one in filters], list(queries[:, None]), cell.k)
        shares = self.data.recall(cell, result.ids)
        self._append(
            unit,
            identity,
            recall=float(shares.mean()),
            error=float(shares.std() / math.sqrt(len(shares))),
            n_passing=int(np.count_nonzero(filters[0].mask)),
            seconds=result.seconds,
            cpu_seconds=result.cpu_seconds,
            n_queries=len(queries),
        )

    def _unit(self, kind: str, contender: Contender) -> Unit:
        case = self.data.prepared.case
        own = {"case": case.name, "metric": case.metric, "n_base": len(self.data.base)}
        return {"kind": kind, **own, "contender": contender.name}

    def _identity(self, contender: Contender) -> dict[str, Any]:
        content = {"content": self.data.prepared.content, "n_queries": self.data.n_queries}
        return {"version": self.versions[contender.name], **content}

    def _find(self, unit: Unit, identity: dict[str, Any]) -> Record | None:
        """The record of a unit; with ``recompute``, one of other versions or data does not count."""
        try:
            return self.records.find(unit, identity)
        except OtherParametersError:
            if self.recompute:
                return None
            raise

    def _append(self, unit: Unit, identity: dict[str, Any], **values: Any) -> Record:
        record = {"unit": unit, "identity": identity, **values}
        self.records.append(record)
        return record
