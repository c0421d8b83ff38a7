"""The comparison of one case: choose parameters, then measure all contenders in turns; resumable.

Every measurement is a record as soon as it is taken, and is not taken again. A contender is built only if a
measurement of it is missing. Parameters are compared within a contender only, so each contender tries its own
alone. Contenders are compared in rounds: each round measures one point of each contender, then the next of
each, never two concurrently.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

from posh._runtime import resolve_threads, track_progress
from posh_reproduction.ann.cases import Prepared
from posh_reproduction.ann.choice import ENOUGH, Point, ladder, shortlist
from posh_reproduction.ann.contenders import BuiltIndex, Contender, Params
from posh_reproduction.ann.measure import Setting, measure_search
from posh_reproduction.ann.plan import Plan
from posh_reproduction.experiments.environment import commit, environment
from posh_reproduction.experiments.records import OtherParametersError, Record, Records
from posh_reproduction.experiments.spec import Unit, key

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True)
class Trial:
    """A contender with parameters of its index and of its searches."""

    contender: str
    build: Params
    search: Params

    @property
    def key(self) -> str:
        """Text that is equal for equal parameters."""
        return key({"build": self.build, "search": self.search})


def compare(
    data: Prepared,
    contenders: list[Contender],
    plan: Plan,
    records: Records,
    *,
    recompute: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Measure the units without a record; see :class:`Comparison`."""
    with records.locked():
        Comparison(data, contenders, plan, records, recompute, say).run()


