"""What a stranger, or a web page of another site, must not be able to do."""

from __future__ import annotations

import json
from http.client import HTTPConnection

import httpx
import pytest

from posh.serve.capacity import Limits
from tests.collection.implementations import DATA
from tests.serve.conftest import filled
from tests.serve.service import MemorySource, running

PROTECTED = [
    ("GET", "/v1/collections"),
    ("GET", "/v1/collections/things"),
    ("PUT", "/v1/collections/new"),
    ("DELETE", "/v1/collections/things"),
    ("POST", "/v1/collections/things/search"),
    ("POST", "/v1/collections/things/search_radius"),
    ("POST", "/v1/collections/things/upsert"),
    ("POST", "/v1/collections/things/delete"),
    ("POST", "/v1/collections/things/get"),
    ("POST", "/v1/collections/things/items"),
    ("POST", "/v1/collections/things/count"),
    ("POST", "/v1/collections/things/sample"),
    ("POST", "/v1/collections/things/fit"),
    ("POST", "/v1/collections/things/compact"),
    ("POST", "/v1/collections/things/backup"),
    ("PUT", "/v1/collections/things/restore"),
    ("GET", "/v1/collections/things/hasher"),
    ("PUT", "/v1/collections/things/hasher"),
    ("PUT", "/v1/collections/things/metadata"),
    ("GET", "/v1/nothing"),
    ("GET", "//v1/collections"),
    ("GET", "/nothing"),
    ("GET", "/health/"),
    ("GET", "/metrics"),
]
TOKEN = "correct horse"


@pytest.fixture(scope="module")
def locked():
    with (
        running(MemorySource(things=filled()), token=TOKEN) as address,
        httpx.Client(base_url=address) as client,
    ):
        yield client


@pytest.mark.parametrize(("method", "path"), PROTECTED)
@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer wrong", "Bearer correct", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN],
)
def test_without_the_right_token_nothing_is_done(locked, method, path, given):
    answer = locked.request(method, path, headers={} if given is None else {"authorization": given}, json={})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="posh"'
    assert answer.json()["type"] == "urn:posh:unauthorized"
    assert TOKEN not in answer.text


def test_with_the_right_token_it_is(locked):
    for given in (f"Bearer {TOKEN}", f"bearer  {TOKEN}"):
        answer = locked.get("/v1/collections/things", headers={"authorization": given})
        assert answer.json()["count"] == 200
    assert locked.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_tokens_that_are_no_ascii_are_compared_too(locked):
    assert locked.get("/metrics", headers={"authorization": "Bearer é".encode()}).status_code == 401


def test_the_page_health_and_description_need_no_token(locked):
    for path in ("/", "/health", "/openapi.json"):
        assert locked.get(path).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "[::2]:1"]
)
def test_other_names_of_this_machine_are_refused(http, host):
    """Without a token: a site whose name is made to point here must not read our data."""
    answer = http.get("/v1/collections", headers={"host": host})
    assert answer.status_code == 403
    assert answer.json()["type"] == "urn:posh:forbidden"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "[::1]:80", "[::1]", "LOCALHOST"])
