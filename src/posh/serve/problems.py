"""Errors as answers: problem-JSON (RFC 9457) in the library's words, and never a path or a traceback."""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from posh.errors import (
    CancelledError,
    CollectionExistsError,
    FormatError,
    MissingShardsError,
    ServiceError,
    UnknownCollectionError,
)

__all__ = ["TITLES", "ProblemError", "internal", "problem_of"]

TITLES = {
    "not-json": "The body is not JSON",
    "unauthorized": "A token is needed",
    "forbidden": "Requests from other sites are refused",
    "not-found": "There is nothing here",
    "unknown-collection": "There is no such collection",
    "unknown-item": "There is no such item",
    "method-not-allowed": "This method is not allowed here",
    "too-slow": "The body took too long to arrive",
    "collection-exists": "There is such a collection already",
    "no-hasher": "The collection has no hasher yet",
    "indexing": "The collection is being indexed",
    "too-large": "The request is too large",
    "unsupported-media-type": "The body has another type than expected",
    "invalid-argument": "An argument is wrong",
    "wrong-type": "An argument is of the wrong type",
    "not-a-hasher": "The body is not a hasher",
    "gone": "The client has hung up",
    "internal": "The service failed",
    "busy": "The service is too busy",
    "missing-shards": "Some shards cannot be searched at the moment",
    "cancelled": "The work was cancelled",
    "too-long": "The work took too long",
    "engine-failed": "The engine of the collection failed",
    "read-only": "The storage cannot be written",
    "storage-failed": "The storage failed",
    "storage-full": "The storage is full",
}
_FULL = (507, "storage-full", "expected room on the service's disk, got none left: nothing was written")
_READ_ONLY = (503, "read-only", "expected a disk that the service may write, got none: nothing was written")
_FAILED = (503, "storage-failed", "expected a disk that works, got an error: see the service's log")
_ENGINE = (503, "engine-failed", "expected an engine that answers, got an error: see the service's log")
_BY_ERRNO = {errno.ENOSPC: _FULL, errno.EDQUOT: _FULL} | dict.fromkeys(
    (errno.EROFS, errno.EACCES, errno.EPERM), _READ_ONLY
)
_BY_SQLITE_CODE = {sqlite3.SQLITE_FULL: _FULL} | dict.fromkeys(
    (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN), _READ_ONLY
)
_log = logging.getLogger("posh.serve")


class ProblemError(Exception):
    """An answer that says what went wrong; ``kind`` is a key of ``TITLES``."""

    def __init__(self, status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail = status, kind, detail
        self.headers = {"content-type": "application/problem+json", **(headers or {})}

    def body(self) -> bytes:
        """The problem as JSON."""
        # Half a surrogate pair may have come with the client's own words, and is no UTF-8.
        detail = self.detail.encode("utf-8", "replace").decode()
        content = {"type": f"urn:posh:{self.kind}", "title": TITLES[self.kind]}
        return orjson.dumps(content | {"status": self.status, "detail": detail})


def problem_of(error: BaseException) -> ProblemError:
    """The answer to a client whose request raised this error."""
    match error:
        case ProblemError():
            return error
        case ValidationError():
            return _invalid(error)
        case UnknownCollectionError():
            return ProblemError(404, "unknown-collection", str(error))
        case CollectionExistsError():
            return ProblemError(409, "collection-exists", str(error))
        case CancelledError():
            return ProblemError(503, "cancelled", str(error))
        case FormatError():
            return internal(error)  # a damaged file of the service's: no argument of a client's is the reason
        case TimeoutError() if error.errno is None:  # not the disk's
            return ProblemError(504, "too-long", str(error))
        case MissingShardsError():
            return ProblemError(503, "missing-shards", str(error), {"retry-after": str(error.seconds)})
        case ServiceError():  # of Milvus
            _log.error("the engine failed: %s", error)
            return ProblemError(*_ENGINE)
        case OSError():
            return _storage(error)
        case KeyError():
            return ProblemError(404, "unknown-item", str(error.args[0]) if error.args else "")
        case TypeError():
            return ProblemError(422, "wrong-type", str(error))
        case ValueError():
            return ProblemError(422, "invalid-argument", str(error))
        case MemoryError():
            return ProblemError(
                503, "busy", "the service is out of memory: ask for less", {"retry-after": "1"}
            )
    return internal(error)


def _storage(error: OSError) -> ProblemError:
    """What is the matter with the disk, without the paths that the library's message names."""
    _log.error("the storage failed: %s", error)
    code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF  # the primary one
    return ProblemError(*(_BY_SQLITE_CODE.get(code) or _BY_ERRNO.get(error.errno or 0) or _FAILED))


def internal(error: BaseException) -> ProblemError:
    """The answer to what should not happen; what it was is in the log."""
    _log.error("a request failed", exc_info=error)
    return ProblemError(500, "internal", "the service failed to answer: see its log")


def _invalid(error: ValidationError) -> ProblemError:
    # Of a union every branch complains: the one that got furthest is the one that was meant.
    first = max(error.errors(include_url=False), key=lambda one: len(one["loc"]))
    if first["type"] == "json_invalid":
        return ProblemError(400, "not-json", f"expected JSON, got something else: {first['ctx']['error']}")
    kind = "wrong-type" if first["type"] == "extra_forbidden" else "invalid-argument"  # as in Python
    return ProblemError(422, kind, _worded(first, _where(first["loc"])))


def _worded(error: Any, where: str) -> str:
    match error["type"]:
        case "missing":
            return f"expected the field {where}, got none: add it"
        case "extra_forbidden":
            return f"unknown field {where}: leave it out"
        case "value_error":
            return str(error["ctx"]["error"])
        case "literal_error":
            choices = error["ctx"]["expected"].replace(" or ", ", ")
            return f"expected {where} to be one of {choices}, got {error['input']!r:.80}"
        case _:
            _, _, wanted = error["msg"].partition(" should ")
            return f"expected {where or 'the body'} to {wanted or error['msg']}, got {error['input']!r:.80}"


def _where(location: tuple[int | str, ...]) -> str:
    """A path such as ``vectors[3][0]``, without the names of types that a union puts into it."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in ("int", "str", "float", "bool", "Packed"):
            path += f".{part}" if path else part
    return path
