"""The comparison of one case: choose parameters, then measure all contenders in turns; resumable.

Every measurement is a record as soon as it is taken, and is not taken again. An index is built only if a
measurement of it is missing, and it is not on disk. Parameters are compared within a contender only, so each
contender tries its own alone. Contenders are compared in rounds: each round measures all points of one
contender, then those of the next, never two concurrently.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from posh._runtime import resolve_threads, track_progress
from posh_reproduction.ann.cases import Prepared
from posh_reproduction.ann.choice import Point, is_finished, ladder, shortlist
from posh_reproduction.ann.contenders import BuiltIndex, Contender, Params
from posh_reproduction.ann.indexes import Indexes
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
    choose_only: bool = False,
    kernel: str | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Measure the units without a record; see :class:`Comparison`.

    With ``choose_only``, nothing is reported. ``kernel`` names that to which all contenders are limited.
    """
    with records.locked():
        comparison = Comparison(data, contenders, plan, records, recompute, kernel, say)
        ladders = {contender.name: comparison.choose(contender) for contender in contenders}
        if not choose_only:
            comparison.report(ladders)


@dataclass
class Comparison:
    """A case, its contenders, and its records."""

    data: Prepared
    contenders: list[Contender]
    plan: Plan
    records: Records
    recompute: bool
    kernel: str | None
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self.versions = {contender.name: contender.version() for contender in self.contenders}
        self.by_name = {contender.name: contender for contender in self.contenders}
        self.environment = environment(commit())
        self.indexes = Indexes(self.data, self.versions)

    def choose(self, contender: Contender) -> dict[Setting, list[Trial]]:
        """The ladder of a contender for each setting; only the indexes on it are kept.

        All indexes are tried with the first number of results, those that were chosen then with the others.
        """
        n, d = self.data.base.shape
        builds = contender.builds(n, d, self.data.case.metric)
        ladders: dict[Setting, list[Trial]] = {}
        for k in self.plan.depths:
            ladders |= self.choose_for(contender, builds, k)
            chosen = {key(trial.build) for own in ladders.values() for trial in own}
            builds = [build for build in builds if key(build) in chosen]
        self.indexes.keep(contender, builds)
        return ladders

    def choose_for(self, contender: Contender, builds: list[Params], k: int) -> dict[Setting, list[Trial]]:
        """The ladders for k results: all parameters with the first size of batches, good ones with others."""
        settings = [Setting(k, batch, 1) for batch in self.plan.batches]
        points: dict[Setting, dict[str, Point]] = {setting: {} for setting in settings}
        trials: dict[str, Trial] = {}
        title = f"{self.data.case.name}, {contender.name}, k {k}"
        for build in track_progress(builds, title, "index"):
            lines = lines_of(contender, build, k)
            trials |= {trial.key: trial for line in lines for trial in line}
            for setting, best in points.items():
                self.try_all(lines, setting, best)
                lines = narrow(lines, points[settings[0]])
        self.say(f"{title}: tried {len(points[settings[0]])} parameters")
        return {s: [trials[point.key] for point in ladder(best.values())] for s, best in points.items()}

    def try_all(self, lines: list[list[Trial]], setting: Setting, best: dict[str, Point]) -> None:
        """Measure on the first half of the queries; later rounds only repeat what may be chosen."""
        for line in lines:
            points: list[Point] = []
            for trial in line:
                points.append(self.try_one(trial, setting, 0, best))
                if is_finished(points, best.values()):
                    break
        for number in range(1, self.plan.choosing):
            for line in narrow(lines, best):
                for trial in line:
                    self.try_one(trial, setting, number, best)

    def try_one(self, trial: Trial, setting: Setting, number: int, best: dict[str, Point]) -> Point:
        """Measure a trial, and return its point; ``best`` has the fastest of all rounds."""
        own = {trial.contender: self.versions[trial.contender]}
        record = self.measure("choose", trial, setting, number, own)
        point = Point(trial.key, record["recall"], record["n_queries"] / record["seconds"])
        if trial.key not in best or point.rate > best[trial.key].rate:
            best[trial.key] = point
        return point

    def report(self, ladders: dict[str, dict[Setting, list[Trial]]]) -> None:
        """Measure the ladders on the second half of the queries."""
        for number in range(self.plan.reporting):
            todo = [task for own in ladders.values() for task in self.tasks(own)]
            title = f"{self.data.case.name}, round {number + 1} of {self.plan.reporting}"
            for setting, trial in track_progress(todo, title, "search"):
                self.measure("report", trial, setting, number, self.versions)
            self.say(f"{title}: done")

    def tasks(self, ladders: dict[Setting, list[Trial]]) -> list[tuple[Setting, Trial]]:
        """The searches of a contender in one round, those with one index together."""
        tasks = [(s, trial) for s in self.plan.settings for trial in ladders[self.plan.chosen_in(s)]]
        return sorted(tasks, key=lambda task: key(task[1].build))

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
        """The index of a trial, built now if it is not on disk; the first build is recorded."""
        contender = self.by_name[trial.contender]
        found = self.indexes.find(contender, trial.build)
        if found is not None:
            return found
        self.indexes.release()
        start = time.perf_counter()
        index = contender.build(self.data.base, self.data.case.metric, resolve_threads(), **trial.build)
        seconds = time.perf_counter() - start
        self.say(f"{self.data.case.name}, {trial.contender} {key(trial.build)}: built in {seconds:.1f} s")
        size = self.indexes.add(contender, trial.build, index)
        self.record_build(trial, seconds, size / len(self.data.base))
        return index

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

    def unit(self, kind: str) -> Unit:
        """Return the fields that all units of this case share."""
        case = self.data.case
        limit = {} if self.kernel is None or kind == "build" else {"kernel": self.kernel}
        own = {"case": case.name, "metric": case.metric, "n_base": len(self.data.base)}
        return {"kind": kind, **own, **limit}

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


def lines_of(contender: Contender, build: Params, k: int) -> list[list[Trial]]:
    """The trials of an index, from fast to careful in each list."""
    return [
        [Trial(contender.name, build, search) for search in line] for line in contender.searches(build, k)
    ]


def narrow(lines: list[list[Trial]], points: dict[str, Point]) -> list[list[Trial]]:
    """The trials that are nearly as fast as any that finds as much."""
    near = {point.key for point in shortlist(points.values())}
    return [[trial for trial in line if trial.key in near] for line in lines]