def test_its_own_names_are_not(http, host):
    assert http.get("/v1/collections", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:1", ""])
def test_pages_of_other_sites_are_refused(http, origin):
    answer = http.post("/v1/collections/things/compact", headers={"origin": origin})
    assert answer.status_code == 403


def test_the_own_page_is_not(http, address):
    answer = http.post("/v1/collections/things/compact", headers={"origin": address})
    assert answer.status_code == 204


READING = ["/", "/health", "/openapi.json", "/v1/collections", "/v1/collections/things/map", "/metrics"]


@pytest.mark.parametrize("path", READING)
@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "something new"])
@pytest.mark.parametrize(
    ("mode", "dest"),
    [
        ("no-cors", "image"),
        ("no-cors", "script"),
        ("cors", "empty"),
        ("navigate", "iframe"),
        ("navigate", ""),
    ],
)
def test_pages_of_other_sites_cannot_even_read(http, path, site, mode, dest):
    """As ``<img src="http://127.0.0.1:8765/v1/…">`` does: browsers send no origin with it."""
    headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
    answer = http.get(path, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["type"] == "urn:posh:forbidden"


LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def test_links_of_other_sites_lead_to_the_page(http):
    for path in ("/", "/docs", "/health"):
        assert http.get(path, headers=LINK).status_code == 200


def test_links_and_forms_of_other_sites_lead_nowhere_else(http):
    assert http.get("/v1/collections", headers=LINK).status_code == 403
    assert http.get("/metrics", headers=LINK).status_code == 403
    assert http.post("/", headers=LINK).status_code == 403
    assert http.post("/v1/collections/things/compact", headers=LINK).status_code == 403


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_the_own_page_and_typed_addresses_may_read(http, site):
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
    assert http.get("/v1/collections", headers=headers).status_code == 200


def test_with_a_token_the_site_does_not_matter(locked):
    headers = {"authorization": f"Bearer {TOKEN}", "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    assert locked.get("/v1/collections/things", headers=headers).status_code == 200


def test_nobody_is_told_that_other_sites_may_read(http):
    answer = http.options("/v1/collections", headers={"access-control-request-method": "GET"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


NAMES = [
    "..",
    ".",
    "...",
    "a/b",
    "../a",
    "A",
    "a.b",
    "a b",
    "-a",
    "_a",
    "a" * 65,
    "é",
    "a\x00",
    "con\\",
    "%2e%2e",
    "~",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_cannot_lead_elsewhere(http, name):
    quoted = "".join(f"%{byte:02x}" for byte in name.encode())
    made = http.put(f"/v1/collections/{quoted}", json={})
    assert made.status_code in (404, 405, 422)
    assert http.get(f"/v1/collections/{quoted}").status_code == 404
    assert http.get("/health").json()["collections"] == 3


def test_names_that_are_right(http):
    for name in ("a", "0", "a" * 64, "a-b_c"):
        assert http.put(f"/v1/collections/{name}", json={}).status_code == 201
        assert http.delete(f"/v1/collections/{name}").status_code == 204


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/%2e%2e/app.py",
        "/..%2fapp.py",
        "/%2e%2e%2fapp.py",
        "//etc/passwd",
        "/etc/passwd",
        "/index.html/",
        "/index.html%00.js",
        "/./index.html",
        "/page/index.html",
        "/..\\app.py",
        "/docs/",
        "/redoc",
        "/.hidden",
    ],
)
def test_files_beside_the_page_are_out_of_reach(address, path):
    """Sent as it is: clients would tidy the path up."""
    connection = HTTPConnection(address.removeprefix("http://"), timeout=30)
    connection.putrequest("GET", path)
    connection.endheaders()
    assert connection.getresponse().status == 404
    connection.close()


def nested(depth: int, key: str) -> bytes:
    return b'{"%s": ' % key.encode() + b'{"not": ' * depth + b"{}" + b"}" * depth + b"}"


@pytest.mark.parametrize("depth", [17, 100, 300, 10_000, 200_000])
def test_deep_filters_are_refused(http, depth):
    kind = {"content-type": "application/json"}
    body = nested(depth, "filter")
    refused = (413,) if len(body) > Limits().filter_bytes else (400, 422)
    assert http.post("/v1/collections/things/count", content=body, headers=kind).status_code in refused
    body = b'{"ids": [1], ' + body[1:]  # of a search it is parsed nevertheless
    assert http.post("/v1/collections/things/search", content=body, headers=kind).status_code in (400, 422)
    assert http.get("/health").status_code == 200


@pytest.mark.parametrize("depth", [33, 300, 100_000])
@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")], ids=["arrays", "objects"])
def test_deep_payloads_and_metadata_are_refused(http, depth, brackets):
    deep = brackets[0] * depth + b"1" + brackets[1] * depth
    kind = {"content-type": "application/json"}
    row = json.dumps(DATA[0].tolist()).encode()
    body = b'{"ids": [1], "vectors": [%s], "payloads": [{"a": %s}]}' % (row, deep)
    assert http.post("/v1/collections/other/upsert", content=body, headers=kind).status_code in (400, 422)
    body = b'{"metadata": {"a": %s}}' % deep
    refused = (413,) if len(body) > Limits().metadata_bytes else (400, 422)
    assert http.put("/v1/collections/other/metadata", content=body, headers=kind).status_code in refused
    assert http.get("/v1/collections/other").json()["metadata"] == {"title": "things"}


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b'"NaN"', b"null", b"1e39"])
def test_numbers_that_are_none_are_refused(http, value):
    kind = {"content-type": "application/json"}
    row = b"[" + b",".join([value] * 8) + b"]"
    for path, body in [
        ("upsert", b'{"ids": [1], "vectors": [%s]}' % row),
        ("search", b'{"vectors": [%s]}' % row),
    ]:
        answer = http.post(f"/v1/collections/other/{path}", content=body, headers=kind)
        assert answer.status_code in (400, 422)
    assert http.post("/v1/collections/other/count", json={}).json() == {"count": 50}


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"1e999"])
def test_payloads_without_nan(http, value):
    row = json.dumps(DATA[0].tolist()).encode()
    body = b'{"ids": [1], "vectors": [%s], "payloads": [{"a": %s}]}' % (row, value)
    answer = http.post(
        "/v1/collections/other/upsert", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code in (400, 422)


def test_packed_nan_is_refused(ask):
    packed = {"shape": [1, 8], "float32": "AADAfwAAwH8AAMB/AADAfwAAwH8AAMB/AADAfwAAwH8="}
    status, problem = ask("search", {"vectors": packed})
    assert status == 422
    assert problem["detail"].startswith("vectors contains NaN or inf (nan at row 0, column 0)")


SQL = [
    "label' OR '1'='1",
    "label'; DROP TABLE items; --",
    'label" OR 1=1 --',
    "$.label",
    "label) OR (1=1",
    "x UNION SELECT id, payload FROM items",
    "other.label",
    "main.items.id",
    "\x00",
]


@pytest.mark.parametrize("text", SQL)
def test_sql_in_filters_is_only_a_name_or_a_value(ask, text):
    for condition in ({text: 1}, {"label": text}, {"label": {"in": [text]}}, {"label": {"gte": text}}):
        assert ask("count", {"filter": condition}) == (200, {"count": 0})
    assert ask("count", {"filter": {"label": {text: 1}}})[0] == 422
    assert ask("count", {}) == (200, {"count": 200})


def test_a_filter_cannot_reach_another_collection(ask):
    """Not even by its name, its ids or an address in place of a name."""
    hidden = {"ids": ["hidden"], "vectors": DATA[:1].tolist(), "payloads": [{"in": "other"}]}
    assert ask("upsert", hidden, "other")[0] == 200
    for condition in (
        {"in": {"eq": "other"}},
        {"collection": "other"},
        {"name": "other"},
        {"../other": "hidden"},
        {"or": [{"in": {"eq": "other"}}, {"id": "hidden"}]},
    ):
        assert ask("count", {"filter": condition}) == (200, {"count": 0})
        _, found = ask("search", {"vectors": DATA[:1].tolist(), "filter": condition})
        assert found["results"] == [{"hits": []}]
    assert ask("get", {"ids": ["hidden"]}) == (200, {"items": [None]})
    ask("delete", {"ids": ["hidden"]}, "other")


def test_answers_are_not_stored_or_guessed(http):
    answer = http.get("/v1/collections")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["server"] == "posh"
