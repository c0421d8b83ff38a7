"""Does units, here or in several processes: gives the record of each, or the traceback if it failed."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import NamedTuple

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError

from posh._runtime import one_blas_thread
from posh_reproduction.experiments.environment import environment
from posh_reproduction.experiments.kinds import KINDS
from posh_reproduction.experiments.records import Record
from posh_reproduction.experiments.spec import Unit

__all__ = ["Outcome", "outcomes"]


class Outcome(NamedTuple):
    """The record of a unit, or the traceback of its failure."""

    unit: Unit
    record: Record | None
    error: str | None = None


def outcomes(units: Iterable[Unit], jobs: int, commit: str | None) -> Iterator[Outcome]:
    """Do the units, begun in their order; outcomes come as they are ready.

    One job works in this process, more in processes of their own, by joblib; each uses one thread.
    """
    if jobs == 1:
        yield from (_outcome(unit, commit) for unit in units)
        return
    with parallel_config("loky", inner_max_num_threads=1, initializer=partial(_begin, os.getpid())):
        parallel = Parallel(jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
    try:
        yield from parallel(delayed(_outcome)(unit, commit) for unit in units)
    except TerminatedWorkerError as error:
        raise ChildProcessError(
            "a worker ended during a unit: was it killed, or out of memory? "
            "Finished units are recorded: start again, with fewer jobs"
        ) from error


def _outcome(unit: Unit, commit: str | None) -> Outcome:
    """Do a unit on one thread. A failure is returned, not raised, so that the other units go on."""
    kind = KINDS[unit["kind"]]
    try:
        with one_blas_thread:
            measured = kind.measure(unit)
            record = {
                "unit": unit,
                "identity": kind.identity(unit),
                **measured,
                "environment": _environment(commit),
                "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            }
    except Exception:
        return Outcome(unit, None, traceback.format_exc())
    return Outcome(unit, record)


_environment = lru_cache(maxsize=1)(environment)  # reading it takes a while, and it does not change


def _begin(parent: int) -> None:
    """Prepare a worker. Its parent may be gone already, so the parent says its number itself."""
    os.environ["TQDM_DISABLE"] = "1"  # the bars of several processes would overwrite each other
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent is gone: joblib's workers would wait for work for minutes."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
