"""Processes that do units, one thread each.

Workers are started afresh, not forked, with their thread pools held to one thread from the start. They end
when the pipe to their parent does, so that none outlives a run by more than a unit, however it ended.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from posh_reproduction.experiments.outcome import Outcome, outcome_of
from posh_reproduction.experiments.spec import Unit

__all__ = ["outcomes"]

_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TQDM_DISABLE": "1",  # the bars of several processes would overwrite each other
}


@dataclass
class _Worker:
    process: SpawnProcess
    connection: Connection
    unit: Unit | None = None

    def give(self, unit: Unit) -> None:
        self.unit = unit
        self.connection.send(unit)

    def take(self) -> Outcome:
        unit, self.unit = self.unit, None
        assert unit is not None
        try:
            outcome: Outcome = self.connection.recv()
        except EOFError:
            self.process.join()
            raise ChildProcessError(
                f"a worker ended with exit code {self.process.exitcode} during {unit}: "
                "was it killed, or out of memory? What was done is recorded: start again, with fewer jobs"
            ) from None
        return outcome


def outcomes(units: Iterable[Unit], jobs: int, commit: str | None) -> Iterator[Outcome]:
    """Do the units in ``jobs`` processes, begun in their order; outcomes come as they are ready."""
    waiting = deque(units)
    workers: list[_Worker] = []
    try:
        for _ in range(min(jobs, len(waiting))):
            workers.append(_started(commit))
            workers[-1].give(waiting.popleft())
        while busy := {worker.connection: worker for worker in workers if worker.unit is not None}:
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                outcome = busy[connection].take()
                if waiting:
                    busy[connection].give(waiting.popleft())
                yield outcome
    except BaseException:
        for worker in workers:
            worker.process.terminate()
        raise
    finally:
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            worker.process.join()


def _started(commit: str | None) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, commit), daemon=True)
    with _environment():
        process.start()
    theirs.close()  # or else its end would never be seen
    return _Worker(process, ours)


@contextmanager
def _environment() -> Iterator[None]:
    """The variables of workers: libraries read them when they are loaded, before any of our code runs."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _leave(number: int, frame: object) -> None:
    raise SystemExit(128 + number)  # unlike the default, this cleans up what libraries share among processes


def _serve(connection: Connection, commit: str | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends us
    signal.signal(signal.SIGTERM, _leave)
    try:
        while True:
            connection.send(outcome_of(connection.recv(), commit))
    except (EOFError, BrokenPipeError):
        return
