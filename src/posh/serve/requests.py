"""Reading requests: bounded while they arrive, then parsed."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from posh.serve.gate import header
from posh.serve.limits import Limits
from posh.serve.models import Body, Packed
from posh.serve.problems import ProblemError

__all__ = ["Reader", "is_gone"]

B = TypeVar("B", bound=Body)
_SMALL = 256 << 10  # bytes that are parsed at once, without counting their values
_PART = 1 << 20  # bytes whose values are counted in one go


class Reader:
    """Reads the bodies of requests within the limits, of one request and of all together."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._in_work = 0

    async def parse(self, request: Request, model: type[B]) -> B:
        """The body of a request as a checked object."""
        _require_type(request.scope, b"application/json")
        body = await self.read(request, getattr(self._limits, model.size_limit))
        if len(body) <= _SMALL:
            return self._parsed(body, model)
        return await asyncio.to_thread(self._counted_and_parsed, body, model)

    def _counted_and_parsed(self, body: bytes, model: type[B]) -> B:
        """Parse a large body, in a thread, unless it has so many values that this would take long."""
        n_values = 0  # every value but the first comes after one of these
        for start in range(0, len(body), _PART):
            part = body[start : start + _PART]
            n_values += part.count(b",") + part.count(b"[") + part.count(b"{")
            if n_values > self._limits.body_values:
                raise _too_large(f"{self._limits.body_values} values in JSON", "pack vectors as base64")
        return self._parsed(body, model)

    def _parsed(self, body: bytes, model: type[B]) -> B:
        parsed = model.model_validate_json(body)
        self._check_limits(parsed)
        return parsed

    async def read_bytes(self, request: Request) -> bytes:
        """The body of a request that is a file."""
        _require_type(request.scope, b"application/octet-stream")
        return await self.read(request, self._limits.body_bytes)

    async def read(self, request: Request, most: int) -> bytes:
        """The bytes of a body."""
        announced = header(request.scope, b"content-length") or b"0"
        if not announced.isdigit() or int(announced) > most:
            raise _too_many_bytes(most)
        message = await request.receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            body = message.get("body", b"")
            self._hold(request.scope, len(body), most)
            return bytes(body)
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return await self._rest(message, request, most)
        except TimeoutError:
            raise ProblemError(
                408,
                "too-slow",
                f"expected the body within {self._limits.body_seconds:g} s, got a part of it",
            ) from None

    async def _rest(self, message: Message, request: Request, most: int) -> bytes:
        parts: list[bytes] = []
        while True:
            if message["type"] == "http.disconnect":
                raise ProblemError(400, "not-json", "expected a complete body, got a part of it")
            parts.append(message.get("body", b""))
            self._hold(request.scope, len(parts[-1]), most)
            if not message.get("more_body", False):
                return b"".join(parts)
            message = await request.receive()

    def _hold(self, scope: Scope, n_bytes: int, most: int) -> None:
        """Count bytes of a request until :meth:`release`."""
        self._in_work += n_bytes
        scope["posh.bytes"] = scope.get("posh.bytes", 0) + n_bytes
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
        """Forget the bytes of a request that is answered."""
        self._in_work -= scope.pop("posh.bytes", 0)

    def _check_limits(self, body: Body) -> None:
        for name, limit in body.limited:
            value = getattr(body, name)
            if value is None or name not in body.model_fields_set:
                continue
            size, most = _size(value), getattr(self._limits, limit)
            if size > most:
                raise ValueError(f"expected at most {most:,} for {name}, got {size:,}: ask for less at once")


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


def is_gone(receive: Receive) -> bool:
    """Whether a client whose body was read has hung up: one look at what ``receive`` has, no waiting."""
    look = receive()
    try:
        look.send(None)  # type: ignore[attr-defined]
    except StopIteration as done:
        return bool(done.value["type"] == "http.disconnect")
    look.close()  # type: ignore[attr-defined]
    return False
