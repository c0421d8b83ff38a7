"""The server: listening with Granian, signals, and a clean stop."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server as GranianServer

from posh.serve.app import create_app
from posh.serve.capacity import Limits
from posh.serve.middleware import LOOPBACK
from posh.serve.registry import Registry

__all__ = ["Server", "bind", "is_loopback", "stop_on_signals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOP_SECONDS = 30.0  # for the requests that run when the service is stopped
_POLL_SECONDS = 0.1  # between two checks whether to stop
_SWITCH_SECONDS = (
    0.0005  # that the thread which parses HTTP waits for Python's lock; by default ten times as long
)
_BACKLOG = 1024  # connections that wait to be accepted
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
# Allocations between two garbage collections. With Python's default, a body with 300,000 lists takes ten
# times as long to parse, and parsing blocks all other threads.
_GC_THRESHOLDS = (50_000, 20, 100)
_OTHER_FILES = 4096  # that a service opens in addition to its connections: mainly databases


class Server:
    """Serves a registry until :meth:`stop`, SIGTERM or Ctrl-C.

    ``bound`` is a socket that reserves the address and does not listen. ``listening`` is called with the
    address when the server accepts connections.
    """

    def __init__(
        self,
        registry: Registry,
        bound: socket.socket,
        *,
        token: str | None = None,
        listening: Callable[[str], None] = lambda address: None,
    ) -> None:
        self._host, self._port = bound.getsockname()[:2]
        name = f"[{self._host}]" if ":" in self._host else self._host
        self.address = f"http://{name}:{self._port}"
        self._registry, self._bound, self._listening = registry, bound, listening
        self._app = create_app(registry, token=token, hosts={*LOOPBACK, name})
        self._should_stop = False

    def run(self) -> None:
        """Answer requests until the service is stopped."""
        _raise_file_limit(self._registry.limits.connections + _OTHER_FILES)
        _return_large_blocks()
        gc.set_threshold(*_GC_THRESHOLDS)
        sys.setswitchinterval(_SWITCH_SECONDS)
        with self._bound, asyncio.Runner(loop_factory=_choose_loop()) as runner:
            runner.run(self._serve())

    def stop(self, *_: Any) -> None:
        """Finish the running requests, then return from :meth:`run`.

        Any thread may call this, repeatedly, and it may be the handler of a signal.
        """
        self._should_stop = True

    async def _serve(self) -> None:
        if sys.platform != "linux":
            self._bound.close()  # only Linux lets a second socket bind to the address of a silent one
        server = _configure(self._app, self._host, self._port, self._registry.limits)
        serving = asyncio.create_task(server.serve())
        try:
            await self._announce(serving)
            while not (self._should_stop or serving.done() or self._registry.opening_error):
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            self._registry.cancel()
            server.stop()
            done, _ = await asyncio.wait({serving}, timeout=_STOP_SECONDS)
        for task in done:
            task.result()
        if self._registry.opening_error is not None:
            raise self._registry.opening_error

    async def _announce(self, serving: asyncio.Task[None]) -> None:
        """Call ``listening`` once the server accepts connections."""
        while not serving.done():
            with suppress(OSError):
                _, writer = await asyncio.open_connection(self._host, self._port)
                writer.close()
                self._listening(self.address)
                return
            await asyncio.sleep(0.005)


def _configure(app: Any, host: str, port: int, limits: Limits) -> Any:
    return GranianServer(
        app,
        host,
        port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,  # detecting HTTP/2 would wait for the first bytes without a timeout
        websockets=False,
        backlog=_BACKLOG,
        backpressure=limits.connections,
        http1_settings=HTTP1Settings(
            header_read_timeout=int(1000 * limits.head_seconds), max_buffer_size=max(8192, limits.head_bytes)
        ),
        log_enabled=False,
    )


def _choose_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory of event loops, if it is installed: it answers more requests per second."""
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return None
    return uvloop.new_event_loop


def _raise_file_limit(n_files: int) -> None:
    """Let this process open ``n_files`` files, if the system allows; the usual 1,024 are too few."""
    with suppress(ImportError, OSError, ValueError):
        from resource import RLIMIT_NOFILE, getrlimit, setrlimit  # Windows has neither module nor limit

        now, most = getrlimit(RLIMIT_NOFILE)
        if now < n_files:
            setrlimit(RLIMIT_NOFILE, (n_files if most < 0 else min(n_files, most), most))


def _return_large_blocks() -> None:
    """Make the C library return large blocks to the system as soon as they are free.

    By default glibc keeps blocks of up to 32 MB, in each of up to eight arenas per core: gigabytes. Smaller
    blocks are still kept, because every write reuses them.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library
        c = ctypes.CDLL(None)
        c.mallopt(_M_MMAP_THRESHOLD, 8 << 20)
        c.mallopt(_M_TRIM_THRESHOLD, 64 << 20)
        c.mallopt(_M_ARENA_MAX, 2)


@contextmanager
def stop_on_signals(server: Server) -> Iterator[None]:
    """Let SIGINT and SIGTERM stop the server during a block; repeated signals do nothing more."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, server.stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to this address, which does not listen yet; port 0 is any free one."""
    with ExitStack() as undo:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            bound = undo.enter_context(socket.socket(family, kind, protocol))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError as error:
            raise OSError(
                f"expected an address to listen at, got {host} port {port} ({error.strerror}): choose another"
            ) from error
        undo.pop_all()
    return bound


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in addresses)
