"""Units in several processes of one thread each, by joblib."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError

from posh_reproduction.experiments.outcome import Outcome, outcome_of
from posh_reproduction.experiments.spec import Unit

__all__ = ["outcomes"]


def outcomes(units: Iterable[Unit], jobs: int, commit: str | None) -> Iterator[Outcome]:
    """Do the units in ``jobs`` processes, begun in their order; outcomes come as they are ready."""
    with parallel_config("loky", inner_max_num_threads=1, initializer=partial(_begin, os.getpid())):
        parallel = Parallel(jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
    try:
        yield from parallel(delayed(outcome_of)(unit, commit) for unit in units)
    except TerminatedWorkerError as error:
        raise ChildProcessError(
            "a worker ended during a unit: was it killed, or out of memory? "
            "What was done is recorded: start again, with fewer jobs"
        ) from error


def _begin(parent: int) -> None:
    """Prepare a worker. Its parent may be gone already, so the parent says its number itself."""
    os.environ["TQDM_DISABLE"] = "1"  # the bars of several processes would overwrite each other
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent is gone: joblib's workers would wait for work for minutes."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
