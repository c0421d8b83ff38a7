"""The description, and whether the service does what it says."""

from __future__ import annotations

import itertools
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

import posh
from posh.client import Client
from posh.serve.capacity import Limits
from posh.serve.sources import Folder
from tests.conftest import CASES
from tests.serve.service import running

TOKEN = "secret"
OPERATIONS = [
    ("get", "/health"),
    ("get", "/metrics"),
    ("get", "/v1/collections"),
    ("post", "/v1/read"),
    ("put", "/v1/collections/{name}"),
    ("get", "/v1/collections/{name}"),
    ("delete", "/v1/collections/{name}"),
    ("put", "/v1/collections/{name}/metadata"),
    ("post", "/v1/collections/{name}/compact"),
    ("post", "/v1/collections/{name}/backup"),
    ("put", "/v1/collections/{name}/restore"),
    ("post", "/v1/collections/{name}/fit"),
    ("delete", "/v1/collections/{name}/fit"),
    ("get", "/v1/collections/{name}/hasher"),
    ("put", "/v1/collections/{name}/hasher"),
    ("post", "/v1/collections/{name}/reindex"),
    ("put", "/v1/collections/{name}/text"),
    ("post", "/v1/collections/{name}/calibrate"),
    ("get", "/v1/collections/{name}/report"),
    ("post", "/v1/collections/{name}/sample"),
    ("get", "/v1/collections/{name}/fields"),
    ("get", "/v1/collections/{name}/map"),
    ("post", "/v1/collections/{name}/upsert"),
    ("post", "/v1/collections/{name}/delete"),
    ("post", "/v1/collections/{name}/payloads"),
    ("post", "/v1/collections/{name}/get"),
    ("post", "/v1/collections/{name}/items"),
    ("post", "/v1/collections/{name}/count"),
    ("post", "/v1/collections/{name}/search"),
    ("post", "/v1/collections/{name}/search_radius"),
]
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.allow_header_conformance,
]
NARROW = np.random.default_rng(0).normal(size=(40, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Embedded collections of one column, so that vectors at random often fit."""
    root = tmp_path_factory.mktemp("served")
    folder = Folder(root / "collections", backups=root / "backups")
    limits = Limits(n_bits=64, k=50, items=100)
    with running(folder, limits=limits, token=TOKEN) as address, Client(address, TOKEN) as client:
        client.create("sparse", posh.FruitFly(16, 2, random_state=0).fit(NARROW)).upsert(
            list(range(40)), NARROW, [{"label": i % 3} for i in range(40)]
        )
        client.create("dense", posh.LSH(8, random_state=0).fit(NARROW)).upsert(["a", "b"], NARROW[:2])
        client.create("metric", metric="euclidean", recall=0.9).upsert(list(range(40)), NARROW)
        client.create("empty")
        yield address


@pytest.fixture(scope="module")
def api(address):
    return schemathesis.openapi.from_url(f"{address}/openapi.json")


def test_every_operation_is_described(http):
    document = http.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    described = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert described == set(OPERATIONS)
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"]
            assert ("security" in operation) == (path != "/health")


def test_limits_are_described(http):
    schemas = http.get("/openapi.json").json()["components"]["schemas"]
    assert schemas["Search"]["properties"]["k"]["maximum"] == 50
    assert schemas["Get"]["properties"]["ids"]["maxItems"] == 100
    assert {"type": "number", "minimum": 1, "maximum": 100.0} in schemas["Search"]["properties"][
        "oversample"
    ]["anyOf"]
    rows = schemas["Upsert"]["properties"]["vectors"]["anyOf"][0]
    assert rows["maxItems"] == 100
    assert "x-limit" not in str(schemas)


def test_every_body_has_an_example_that_is_accepted(http):
    document = http.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    tried = 0
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body is None:
                continue
            name = body["schema"]["$ref"].rpartition("/")[2]
            for example in schemas[name]["examples"]:
                answer = http.request(
                    method,
                    path.format(name="example"),
                    json=example,
                    headers={"authorization": f"Bearer {TOKEN}"},
                )
                assert answer.status_code in (201, 404, 422)  # the collection is made by one of them
                tried += 1
    assert tried == 17


RIGHT = [(*operation, GenerationMode.POSITIVE) for operation in OPERATIONS]
WRONG = [(*operation, GenerationMode.NEGATIVE) for operation in OPERATIONS if operation[1] != "/health"]


@pytest.mark.parametrize(("method", "path", "mode"), RIGHT + WRONG)
def test_nothing_at_random_breaks_it(api, method, path, mode):
    """No answer is a failure, and all of them are as described."""
    names = itertools.cycle(["sparse", "dense", "empty", "example"])

    @settings(max_examples=max(5, CASES // 4), deadline=None, suppress_health_check=list(HealthCheck))
    @given(api[path][method].as_strategy(generation_mode=mode))
    def requests(case):
        if case.path_parameters and method != "delete":
            case.path_parameters["name"] = next(names)
        case.call_and_validate(headers={"authorization": f"Bearer {TOKEN}"}, checks=CHECKS, timeout=60)

    requests()


TEXT = (Path(__file__).parent.parent.parent / "docs" / "serve.md").read_text()


def test_the_documentation_has_the_limits():
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", TEXT, flags=re.MULTILINE))
    assert rows == {name: str(value) for name, value in asdict(Limits()).items()}


def test_the_documentation_has_all_operations():
    rows = re.findall(r"^\| `(GET|PUT|POST|DELETE) ([^ `?]+)", TEXT, flags=re.MULTILINE)
    found = {(method.lower(), re.sub(r"^C\b", "/v1/collections/{name}", path)) for method, path in rows}
    assert found == set(OPERATIONS)
