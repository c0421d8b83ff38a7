"""Errors as answers."""

from __future__ import annotations

import errno
import sqlite3

import httpx
import pytest

from posh.errors import CollectionExistsError, FormatError, StorageError, UnknownCollectionError
from posh.serve.responses import TITLES, ProblemError, make_problem
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.service import MemorySource, running

SECRET = "/srv/secret/shop/collection.sqlite3"


def sqlite_error(code: int) -> StorageError:
    cause = sqlite3.OperationalError("disk")
    cause.sqlite_errorcode = code
    error = StorageError(f"{SECRET}: could not be written")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "status", "kind", "detail"),
    [
        (ValueError("expected k"), 422, "invalid-argument", "expected k"),
        (TypeError("expected k"), 422, "wrong-type", "expected k"),
        (KeyError("expected an id"), 404, "unknown-item", "expected an id"),
        (UnknownCollectionError("no x"), 404, "unknown-collection", "no x"),
        (CollectionExistsError("x"), 409, "collection-exists", "x"),
        (ProblemError(418, "gone", "tea"), 418, "gone", "tea"),
        (MemoryError(), 503, "busy", "the service is out of memory"),
        (OSError(errno.ENOSPC, "No space left", SECRET), 507, "storage-full", "expected room"),
        (OSError(errno.EROFS, "Read-only", SECRET), 503, "read-only", "expected a disk that"),
        (PermissionError(errno.EACCES, "denied", SECRET), 503, "read-only", "expected a disk that"),
        (sqlite_error(sqlite3.SQLITE_FULL), 507, "storage-full", "expected room"),
        (sqlite_error(sqlite3.SQLITE_READONLY | 1 << 8), 503, "read-only", "expected a disk that"),
        (sqlite_error(sqlite3.SQLITE_IOERR), 503, "storage-failed", "expected a disk that works"),
        (TimeoutError("expected a filter"), 504, "too-long", "expected a filter"),
        (
            TimeoutError(errno.ETIMEDOUT, "no disk", SECRET),
            503,
            "storage-failed",
            "expected a disk that works",
        ),
        (FormatError(f"{SECRET}: damaged"), 500, "internal", "the service failed to answer"),
        (ZeroDivisionError(SECRET), 500, "internal", "the service failed to answer"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_every_error_has_its_answer(error, status, kind, detail):
    problem = make_problem(error)
    assert (problem.status, problem.kind) == (status, kind)
    assert problem.detail.startswith(detail)
    assert kind in TITLES
    assert b"secret" not in problem.body()


def test_words_that_are_no_unicode_are_answered_nevertheless():
    assert b'"detail":"got \'?\'"' in make_problem(ValueError("got '\ud800'")).body()


class Broken(ReferenceCollection):
    """Fails like a disk, or like a programmer."""

    error: Exception

    def _upsert(self, ids, vectors, payloads):
        raise self.error

    def _search(self, *query):
        raise self.error


@pytest.mark.parametrize(
    ("error", "status"), [(OSError(errno.ENOSPC, "full", SECRET), 507), (ZeroDivisionError(SECRET), 500)]
)
def test_failures_are_problems_without_paths_and_tracebacks(error, status, caplog):
    broken = Broken(SPARSE)
    broken.error = error
    with running(MemorySource(broken=broken)) as address:
        row = DATA[:1].tolist()
        for path, body in (("upsert", {"ids": [1], "vectors": row}), ("search", {"vectors": row})):
            answer = httpx.post(f"{address}/v1/collections/broken/{path}", json=body)
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == status
            assert "secret" not in answer.text
            assert "Traceback" not in answer.text
        assert httpx.get(f"{address}/health").status_code == 200
    assert "secret" in caplog.text


def test_wrong_addresses_and_methods_are_problems(http):
    for method, path, status in [
        ("GET", "/v2", 404),
        ("GET", "/v1/collections/things/search", 405),
        ("POST", "/health", 405),
        ("PATCH", "/v1/collections/things", 405),
        ("POST", "/v1/collections/things/nothing", 404),
        ("GET", "/v1/collections/things/", 404),
        ("OPTIONS", "/v1/collections", 405),
    ]:
        answer = http.request(method, path)
        assert (method, path, answer.status_code) == (method, path, status)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status
    assert http.post("/health").headers["allow"] == "GET"


def test_what_is_not_json_is_said_so(http):
    for content in (b"", b"{", b"vectors", b"\xff\xfe", b'{"k": 1} {}'):
        answer = http.post(
            "/v1/collections/things/search", content=content, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 400
        assert answer.json()["type"] == "urn:posh:not-json"
        assert answer.json()["detail"].startswith("expected JSON, got something else: ")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_other_types_of_bodies_are_refused(http, kind):
    answer = http.post(
        "/v1/collections/things/count", content=b"{}", headers={"content-type": kind} if kind else {}
    )
    assert answer.status_code == 415
    assert "expected the header 'Content-Type: application/json'" in answer.json()["detail"]


def test_a_charset_is_no_other_type(http):
    answer = http.post(
        "/v1/collections/things/count",
        content=b"{}",
        headers={"content-type": "Application/JSON; charset=utf-8"},
    )
    assert answer.status_code == 200
