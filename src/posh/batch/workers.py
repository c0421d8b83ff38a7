"""Who does the work of a job: processes of this machine, or Ray, here or on a cluster."""

from __future__ import annotations

import contextlib
import importlib
import logging
import multiprocessing
import os
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from posh import _validate
from posh._threads import cores, limit_cores
from posh.errors import MissingExtraError, ServiceError

__all__ = ["Processes", "RayWorkers", "Workers", "process_context"]

T = TypeVar("T")
R = TypeVar("R")

_LOOPBACK = "127.0.0.1"
_RETRIES = 3  # how often work is given to another worker after one was killed
_PATIENCE = 10.0  # seconds until a cluster must have answered
_log = logging.getLogger("posh.batch")


class Workers(ABC):
    """Workers that do independent tasks; use them in a ``with`` block."""

    @property
    def n_workers(self) -> int:
        """How many tasks they do at a time."""
        return 1

    @abstractmethod
    def __enter__(self) -> Workers: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @abstractmethod
    def results(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield ``function(task)`` of each task as soon as it is there, in any order.

        A task whose worker is killed is given to another one. The first exception of a task is raised here,
        and tasks that have not begun are not done.
        """


class Processes(Workers):
    """Processes of this machine, without Ray.

    ``n`` of them work at a time (default: one for each core), with ``n_threads`` threads each.

    >>> with Processes(2) as workers:
    ...     sorted(workers.results(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    def __init__(self, n: int | None = None, *, n_threads: int = 1) -> None:
        self._n = _n_workers(n)
        self._n_threads = _validate.integer("n_threads", n_threads, 1)

    @property
    def n_workers(self) -> int:
        """How many tasks they do at a time."""
        return self._n

    def __enter__(self) -> Processes:
        self._pool = self._new_pool()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def results(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield the results as they come."""
        left = dict(enumerate(tasks))
        for attempt in range(_RETRIES + 1):
            try:
                for number, result in self._attempt(function, left):
                    del left[number]
                    yield result
                return
            except BrokenProcessPool as error:
                if attempt == _RETRIES:
                    raise ServiceError(
                        f"workers were killed {attempt + 1} times: is there enough memory?"
                    ) from error
                _log.warning("a worker was killed: %d tasks are begun again", len(left))
                self._pool.shutdown(wait=False)
                self._pool = self._new_pool()

    def _attempt(self, function: Callable[[T], R], left: dict[int, T]) -> Iterator[tuple[int, R]]:
        waiting: dict[Future[R], int] = {
            self._pool.submit(function, task): number for number, task in left.items()
        }
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        finally:
            for future in waiting:
                future.cancel()

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._n, process_context(), _begin_process, (self._n_threads,))


def process_context() -> Any:
    """How processes start: not by a fork of this one, because its other threads may hold locks.

    Where the system can, a server is forked that does nothing else and has imported what workers need.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["posh.batch.steps", "posh.hashers"])
    return context


def _n_workers(n: int | None) -> int:
    return cores() if n is None else _validate.integer("n", n, 1)


def _begin_process(n_threads: int) -> None:
    """Share the machine with the other workers, and end with the process that started this one."""
    _share(n_threads)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def _share(n_threads: int) -> None:
    limit_cores(n_threads)
    threadpool_limits(n_threads, "blas")


class RayWorkers(Workers):
    """Workers of Ray: of the cluster at ``address``, or of a Ray that is started on this machine.

    A Ray that is started here has ``n`` workers (default: one for each core) with ``n_threads`` threads each,
    listens on loopback only, has no dashboard and sends no statistics of use. On a cluster, ``n`` is how many
    tasks run at most at a time (default: as many as there are cores).

    Needs ``posh-ann[ray]``. All machines of the cluster must have it installed, and must see the files of
    the job under the same paths.
    """

    def __init__(self, n: int | None = None, *, address: str | None = None, n_threads: int = 1) -> None:
        self._ray = _ray(on_loopback=address is None)
        self._n, self._address = n if n is None else _validate.integer("n", n, 1), address
        self._n_threads = _validate.integer("n_threads", n_threads, 1)

    def __enter__(self) -> RayWorkers:
        if self._address is not None:
            _require_answer(self._address)
        options: dict[str, Any] = {"address": self._address or "local", "log_to_driver": False}
        options["logging_level"] = logging.ERROR
        if self._address is None:
            n_cpus = _n_workers(self._n) * self._n_threads
            options |= {"num_cpus": n_cpus, "include_dashboard": False, "_node_ip_address": _LOOPBACK}
        try:
            self._ray.init(**options)
        except (ConnectionError, RuntimeError, OSError) as error:
            where = "on this machine" if self._address is None else f"at {self._address}"
            raise ServiceError(f"expected Ray to answer {where}: {error}") from error
        if self._address is None and self._ray.util.get_node_ip_address() != _LOOPBACK:
            self._ray.shutdown()
            raise ServiceError(
                f"expected Ray on {_LOOPBACK}, got another address: do not import ray before this"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    def results(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield the results as they come."""
        ray = self._ray
        work = ray.remote(_on_ray).options(max_retries=_RETRIES, num_cpus=self._n_threads)
        left = list(reversed(tasks))
        most = self._most_tasks()
        running: list[Any] = []
        try:
            while left or running:
                while left and len(running) < most:
                    running.append(work.remote(function, left.pop(), self._n_threads))
                (done, *_), running = ray.wait(running, num_returns=1)
                yield self._result(done)
        finally:
            for task in running:
                ray.cancel(task, force=False)

    @property
    def n_workers(self) -> int:
        """How many tasks they do at a time."""
        if self._n is not None:
            return self._n
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)) // self._n_threads)

    def _most_tasks(self) -> int:
        """How many tasks Ray knows of at a time: thousands of waiting ones would only take memory."""
        if self._address is not None and self._n is not None:
            return self._n
        return self.n_workers + 2

    def _result(self, done: Any) -> Any:
        exceptions = self._ray.exceptions
        try:
            return self._ray.get(done)
        except exceptions.RayTaskError as error:
            raise error.cause from None  # what the task raised, without Ray's report around it
        except exceptions.RayError as error:
            raise ServiceError(
                f"Ray could not finish a task, after {_RETRIES} more attempts: {error}"
            ) from error


def _on_ray(function: Callable[[T], R], task: T, n_threads: int) -> R:
    _share(n_threads)
    return function(task)


def _ray(*, on_loopback: bool) -> Any:
    if on_loopback:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        # Ray reads this when it is imported. Otherwise it takes the machine's address in place of loopback's.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "posh.batch.RayWorkers") from error


def _require_answer(address: str) -> None:
    """Refuse an address at which nobody listens: Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        if address == "auto":
            return
        raise ValueError(
            f"expected the address of a cluster as HOST:PORT or ray://HOST:PORT, got {address!r}"
        )
    try:
        with contextlib.closing(socket.create_connection((host.strip("[]"), int(port)), _PATIENCE)):
            return
    except OSError as error:
        raise ServiceError(
            f"expected a Ray cluster at {address}, but nobody answers there: {error}"
        ) from error
