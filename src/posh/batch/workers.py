"""Workers that run the tasks of a job: processes of this machine, or Ray, local or on a cluster."""

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

from posh._runtime import limit_threads, resolve_threads
from posh._validate import validate_integer
from posh.errors import MissingExtraError, ServiceError

__all__ = ["Processes", "RayWorkers", "Workers", "get_process_context"]

T = TypeVar("T")
R = TypeVar("R")

_LOOPBACK = "127.0.0.1"
_RETRIES = 3  # times that a task is given to another worker after one was killed
_CONNECT_TIMEOUT = 10.0  # seconds
_log = logging.getLogger("posh.batch")


class Workers(ABC):
    """Workers that run independent tasks; use them in a ``with`` block."""

    @property
    def n_workers(self) -> int:
        """The number of tasks that run concurrently."""
        return 1

    @abstractmethod
    def __enter__(self) -> Workers: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @abstractmethod
    def results(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield ``function(task)`` of each task as soon as it is available, in any order.

        A task whose worker is killed is given to another one. The first exception of a task is raised here,
        and tasks that have not begun are cancelled.
        """


class Processes(Workers):
    """``n`` processes of this machine (default: one for each core) with ``n_threads`` threads each.

    >>> with Processes(2) as workers:
    ...     sorted(workers.results(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    def __init__(self, n: int | None = None, *, n_threads: int = 1) -> None:
        self._n = _resolve_workers(n)
        self._n_threads = validate_integer("n_threads", n_threads, 1)

    @property
    def n_workers(self) -> int:
        """The number of tasks that run concurrently."""
        return self._n

    def __enter__(self) -> Processes:
        self._pool = self._create_pool()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def results(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield the results in the order of completion."""
        pending = dict(enumerate(tasks))
        for attempt in range(_RETRIES + 1):
            try:
                for number, result in self._attempt(function, pending):
                    del pending[number]
                    yield result
                return
            except BrokenProcessPool as error:
                if attempt == _RETRIES:
                    raise ServiceError(
                        f"workers were killed {attempt + 1} times: is there enough memory?"
                    ) from error
                _log.warning("a worker was killed: %d tasks are restarted", len(pending))
                self._pool.shutdown(wait=False)
                self._pool = self._create_pool()

    def _attempt(self, function: Callable[[T], R], tasks: dict[int, T]) -> Iterator[tuple[int, R]]:
        futures: dict[Future[R], int] = {
            self._pool.submit(function, task): number for number, task in tasks.items()
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()

    def _create_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._n, get_process_context(), _initialize_process, (self._n_threads,))


def get_process_context() -> Any:
    """Return the way to start processes: never by forking this one, whose threads may hold locks.

    Where the system supports it, a fork server that has imported the needed modules is used.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["posh.batch.steps", "posh.hashers"])
    return context


def _resolve_workers(n: int | None) -> int:
    return resolve_threads() if n is None else validate_integer("n", n, 1)


def _initialize_process(n_threads: int) -> None:
    """Limit the threads of a worker, and end it when its parent process ends."""
    _limit_all_threads(n_threads)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def _limit_all_threads(n_threads: int) -> None:
    limit_threads(n_threads)
    threadpool_limits(n_threads, "blas")


class RayWorkers(Workers):
    """Workers of Ray: of the cluster at ``address``, or of a local Ray that this object starts.

    A local Ray has ``n`` workers (default: one for each core) with ``n_threads`` threads each, listens on
    loopback only, has no dashboard and sends no usage statistics. On a cluster, ``n`` is the largest number
    of concurrent tasks (default: the number of cores).

    Requires ``posh-ann[ray]``, which all machines of the cluster must have installed. They must see the files
    of the job under the same paths.
    """

    def __init__(self, n: int | None = None, *, address: str | None = None, n_threads: int = 1) -> None:
        self._ray = _import_ray(on_loopback=address is None)
        self._n, self._address = n if n is None else validate_integer("n", n, 1), address
        self._n_threads = validate_integer("n_threads", n_threads, 1)

    def __enter__(self) -> RayWorkers:
        if self._address is not None:
            _require_server(self._address)
        options: dict[str, Any] = {"address": self._address or "local", "log_to_driver": False}
        options["logging_level"] = logging.ERROR
        if self._address is None:
            n_cpus = _resolve_workers(self._n) * self._n_threads
            options |= {"num_cpus": n_cpus, "include_dashboard": False, "_node_ip_address": _LOOPBACK}
        try:
            self._ray.init(**options)
        except (ConnectionError, RuntimeError, OSError) as error:
            where = "on this machine" if self._address is None else f"at {self._address}"
            raise ServiceError(f"expected Ray to answer {where}: {error}") from error
        if self._address is None and self._ray.util.get_node_ip_address() != _LOOPBACK:
            self._ray.shutdown()
            raise ServiceError(f"expected Ray on {_LOOPBACK}, got another address: do not import ray earlier")
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    def results(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield the results in the order of completion."""
        ray = self._ray
        work = ray.remote(_run_on_ray).options(max_retries=_RETRIES, num_cpus=self._n_threads)
        pending = list(reversed(tasks))
        limit = self._limit_tasks()
        running: list[Any] = []
        try:
            while pending or running:
                while pending and len(running) < limit:
                    running.append(work.remote(function, pending.pop(), self._n_threads))
                (done, *_), running = ray.wait(running, num_returns=1)
                yield self._get_result(done)
        finally:
            for task in running:
                ray.cancel(task, force=False)

    @property
    def n_workers(self) -> int:
        """The number of tasks that run concurrently."""
        if self._n is not None:
            return self._n
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)) // self._n_threads)

    def _limit_tasks(self) -> int:
        """Return the number of tasks to submit at a time: thousands of waiting ones would cost memory."""
        if self._address is not None and self._n is not None:
            return self._n
        return self.n_workers + 2

    def _get_result(self, done: Any) -> Any:
        exceptions = self._ray.exceptions
        try:
            return self._ray.get(done)
        except exceptions.RayTaskError as error:
            raise error.cause from None  # the exception of the task, without Ray's wrapper
        except exceptions.RayError as error:
            raise ServiceError(
                f"Ray could not finish a task, after {_RETRIES} more attempts: {error}"
            ) from error


def _run_on_ray(function: Callable[[T], R], task: T, n_threads: int) -> R:
    _limit_all_threads(n_threads)
    return function(task)


def _import_ray(*, on_loopback: bool) -> Any:
    if on_loopback:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        # Ray reads this when it is imported. Without it, Ray listens on the address of the machine.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "posh.batch.RayWorkers") from error


def _require_server(address: str) -> None:
    """Raise ServiceError if no server listens at an address: Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        if address == "auto":
            return
        raise ValueError(
            f"expected the address of a cluster as HOST:PORT or ray://HOST:PORT, got {address!r}"
        )
    try:
        with contextlib.closing(socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT)):
            return
    except OSError as error:
        raise ServiceError(f"expected a Ray cluster at {address}, but none answers: {error}") from error
