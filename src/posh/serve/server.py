"""Running the service: listening, and stopping without losing anything."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from posh.serve.app import create_app
from posh.serve.gate import LOOPBACK
from posh.serve.shelf import Shelf

__all__ = ["Server"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server(uvicorn.Server):
    """Serves a shelf at an address until :meth:`stop`, SIGTERM or Ctrl-C.

    ``listening`` is called with the address as soon as requests can come; port 0 is any free one.
    """

    def __init__(
        self,
        shelf: Shelf,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        token: str | None = None,
        listening: Callable[[str], None] = lambda address: None,
    ) -> None:
        shown = f"[{host}]" if ":" in host else host
        app = create_app(shelf, token=token, hosts={*LOOPBACK, shown})
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            http="httptools",
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=30,
            backlog=1024,
        )
        super().__init__(config)
        self._host, self._listening = shown, listening
        self.address = ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        self.address = f"http://{self._host}:{port}"
        self._listening(self.address)

    def stop(self, *_: Any) -> None:
        """Finish what runs, then return from :meth:`run`; may be called again, and as a signal's handler."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to :func:`stopped_by_signals`, which outlasts the closing of collections."""
        yield


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
