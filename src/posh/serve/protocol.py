"""HTTP connections that are bounded in bytes and in time: uvicorn bounds neither."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, parse_url
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from posh.serve.connections import Connections, Stage
from posh.serve.problems import ProblemError

__all__ = ["BoundedProtocol"]

_LINGER_BYTES = 1 << 20  # that are read after an answer which came before the end of its request
_CHUNK_BYTES = 32  # of a chunk's own line that do not count


class JoinedWrites:
    """A transport that can keep what is written until more is: a head and its body are one system call."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._kept = b""
        self.write: Callable[[bytes], None] = (
            transport.write
        )  # what is written goes out at once, unless keep() was called

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def keep(self) -> None:
        """Keep what is written next, until :meth:`send`."""
        self.write = self._keep

    def _keep(self, data: bytes) -> None:
        self._kept += data

    def send(self) -> None:
        """Write what was kept."""
        self.write = self._transport.write
        kept, self._kept = self._kept, b""
        if kept:
            self.write(kept)

    def close(self) -> None:
        """Write what was kept, then close."""
        self.send()
        self._transport.close()

    def write_eof(self) -> None:
        """Write what was kept, then send the end."""
        self.send()
        self._transport.write_eof()


class BoundedProtocol(HttpToolsProtocol):
    """A connection that reads one request at a time and is dropped when its client takes too long.

    The parser gets the bytes of one request only, up to the end of its head and of its body. So heads are
    counted exactly, however they are spread over packets, and requests that come early wait as bytes.
    """

    table: Connections
    refusal: Callable[[Scope], ProblemError | None]  # is asked when a head has come without all of its body

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.deadline = math.inf
        self._stage = self._waits_for = Stage.IDLE
        self._tail = b""  # of an unfinished head, in which its end may begin
        self._overhead = 0  # bytes of the head, or of the body those that are no content
        self._n_after = 0  # bytes after the part that is being parsed, which came with it
        self._left = 0  # bytes of the body that are to come
        self._early = b""  # bytes of the next requests
        self.was_early = False  # the request came before the answer to the one before it
        self._is_last = False  # the answer under way was announced to be the last
        self._n_discarded = 0

    # What the transport calls ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        self.joined = JoinedWrites(transport)
        super().connection_made(cast(asyncio.Transport, self.joined))
        transport.set_write_buffer_limits(high=0)  # pause_writing tells of any byte that is not taken
        self._stage = Stage.HEAD
        has_room = self.table.admit(self)
        self._update_deadline()
        if not has_room:
            most = self.table.limits.connections
            detail = f"expected at most {most} connections in work, got more: try again later"
            self._refuse(ProblemError(503, "busy", detail, {"retry-after": "1"}))

    def data_received(self, data: bytes) -> None:
        """Take some bytes."""
        while data and not self.transport.is_closing():
            if self._stage is Stage.WORK or self._stage is Stage.END:
                self._keep_for_later(data)
                return
            if self._stage is Stage.BODY:
                n = min(self._left, len(data))
                self._left -= n
            else:
                self._stage, n = Stage.HEAD, self._n_head(data)
            self._overhead += n
            if self._overhead <= self.table.limits.head_bytes or self._stage is Stage.BODY:
                self._n_after = len(data) - n
                self._parse(data[:n])
                data = data[n:]
            if self._overhead > self.table.limits.head_bytes:
                self._refuse_length()
                return
        self._update_deadline()

    def pause_writing(self) -> None:
        """The client has not taken all bytes of an answer."""
        super().pause_writing()
        self._update_deadline()

    def resume_writing(self) -> None:
        """The client has taken all bytes of an answer."""
        super().resume_writing()
        self._update_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, which is closed."""
        self.table.forget(self)
        super().connection_lost(exc)

    # What the parser calls ---------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        """The head is over."""
        if self._stage is Stage.WORK or len(self.headers) > self.table.limits.headers:
            raise ValueError("another request after one in chunks, in the same packet, or too many lines")
        self._left = _n_body(self.headers)
        if self._left > self._n_after and (refusal := self._early_refusal()) is not None:
            self._refuse(refusal)
            return
        self.scope["posh.connection"] = self  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()
        self.headers = []  # for the lines after a body in chunks: they are no headers
        self._stage = Stage.BODY
        self._tail, self._overhead = b"", 0

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._overhead -= _CHUNK_BYTES

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._overhead -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self._stage is Stage.END:  # refused at its head; for the parser, one that upgrades has no body
            return
        super().on_message_complete()
        self._stage = Stage.WORK

    # What the middleware and uvicorn call ------------------------------------------------------------

    @property
    def is_early(self) -> bool:
        """Whether an answer would come before the end of its request."""
        return self._stage is Stage.BODY

    def close_after_answer(self) -> None:
        """Close when the answer is read, which was announced: uvicorn must not do so at once."""
        self._is_last = self.cycle.keep_alive = True

    def on_response_complete(self) -> None:
        """All of an answer was handed to the transport."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._is_last:
            self._linger()
            return
        self._stage, self._overhead = Stage.IDLE, 0
        early, self._early = self._early, b""
        self.was_early = bool(early)
        if early:
            self.data_received(early)
        else:
            self._update_deadline()

    def drop(self) -> None:
        """Close the connection at once, whatever is unsent."""
        self.transport.abort()

    # How it does so ----------------------------------------------------------------------------------

    def _update_deadline(self) -> None:
        """Set the deadline if the connection waits for something new. More bytes do not extend a deadline."""
        is_paused = self.flow.write_paused and self._stage is not Stage.END
        waits_for = Stage.UNSENT if is_paused else self._stage
        self.table.note_activity(self, waits_for)
        if waits_for is not self._waits_for:
            self._waits_for = waits_for
            self.deadline = self.table.now + self.table.seconds[waits_for]

    def _n_head(self, data: bytes) -> int:
        """How many of these bytes belong to the head."""
        n_before = len(self._tail)
        joined = self._tail + data
        end = joined.find(b"\r\n\r\n")
        if end < 0:
            self._tail = joined[-3:]
            return len(data)
        self._tail = b""
        return end + 4 - n_before

    def _early_refusal(self) -> ProblemError | None:
        method, path = self.parser.get_method(), parse_url(self.url).path
        self.scope["method"], self.scope["path"] = method.decode("ascii"), path.decode("ascii")
        return type(self).refusal(cast(Scope, self.scope))

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except HttpParserError:
            most = self.table.limits.headers
            detail = f"expected HTTP/1.1 with at most {most} header lines, got another request"
            self._refuse(ProblemError(400, "not-http", detail))
        except HttpParserUpgrade:
            pass  # to what the service does not speak: it answers in HTTP
        if self._overhead < 0:  # what short chunks do not use is not saved up
            self._overhead = 0

    def _refuse_length(self) -> None:
        most = self.table.limits.head_bytes
        part = "before the body" if self._stage is Stage.HEAD else "around the chunks of a body"
        detail = f"expected at most {most} bytes {part}, got more: send fewer or shorter headers"
        self._refuse(ProblemError(431, "too-large", detail))

    def _keep_for_later(self, data: bytes) -> None:
        """Keep bytes that come before an answer to earlier ones; forget bytes after the last answer."""
        if self._stage is Stage.END:
            self._n_discarded += len(data)
            if self._n_discarded > _LINGER_BYTES:
                self.drop()
            return
        self._early += data
        self.flow.pause_reading()
        if len(self._early) > self.table.limits.head_bytes:
            self.drop()

    def _refuse(self, problem: ProblemError) -> None:
        """Answer in place of the application, and close."""
        if self._stage is Stage.END:
            return
        if self._stage is Stage.WORK or (self._stage is Stage.BODY and self.cycle.response_started):
            self.drop()
            return
        if self._stage is Stage.BODY:
            self.cycle.disconnected = True  # for the application, which must not answer too
            self.cycle.message_event.set()
        body = problem.body()
        headers = problem.headers | {"content-length": str(len(body)), "connection": "close"}
        lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self._linger()

    def _linger(self) -> None:
        """Send the end, and read what the client is still sending.

        If bytes were left unread when the connection is closed, the client's system could discard the answer.
        """
        if self.transport.is_closing():
            return
        self._stage, self._early, self._overhead = Stage.END, b"", 0
        self.flow.resume_reading()
        self.transport.write_eof()
        self._update_deadline()


def _n_body(headers: list[tuple[bytes, bytes]]) -> int:
    """How many bytes of a body follow these headers."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)
        if name == b"transfer-encoding":
            return sys.maxsize  # a body in chunks tells its end by itself
    return 0