@dataclass
class Comparison:
    """A case, its contenders, and its records."""

    data: Prepared
    contenders: list[Contender]
    plan: Plan
    records: Records
    recompute: bool
    say: Callable[[str], None]
    built: dict[str, BuiltIndex] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.versions = {contender.name: contender.version() for contender in self.contenders}
        self.by_name = {contender.name: contender for contender in self.contenders}
        self.environment = environment(commit())

    def run(self) -> None:
        """Choose, then report."""
        ladders = {contender.name: self.choose(contender) for contender in self.contenders}
        for number in range(self.plan.reporting):
            todo = [
                (setting, trial)
                for setting in self.plan.settings
                for trial in in_turns(ladders[name][self.plan.chosen_in(setting)] for name in self.by_name)
            ]
            title = f"{self.data.case.name}, round {number + 1} of {self.plan.reporting}"
            for setting, trial in track_progress(todo, title, "search"):
                self.measure("report", trial, setting, number, self.versions)
            self.say(f"{title}: done")

    def choose(self, contender: Contender) -> dict[Setting, list[Trial]]:
        """The ladder of a contender for each setting; afterwards only the indexes on it are kept."""
        points = {
            setting: self.try_all(self.lines(contender, setting.k), setting) for setting in self.plan.tried
        }
        self.say(
            f"{self.data.case.name}, {contender.name}: tried {len(points[self.plan.tried[0]])} parameters"
        )
        near = {point.key for point in shortlist(points[self.plan.tried[0]].values())}
        for setting in self.plan.narrowed:
            lines = [[t for t in line if t.key in near] for line in self.lines(contender, setting.k)]
            points[setting] = self.try_all(lines, setting)
        chosen = {}
        for setting, own in points.items():
            by_key = {t.key: t for line in self.lines(contender, setting.k) for t in line}
            chosen[setting] = [by_key[point.key] for point in ladder(own.values())]
        self.keep(contender, chain.from_iterable(chosen.values()))
        return chosen

    def lines(self, contender: Contender, k: int) -> list[list[Trial]]:
        """The trials of a contender, from fast to careful in each list."""
        n, d = self.data.base.shape
        return [
            [Trial(contender.name, build, search) for search in line]
            for build in contender.builds(n, d, self.data.case.metric)
            for line in contender.searches(build, k)
        ]

    def try_all(self, lines: list[list[Trial]], setting: Setting) -> dict[str, Point]:
        """Measure on the first half of the queries; the best time of the rounds counts."""
        best: dict[str, Point] = {}
        todo = [(number, line) for number in range(self.plan.choosing) for line in lines if line]
        title = f"{self.data.case.name}, k {setting.k}, batch {setting.batch}"
        for number, line in track_progress(todo, title, "line"):
            for trial in line:
                own = {trial.contender: self.versions[trial.contender]}
                record = self.measure("choose", trial, setting, number, own)
                rate = record["n_queries"] / record["seconds"]
                before = best.get(trial.key)
                if before is None or rate > before.rate:
                    best[trial.key] = Point(trial.key, record["recall"], rate)
                if record["recall"] >= ENOUGH:
                    break
        return best

    def measure(
        self, half: str, trial: Trial, setting: Setting, number: int, versions: dict[str, str]
    ) -> Record:
        """The record of one measurement, taken now if there is none."""
        unit = self.unit("search") | {
            "contender": trial.contender,
            "build": trial.build,
            "search": trial.search,
            **setting._asdict(),
            "half": half,
            "round": number,
        }
        identity = {"versions": versions, "content": self.data.content}
        found = self.find_record(unit, identity)
        if found is not None:
            return found
        queries = self.data.queries[half]
        result = measure_search(self.index_of(trial), queries, setting, trial.search)
        return self.append(
            unit,
            identity,
            recall=self.data.recall(half, result.ids, setting.k),
            seconds=result.seconds,
            cpu_seconds=result.cpu_seconds,
            n_queries=len(queries),
        )

    def index_of(self, trial: Trial) -> BuiltIndex:
        """The index of a trial, built now if it is not there; the first build is recorded."""
        name = f"{trial.contender} {key(trial.build)}"
        if name not in self.built:
            start = time.perf_counter()
            index = self.by_name[trial.contender].build(
                self.data.base, self.data.case.metric, resolve_threads(), **trial.build
            )
            seconds = time.perf_counter() - start
            self.built[name] = index
            self.say(f"{self.data.case.name}, {name}: built in {seconds:.1f} s")
            self.record_build(trial, seconds, index.bytes_per_vector)
        return self.built[name]

    def record_build(self, trial: Trial, seconds: float, bytes_per_vector: float) -> None:
        """Record the cost of an index, once."""
        unit = self.unit("build") | {
            "contender": trial.contender,
            "build": trial.build,
            "threads": resolve_threads(),
        }
        versions = {trial.contender: self.versions[trial.contender]}
        identity = {"versions": versions, "content": self.data.content}
        if self.find_record(unit, identity) is None:
            costs = {"seconds": seconds, "bytes_per_vector": bytes_per_vector}
            self.append(
                unit, identity, **costs, n_features=self.data.base.shape[1], environment=self.environment
            )

    def keep(self, contender: Contender, trials: Iterable[Trial]) -> None:
        """Give back the memory of a contender's indexes that no trial needs."""
        needed = {f"{trial.contender} {key(trial.build)}" for trial in trials}
        for name in [name for name in self.built if name.startswith(f"{contender.name} ")]:
            if name not in needed:
                del self.built[name]

    def unit(self, kind: str) -> Unit:
        """Return the fields that all units of this case share."""
        case = self.data.case
        return {"kind": kind, "case": case.name, "metric": case.metric, "n_base": len(self.data.base)}

    def find_record(self, unit: Unit, identity: dict[str, Any]) -> Record | None:
        """The record of a unit; with ``recompute``, one of other versions or data does not count."""
        try:
            return self.records.find(unit, identity)
        except OtherParametersError:
            if self.recompute:
                return None
            raise

    def append(self, unit: Unit, identity: dict[str, Any], **values: Any) -> Record:
        """Record a measurement."""
        record = {"unit": unit, "identity": identity, **values}
        self.records.append(record)
        return record


def in_turns(queues: Iterable[list[Trial]]) -> Iterator[Trial]:
    """The first of each queue, then the second of each, and so on.

    >>> list(in_turns([["a1", "a2"], ["b1"]]))
    ['a1', 'b1', 'a2']
    """
    for row in zip_longest(*queues):
        yield from (trial for trial in row if trial is not None)
