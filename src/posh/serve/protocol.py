"""HTTP connections whose heads are bounded, in bytes and in time: uvicorn bounds neither."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["BoundedProtocol"]


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose next head, the lines before a body, is too long or takes too long.

    This also ends connections over which nothing is ever asked.
    """

    head_bytes = 64 << 10
    head_seconds = 60.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head: int | None = 0  # bytes of an unfinished head; None within a body
        self._n_new = 0  # bytes that came last
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take some bytes."""
        self._n_new = len(data)
        super().data_received(data)
        if self._head is None or self.transport.is_closing():
            return
        self._head += self._n_new
        if self._head > self.head_bytes:
            self.send_400_response(f"Expected at most {self.head_bytes} bytes before the body, got more.")
        elif self._head and self._timer is None:
            self._wait()

    def on_headers_complete(self) -> None:
        """The head is over."""
        self._head = None
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is over: a head may follow, for whose first byte uvicorn waits."""
        self._head = -self._n_new  # these bytes were those of the body
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()
