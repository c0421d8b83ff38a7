"""Reading requests: bounded while they arrive, then parsed."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import numpy as np
from starlette.requests import Request
from starlette.types import Receive, Scope

from posh.serve.capacity import MemoryBudget, MemoryShare
from posh.serve.limits import Limits
from posh.serve.middleware import header
from posh.serve.models import Body, Packed
from posh.serve.problems import ProblemError

__all__ = ["Reader", "wait_for_disconnect"]

B = TypeVar("B", bound=Body)
Content = bytes | bytearray
_TINY = 16 << 10  # bytes whose values are not counted
_SMALL = 256 << 10  # bytes that are parsed on the event loop
_PART = 1 << 20  # bytes whose values are counted in one go
_SEPARATORS = b",[{"  # every value but the first comes after one of these
# What a parsed body takes: about its bytes once more, and once more as vectors, and so much for each value.
_TIMES, _VALUE_BYTES = 3, 120
_FILE_TIMES = 6  # of a model file: bytes and arrays, of what came and of the collection's own copy


class Reader:
    """Reads the bodies of requests within the limits, of one request and of all together."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._in_work = 0
        # Two of them, so that no two requests hold a part of one each and wait for the rest.
        self._bodies, self._answers = (MemoryBudget(limits.work_bytes // 2, limits.seconds) for _ in range(2))
        self._parsing = asyncio.Lock()  # of a large body: the interpreter does nothing else meanwhile

    async def parse(self, request: Request, model: type[B]) -> B:
        """The body of a request as a checked object."""
        _require_type(request.scope, b"application/json")
        body = await self.read(request, getattr(self._limits, model.size_limit))
        if len(body) <= _SMALL:
            n_values = len(body) // 2 if len(body) <= _TINY else self._n_values(body)
            await self._work(request.scope, _TIMES * len(body) + _VALUE_BYTES * n_values)
            return self._parsed(body, model)
        n_values = await asyncio.to_thread(self._n_values, body)
        await self._work(request.scope, _TIMES * len(body) + _VALUE_BYTES * n_values)
        async with self._parsing:
            return await asyncio.to_thread(self._parsed, body, model)

    def _n_values(self, body: Content) -> int:
        """About how many values the JSON of a body has, unless that would take long to parse."""
        content, n_values = np.frombuffer(body, np.uint8), 0
        for start in range(0, len(content), _PART):
            part = content[start : start + _PART]
            n_values += sum(int(np.count_nonzero(part == separator)) for separator in _SEPARATORS)
            if n_values > self._limits.body_values:
                raise _too_large(f"{self._limits.body_values} values in JSON", "pack vectors as base64")
        return n_values

    async def _work(self, scope: Scope, n_bytes: int) -> None:
        """Count the memory for a request in place of its bytes, when there is room for it."""
        share = scope["posh.share"] = MemoryShare(self._bodies)
        await share.wait_for(n_bytes)
        self._in_work -= scope.pop("posh.held", 0)

    def grow(self, scope: Scope, n_bytes: int) -> None:
        """Count the memory for a large answer, in the thread that writes it; once for each request."""
        if "posh.answer" not in scope:
            share = scope["posh.answer"] = MemoryShare(self._answers)
            share.add(n_bytes)

    def _parsed(self, body: Content, model: type[B]) -> B:
        parsed = model.model_validate_json(body)
        self.check_limits(parsed)
        return parsed

    async def read_file(self, request: Request) -> bytes:
        """The body of a request that is a file."""
        _require_type(request.scope, b"application/octet-stream")
        content = await self.read(request, self._limits.body_bytes)
        await self._work(request.scope, _FILE_TIMES * len(content))
        return bytes(content)

    async def read(self, request: Request, most: int) -> Content:
        """The bytes of a body."""
        announced = header(request.scope, b"content-length")
        if announced is not None and (not announced.isdigit() or int(announced) > most):
            raise _too_many_bytes(most)
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return await self._receive(request, most, -1 if announced is None else int(announced))
        except TimeoutError:
            raise ProblemError(
                408,
                "too-slow",
                f"expected the body within {self._limits.body_seconds:g} s, got a part of it",
            ) from None

    async def _receive(self, request: Request, most: int, n_bytes: int) -> Content:
        """Receive a body of ``n_bytes``, or of unknown length if that is negative."""
        body: Content = b""
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ProblemError(400, "not-json", "expected a complete body, got a part of it")
            part = message.get("body", b"")
            self._hold(request.scope, len(part), most)
            if not body:
                body = part
            else:
                if isinstance(body, bytes):
                    body = bytearray(body)  # parts would be in memory twice when they are joined
                body += part
            # Asking for the end of a body of known length would take another turn of the server's thread.
            if not message.get("more_body", False) or len(body) == n_bytes:
                return body

    def _hold(self, scope: Scope, n_bytes: int, most: int) -> None:
        """Count bytes of a request until it is in work or answered."""
        self._in_work += n_bytes
        scope["posh.bytes"] = scope["posh.held"] = scope.get("posh.bytes", 0) + n_bytes
        if scope["posh.bytes"] > most:
            raise _too_many_bytes(most)
        if self._in_work > self._limits.bytes_in_work:
            raise ProblemError(
                503,
                "busy",
                f"expected at most {self._limits.bytes_in_work} bytes of requests at once, got more: "
                "try again later",
                {"retry-after": "1"},
            )

    def release(self, scope: Scope) -> None:
        """Forget the bytes and the memory of a request that is answered."""
        self._in_work -= scope.pop("posh.held", 0)
        for name in ("posh.share", "posh.answer"):
            share: MemoryShare | None = scope.get(name)
            if share is not None:
                share.close()

    def check_limits(self, body: Body, prefix: str = "") -> None:
        """Raise a ValueError if a field exceeds its limit; ``prefix`` comes before its name."""
        for name, limit in body.limited:
            value = getattr(body, name)
            if value is None or name not in body.model_fields_set:
                continue
            size, most = _size(value), getattr(self._limits, limit)
            if size > most:
                raise ValueError(
                    f"expected at most {most:,} for {prefix}{name}, got {size:,}: ask for less at once"
                )
        for name in body.nested:
            self.check_limits(getattr(body, name), f"{prefix}{name}.")


def _size(value: Any) -> float:
    if isinstance(value, Packed):
        return value.shape[0]
    return value if isinstance(value, int | float) else len(value)


def _too_many_bytes(most: int) -> ProblemError:
    return _too_large(f"{most} bytes", "send less at once")


def _too_large(bound: str, remedy: str) -> ProblemError:
    return ProblemError(413, "too-large", f"expected a body of at most {bound}, got more: {remedy}")


def _require_type(scope: Scope, expected: bytes) -> None:
    got = header(scope, b"content-type") or b"none"
    if got.partition(b";")[0].strip().lower() != expected:
        raise ProblemError(
            415,
            "unsupported-media-type",
            f"expected the header 'Content-Type: {expected.decode()}', got {got.decode('latin-1')!r:.80}",
        )


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when a client whose body was read has hung up, or was answered."""
    while (await receive())["type"] != "http.disconnect":
        pass
