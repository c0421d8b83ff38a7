"""Running the service: listening, and stopping without losing anything."""

from __future__ import annotations

import ctypes
import gc
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import uvicorn

from posh.serve.app import create_app
from posh.serve.connections import Connections
from posh.serve.middleware import LOOPBACK
from posh.serve.protocol import BoundedProtocol
from posh.serve.registry import Registry

__all__ = ["Server", "bind", "is_loopback", "stopped_by_signals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Bytes of each connection that the system buffers. By default Linux takes up to 4 MB of an answer that nobody
# reads, and tells of a client that reads on only when a third of that is free.
_SEND_BUFFER = 256 << 10
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
# Objects made before garbage is looked for. By default that is done so often that a body with 300,000 lists
# takes ten times as long to parse, and nothing else is done meanwhile.
_GARBAGE = (50_000, 20, 100)
_OTHER_FILES = 4096  # that a service opens beside its connections: databases, mainly


class Server(uvicorn.Server):
    """Serves a registry until :meth:`stop`, SIGTERM or Ctrl-C.

    ``listening`` is called with the address as soon as requests can come.
    """

    def __init__(
        self,
        registry: Registry,
        bound: socket.socket,
        *,
        token: str | None = None,
        listening: Callable[[str], None] = lambda address: None,
    ) -> None:
        host, port = bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        app = create_app(registry, token=token, hosts={*LOOPBACK, shown})
        connections = Connections(registry.limits)
        config = uvicorn.Config(
            app,
            http=type("Protocol", (BoundedProtocol,), {"table": connections, "refusal": app.early_refusal}),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nothing here asks where a request came from
            timeout_graceful_shutdown=30,
        )
        super().__init__(config)
        self._registry, self._bound, self._listening = registry, bound, listening
        self._connections = connections
        self.address = f"http://{shown}:{port}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests until somebody stops it."""
        _allow_files(self._connections.limits.connections + _OTHER_FILES)
        _give_large_memory_back()
        gc.set_threshold(*_GARBAGE)
        super().run(sockets or [self._bound])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self._listening(self.address)

    async def on_tick(self, counter: int) -> bool:
        """Look after the deadlines of connections; uvicorn calls this ten times a second."""
        self._connections.drop_expired()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, cancel fits, and wait for the other requests."""
        self._registry.cancel()
        await super().shutdown(sockets)

    def stop(self, *_: Any) -> None:
        """Finish what runs, then return from :meth:`run`; may be called again, and as a signal's handler."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to :func:`stopped_by_signals`, which outlasts the closing of collections."""
        yield


def _allow_files(n_files: int) -> None:
    """Let this process open so many files, if the system lets us; the usual 1,024 are too few."""
    with suppress(ImportError, OSError, ValueError):
        from resource import RLIMIT_NOFILE, getrlimit, setrlimit  # Windows has none, and no such limit

        now, most = getrlimit(RLIMIT_NOFILE)
        if now < n_files:
            setrlimit(RLIMIT_NOFILE, (n_files if most < 0 else min(n_files, most), most))


def _give_large_memory_back() -> None:
    """Let the C library give large blocks back to the system as soon as they are free.

    By default glibc keeps blocks of up to 32 MB for later, in each of up to eight arenas per core: gigabytes.
    Smaller ones are kept, because every write needs them again.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library
        c = ctypes.CDLL(None)
        c.mallopt(_M_MMAP_THRESHOLD, 8 << 20)
        c.mallopt(_M_TRIM_THRESHOLD, 64 << 20)
        c.mallopt(_M_ARENA_MAX, 2)


@contextmanager
def stopped_by_signals(server: Server) -> Iterator[None]:
    """Stop the server, and do nothing else, when a signal asks for it, once or again."""
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
    """A socket at this address, which does not listen yet; port 0 is any free one."""
    with ExitStack() as undo:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            bound = undo.enter_context(socket.socket(family, kind, protocol))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            bound.bind(address)
        except OSError as error:
            raise OSError(
                f"expected an address to listen at, got {host} port {port} ({error.strerror}): choose another"
            ) from error
        undo.pop_all()
    return bound


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found)
