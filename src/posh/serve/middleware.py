"""ASGI middleware for every path: it checks who may ask, adds headers to answers, and counts requests."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Collection
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from posh.serve.limits import Limits
from posh.serve.metrics import Metrics
from posh.serve.problems import ProblemError, internal

__all__ = ["AccessMiddleware", "header", "send_problem"]

_HEADERS = [
    (b"server", b"posh"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_NOT_STORED = [*_HEADERS, (b"cache-control", b"no-store")]
_PIECE = 32 << 10  # bytes of an answer that are sent in one go; small answers are of one piece
_OWN_SITES = (None, b"same-origin", b"none")  # no browser, the own page, and an address that was typed
_LINGER_BYTES, _LINGER_SECONDS = 1 << 20, 2.0  # of a body after its request is refused
_log = logging.getLogger("posh.serve")
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class AccessMiddleware:
    """Wraps an application.

    With a token, every path but ``open_paths`` needs it. Without one only this machine can ask, and this
    class keeps web pages of other sites from doing so through a browser: it refuses other names that point
    to this machine, and requests that the browser says come from another origin. Links of other sites to
    ``open_paths``, the page among them, are followed.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        token: str | None,
        open_paths: Collection[str],
        hosts: Collection[str] = LOOPBACK,
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits()
        self._app, self._metrics = app, metrics
        self._answers, self._seconds = AnswerBudget(limits), limits.answer_seconds
        self._token = None if token is None else token.encode()
        self._open, self._hosts = frozenset(open_paths), frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        start = time.perf_counter()
        added = _HEADERS if scope["path"] in self._open else _NOT_STORED
        answer = _Sender(scope, send, added, self._answers, self._seconds)
        try:
            if (refusal := self._refusal(scope)) is None:
                await self._app(scope, receive, answer)
            else:
                await send_problem(refusal, answer)
        except ProblemError as problem:
            await send_problem(problem, answer)
        except Exception as error:
            if answer.status:
                raise
            await send_problem(internal(error), answer)
        finally:
            if answer.status >= 400 and scope["method"] != "GET":
                await _discard_body(receive)
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.observe(route, scope["method"], answer.status, time.perf_counter() - start)

    def _refusal(self, scope: Scope) -> ProblemError | None:
        if self._token is None:
            return self._refusal_of_other_sites(scope)
        return None if scope["path"] in self._open else self._refusal_of_strangers(scope, self._token)

    def _refusal_of_strangers(self, scope: Scope, token: bytes) -> ProblemError | None:
        scheme, _, given = (header(scope, b"authorization") or b"").partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), token):
            return None
        got = "another one" if given else "none"
        return ProblemError(
            401,
            "unauthorized",
            f"expected the service's token, got {got}: send the header 'Authorization: Bearer TOKEN'",
            {"www-authenticate": 'Bearer realm="posh"'},
        )

    def _refusal_of_other_sites(self, scope: Scope) -> ProblemError | None:
        host = (header(scope, b"host") or b"").decode("latin-1").lower()
        if host.removesuffix(f":{host.rpartition(':')[2]}") not in self._hosts and host not in self._hosts:
            return ProblemError(
                403,
                "forbidden",
                f"expected a request to {' or '.join(sorted(self._hosts))}, got one to {host!r:.80}: "
                "use a token to serve other names",
            )
        origin = header(scope, b"origin")
        is_foreign = origin is not None and origin.partition(b"://")[2].decode("latin-1").lower() != host
        # Browsers send no Origin with pictures, scripts and frames, but they say where these are from.
        is_foreign |= header(scope, b"sec-fetch-site") not in _OWN_SITES and not self._is_link(scope)
        if is_foreign:
            return ProblemError(
                403,
                "forbidden",
                "expected a request from this service's own page, got one from a page of another site: open "
                "the service's page itself, or use a token",
            )
        return None

    def _is_link(self, scope: Scope) -> bool:
        """Whether a browser follows a link, in a window of its own, to a path that is open to everybody."""
        kind = (header(scope, b"sec-fetch-mode"), header(scope, b"sec-fetch-dest"))
        is_reading = scope["method"] in ("GET", "HEAD")
        return is_reading and kind == (b"navigate", b"document") and scope["path"] in self._open


class AnswerBudget:
    """Bytes of all large answers that are being sent.

    An answer that takes longer than ``answer_seconds`` in all is evicted when others need its room, the
    oldest first. The methods belong to the event loop's thread.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._n_bytes = limits, 0
        self._answers: dict[asyncio.Timeout, tuple[int, float]] = {}  # bytes and start time, the oldest first

    def hold(self, answer: asyncio.Timeout, n_bytes: int) -> None:
        """Count the bytes of an answer until :meth:`release`; raise a 503 if there is no room."""
        now, limit = asyncio.get_running_loop().time(), self._limits.answers_in_work
        for other, (_, start) in list(self._answers.items()):
            if self._n_bytes + n_bytes <= limit or now - start <= self._limits.answer_seconds:
                break
            self.release(other)
            other.reschedule(now)
        if self._answers and self._n_bytes + n_bytes > limit:
            raise ProblemError(
                503,
                "busy",
                f"expected at most {limit} bytes of answers at once, got more: try again later",
                {"retry-after": "1"},
            )
        self._answers[answer] = n_bytes, now
        self._n_bytes += n_bytes

    def release(self, answer: asyncio.Timeout) -> None:
        """Stop counting an answer, if it is counted."""
        self._n_bytes -= self._answers.pop(answer, (0, 0.0))[0]


class _Sender:
    """Sends an answer with the common headers, and large bodies in pieces.

    The server buffers four pieces and 64 KB, then ``send`` waits for the client. So a large body counts as in
    memory until all but its last pieces are taken.
    """

    def __init__(
        self,
        scope: Scope,
        send: Send,
        added: list[tuple[bytes, bytes]],
        budget: AnswerBudget,
        seconds: float,
    ) -> None:
        self._scope = scope
        self.status = 0  # of the answer that was sent
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
        """Send a body in pieces; give up if the client takes none of them for too long."""
        loop = asyncio.get_running_loop()
        answer = asyncio.timeout(self._seconds)
        try:
            async with answer:
                self._budget.hold(answer, len(body))
                await self._send_start()
                for first in range(0, len(body), _PIECE):
                    piece, is_more = body[first : first + _PIECE], first + _PIECE < len(body)
                    await self._send({"type": "http.response.body", "body": piece, "more_body": is_more})
                    if not answer.expired():
                        answer.reschedule(loop.time() + self._seconds)
        except TimeoutError:  # the server closes the connection, because the body is not complete
            _log.info("a client did not take an answer of %d bytes", len(body))
        finally:
            self._budget.release(answer)


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first value of a header, whose name is in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def _has_large_rest(scope: Scope) -> bool:
    """Return whether more of the body may follow than is discarded: the server then closes the connection."""
    if header(scope, b"transfer-encoding") is not None:
        return True
    n_bytes = header(scope, b"content-length") or b"0"
    return not n_bytes.isdigit() or int(n_bytes) - scope.get("posh.bytes", 0) > _LINGER_BYTES


async def _discard_body(receive: Receive) -> None:
    """Read what a refused client is still sending, up to a bound.

    If bytes were unread when the connection is closed, the client's system could discard the answer.
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
    """Answer with a problem."""
    body = problem.body()
    headers = [(key.encode(), value.encode()) for key, value in problem.headers.items()]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
