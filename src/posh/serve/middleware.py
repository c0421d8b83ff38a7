"""ASGI middleware for every path: it checks who may ask, adds headers to answers, and counts requests."""

from __future__ import annotations

import hmac
import time
from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from posh.serve.metrics import Metrics
from posh.serve.problems import ProblemError, internal
from posh.serve.protocol import BoundedProtocol

__all__ = ["AccessMiddleware", "header", "send_problem"]

_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
_NOT_STORED = [*_HEADERS, (b"cache-control", b"no-store")]
_CLOSE = [(b"connection", b"close")]
_PIECE = 64 << 10  # bytes of an answer that are in memory twice; small answers are of one piece
_OWN_SITES = (None, b"same-origin", b"none")  # no browser, the own page, and an address that was typed
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
    ) -> None:
        self._app, self._metrics = app, metrics
        self._token = None if token is None else token.encode()
        self._open, self._hosts = frozenset(open_paths), frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        connection: BoundedProtocol = scope.pop("posh.connection")
        is_open = scope["path"] in self._open
        answer = _Answer(connection, send, _HEADERS if is_open else _NOT_STORED)
        try:
            refusal = self._refusal(scope)
            if refusal is not None or is_open or connection.was_early:
                await connection.table.wait_for_turn()
            if refusal is not None:
                raise refusal
            await self._app(scope, receive, answer)
        except ProblemError as problem:
            await send_problem(problem, answer)
        except Exception as error:
            if answer.status:
                raise
            await send_problem(internal(error), answer)
        finally:
            if answer.is_counted:
                answer.release()
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.observe(route, scope["method"], answer.status, time.perf_counter() - start)

    def early_refusal(self, scope: Scope) -> ProblemError | None:
        """The answer to a request whose body is still to come, if it is refused: nobody needs the body."""
        refusal = self._refusal(scope)
        if refusal is not None:
            refusal.headers |= {key.decode(): value.decode() for key, value in _NOT_STORED}
            self._metrics.observe("other", scope["method"], refusal.status, 0.0)
        return refusal

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


class _Answer:
    """Sends an answer. It adds the common headers, counts large answers, and sends them in pieces.

    The transport would take all of a large body at once, and keep it until the client reads it.
    """

    def __init__(self, connection: BoundedProtocol, send: Send, added: list[tuple[bytes, bytes]]) -> None:
        self.status, self.is_counted = 0, False  # of what was sent
        self._connection, self._send, self._added = connection, send, added
        self._start: Message | None = None  # waits for the body, whose size decides whether it is sent

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        body = message.get("body", b"")
        if self._start is not None:
            if len(body) > _PIECE:
                try:
                    self._connection.table.hold(self._connection, len(body))
                    self.is_counted = True
                except ProblemError as problem:
                    await send_problem(problem, self)
                    return
            start, self._start = self._start, None
            self.status, is_early = start["status"], self._connection.is_early
            start["headers"] = [*start["headers"], *self._added, *(_CLOSE if is_early else ())]
            self._connection.joined.keep()
            await self._send(start)
            if is_early:
                self._connection.close_after_answer()
        if len(body) <= _PIECE:
            await self._send(message)
            self._connection.joined.send()
        else:
            self._connection.joined.send()
            await self._send_in_pieces(body)

    async def _send_in_pieces(self, body: bytes) -> None:
        for first in range(0, len(body), _PIECE):
            piece, is_more = body[first : first + _PIECE], first + _PIECE < len(body)
            await self._send({"type": "http.response.body", "body": piece, "more_body": is_more})

    def release(self) -> None:
        """Stop counting the answer, whether it was sent or not."""
        self._connection.table.release(self._connection)


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first value of a header, whose name is in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


async def send_problem(problem: ProblemError, send: Send) -> None:
    """Answer with a problem."""
    body = problem.body()
    headers = [(key.encode(), value.encode()) for key, value in problem.headers.items()]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
