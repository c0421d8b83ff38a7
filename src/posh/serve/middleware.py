"""Middleware for every request: access control, common headers, bounded sending, metrics, log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from posh.serve.capacity import Limits
from posh.serve.logs import ACCESS, LineBudget, log_event
from posh.serve.metrics import Metrics
from posh.serve.responses import ProblemError, log_failure
from posh.serve.tokens import Tokens

__all__ = ["LOOPBACK", "AccessMiddleware", "get_header", "send_problem"]

_HEADERS = [
    (b"server", b"posh"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_NOT_STORED = [*_HEADERS, (b"cache-control", b"no-store")]
_PIECE = 32 << 10  # bytes of a response per message; small responses are one piece
_OWN_SITES = (None, b"same-origin", b"none")  # no browser, the service's page, and an address that was typed
_LINGER_BYTES, _LINGER_SECONDS = 1 << 20, 2.0  # read of a body after its request is refused
_LINES = 20  # per second, about refused and slow requests
_REFUSALS = (401, 403, 408, 413, 503, 504, 507)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class AccessMiddleware:
    """Wraps an application.

    With tokens, every path except ``open_paths`` requires one; ``posh.access`` of the scope tells the router
    what the token gives access to. Without any, the service listens on loopback,
    and this class refuses requests that web pages of other sites make through a browser: those to other names
    of this machine, and those that the browser marks as coming from another origin. Links of other sites to
    ``open_paths``, such as the page, work.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        tokens: Tokens,
        open_paths: Collection[str],
        hosts: Collection[str] = LOOPBACK,
        limits: Limits | None = None,
        slow_seconds: float = 1.0,
    ) -> None:
        limits = limits or Limits()
        self._app, self._metrics = app, metrics
        self._budget, self._seconds = ResponseBudget(limits), limits.answer_seconds
        metrics.watch_bytes("answers", lambda: self._budget.n_bytes)
        self._tokens, self._slow_seconds = tokens, slow_seconds
        self._lines = LineBudget(_LINES)
        self._open, self._hosts = frozenset(open_paths), frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        start = time.perf_counter()
        added = _HEADERS if scope["path"] in self._open else _NOT_STORED
        sender = _Sender(scope, send, added, self._budget, self._seconds)
        try:
            if (refusal := self._check_access(scope)) is None:
                await self._app(scope, receive, sender)
            else:
                await self._send_problem(refusal, scope, sender)
        except ProblemError as problem:
            await self._send_problem(problem, scope, sender)
        except Exception as error:
            if sender.status:
                raise
            await self._send_problem(log_failure(error), scope, sender)
        finally:
            if sender.status >= 400 and scope["method"] != "GET":
                await _discard_body(receive)
            self._observe(scope, sender.status, time.perf_counter() - start)

    async def _send_problem(self, problem: ProblemError, scope: Scope, sender: _Sender) -> None:
        scope["posh.problem"] = problem.with_traceback(None)
        await send_problem(problem, sender)

    def _observe(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request, and log it if it was refused or slow."""
        method, path = scope["method"], scope["path"]
        self._metrics.observe(getattr(scope.get("route"), "path", "other"), method, status, seconds)
        problem: ProblemError | None = scope.get("posh.problem")
        if problem is not None and problem.limit is not None:
            self._metrics.count_refusal(problem.limit)
        fields = {"method": method, "path": path, "status": status}
        if problem is not None and (problem.limit is not None or problem.status in _REFUSALS):
            why = {"kind": problem.kind, "limit": problem.limit, "detail": problem.detail}
            self._warn("refused", **fields, **why, client=_format_client(scope))
        elif seconds > self._slow_seconds:
            self._warn("slow", **fields, seconds=seconds)
        if ACCESS.isEnabledFor(logging.INFO):
            client = _format_client(scope)
            log_event(logging.INFO, "request", logger=ACCESS, **fields, seconds=seconds, client=client)

    def _warn(self, event: str, **fields: Any) -> None:
        omitted = self._lines.take(time.monotonic())
        if omitted is not None:
            log_event(logging.WARNING, event, **fields, omitted=omitted or None)

    def _check_access(self, scope: Scope) -> ProblemError | None:
        """Return the reason to refuse a request, or None."""
        if not self._tokens:
            return self._check_site(scope)
        return None if scope["path"] in self._open else self._check_token(scope)

    def _check_token(self, scope: Scope) -> ProblemError | None:
        scheme, _, value = (get_header(scope, b"authorization") or b"").partition(b" ")
        if scheme.lower() == b"bearer":
            scope["posh.access"] = self._tokens.find_access(value.strip())
        if scope.get("posh.access") is not None:
            return None
        got = "another one" if value else "none"
        return ProblemError(
            401,
            "unauthorized",
            f"expected the service's token, got {got}: send the header 'Authorization: Bearer TOKEN'",
            {"www-authenticate": 'Bearer realm="posh"'},
        )

    def _check_site(self, scope: Scope) -> ProblemError | None:
        host = (get_header(scope, b"host") or b"").decode("latin-1").lower()
        if host.removesuffix(f":{host.rpartition(':')[2]}") not in self._hosts and host not in self._hosts:
            return ProblemError(
                403,
                "forbidden",
                f"expected a request to {' or '.join(sorted(self._hosts))}, got one to {host!r:.80}: "
                "use a token to serve other names",
            )
        origin = get_header(scope, b"origin")
        is_foreign = origin is not None and origin.partition(b"://")[2].decode("latin-1").lower() != host
        # Browsers send no Origin with pictures, scripts and frames, but Sec-Fetch-Site.
        is_foreign |= get_header(scope, b"sec-fetch-site") not in _OWN_SITES and not self._is_link(scope)
        if is_foreign:
            return ProblemError(
                403,
                "forbidden",
                "expected a request from this service's own page, got one from a page of another site: open "
                "the service's page itself, or use a token",
            )
        return None

    def _is_link(self, scope: Scope) -> bool:
        """Return whether a browser follows a link, in a top-level window, to an open path."""
        kind = (get_header(scope, b"sec-fetch-mode"), get_header(scope, b"sec-fetch-dest"))
        is_reading = scope["method"] in ("GET", "HEAD")
        return is_reading and kind == (b"navigate", b"document") and scope["path"] in self._open


class ResponseBudget:
    """Bytes of all large responses that are being sent.

    Responses that take longer than ``answer_seconds`` in all are evicted when others need their room, the
    oldest first. Call the methods on the event loop's thread.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self.n_bytes = limits, 0
        self._responses: dict[asyncio.Timeout, tuple[int, float]] = {}  # bytes and start time, oldest first

    def hold(self, response: asyncio.Timeout, n_bytes: int) -> None:
        """Count the bytes of a response until :meth:`release`; raise a 503 if there is no room."""
        now, limit = asyncio.get_running_loop().time(), self._limits.answers_in_work
        for other, (_, start) in list(self._responses.items()):
            if self.n_bytes + n_bytes <= limit or now - start <= self._limits.answer_seconds:
                break
            self.release(other)
            other.reschedule(now)
        if self._responses and self.n_bytes + n_bytes > limit:
            raise ProblemError(
                503,
                "busy",
                f"expected at most {limit} bytes of responses at once, got more: try again later",
                {"retry-after": "1"},
                limit="answers_in_work",
            )
        self._responses[response] = n_bytes, now
        self.n_bytes += n_bytes

    def release(self, response: asyncio.Timeout) -> None:
        """Stop counting a response, if it is counted."""
        self.n_bytes -= self._responses.pop(response, (0, 0.0))[0]


class _Sender:
    """Sends a response with the common headers, and large bodies in pieces.

    The server buffers four pieces and 64 KB, then ``send`` waits for the client. So a large body counts as in
    memory until all but its last pieces are sent.
    """

    def __init__(
        self,
        scope: Scope,
        send: Send,
        added: list[tuple[bytes, bytes]],
        budget: ResponseBudget,
        seconds: float,
    ) -> None:
        self._scope = scope
        self.status = 0  # of the response that was sent
        self._send, self._added, self._budget, self._seconds = send, added, budget, seconds
        self._start: Message | None = None  # waits for the body, whose size decides whether it is sent

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        body = message.get("body", b"")
        if len(body) > _PIECE:
            await self._send_large(body)
            return
        await self._send_start()
        await self._send(message)

    async def _send_start(self) -> None:
        if self._start is not None:
            start, self._start = self._start, None
            self.status = start["status"]
            start["headers"] = [*start["headers"], *self._added]
            if self.status >= 400 and _has_large_rest(self._scope):
                start["headers"].append((b"connection", b"close"))
            await self._send(start)

    async def _send_large(self, body: bytes) -> None:
        """Send a body in pieces; time out if the client does not read."""
        loop = asyncio.get_running_loop()
        response = asyncio.timeout(self._seconds)
        try:
            async with response:
                self._budget.hold(response, len(body))
                await self._send_start()
                for first in range(0, len(body), _PIECE):
                    piece, is_more = body[first : first + _PIECE], first + _PIECE < len(body)
                    await self._send({"type": "http.response.body", "body": piece, "more_body": is_more})
                    if not response.expired():
                        response.reschedule(loop.time() + self._seconds)
        except TimeoutError:  # the server closes the connection, because the body is not complete
            self._scope["posh.problem"] = ProblemError(
                408,
                "too-slow",
                f"expected a client that reads a response of {len(body)} bytes, got one that does not",
                limit="answer_seconds",
            )
        finally:
            self._budget.release(response)


def _format_client(scope: Scope) -> str | None:
    """Return the address that a request comes from, if the server knows it; a proxy's is its own."""
    client = scope.get("client")
    return None if client is None else str(client[0])


def get_header(scope: Scope, name: bytes) -> bytes | None:
    """Return the first value of a header, whose name is in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def _has_large_rest(scope: Scope) -> bool:
    """Return whether more of the body may follow than is discarded: the server then closes the connection."""
    if get_header(scope, b"transfer-encoding") is not None:
        return True
    n_bytes = get_header(scope, b"content-length") or b"0"
    return not n_bytes.isdigit() or int(n_bytes) - scope.get("posh.bytes", 0) > _LINGER_BYTES


async def _discard_body(receive: Receive) -> None:
    """Read the rest of a refused request, up to a bound.

    If the connection is closed with unread bytes, the client's system may discard the response.
    """
    n_bytes = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while n_bytes < _LINGER_BYTES:
                message = await receive()
                if not message.get("more_body"):  # the end of the body, or of the connection
                    return
                n_bytes += len(message["body"])


async def send_problem(problem: ProblemError, send: Send) -> None:
    """Send a problem as the response."""
    body = problem.body()
    headers = [(key.encode(), value.encode()) for key, value in problem.headers.items()]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
