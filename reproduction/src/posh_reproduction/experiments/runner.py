"""Runs the units that have no record yet, and records each as soon as it is done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from posh._validate import validate_integer
from posh_reproduction.experiments.environment import commit
from posh_reproduction.experiments.kinds import KINDS
from posh_reproduction.experiments.outcomes import Outcome, outcomes
from posh_reproduction.experiments.records import OtherParametersError, Records
from posh_reproduction.experiments.spec import Unit, seed_major

__all__ = ["remaining", "run"]


def remaining(units: Iterable[Unit], folder: Path, *, recompute: bool = False) -> list[Unit]:
    """The units without a record, all of the first seed first.

    A record counts if the unit, the hasher's parameters and the data are the same. If it has the same unit
    but other parameters or data, because a default was changed in between for instance, that is an error;
    with ``recompute`` such units remain to be done.
    """
    records = Records(folder)
    return [unit for unit in seed_major(units) if not _is_done(unit, records, recompute)]


def run(units: Iterable[Unit], folder: Path, *, jobs: int = 1, recompute: bool = False) -> Iterator[Outcome]:
    """Measure the units without a record and record them in ``folder``; yield outcomes as they are ready.

    One job works in this process, more in processes of their own; each uses one thread. A unit that fails has
    an outcome without a record and does not keep others from being done.

    >>> import tempfile
    >>> from posh_reproduction.experiments import run, trial
    >>> units = [trial.unit("digits", "LSH", 16, seed=0, n_train=500)]
    >>> folder = Path(tempfile.mkdtemp())
    >>> [outcome.unit["method"] for outcome in run(units, folder)]
    ['LSH']
    >>> list(run(units, folder))
    []
    """
    jobs = validate_integer("jobs", jobs, 1)
    records = Records(folder)
    with records.locked():
        todo = remaining(units, folder, recompute=recompute)
        for outcome in outcomes(todo, jobs, commit()):
            if outcome.record is not None:
                records.append(outcome.record)
            yield outcome


def _is_done(unit: Unit, records: Records, recompute: bool) -> bool:
    try:
        return records.find(unit, KINDS[unit["kind"]].identity(unit)) is not None
    except OtherParametersError:
        if recompute:
            return False
        raise
