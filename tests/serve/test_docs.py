"""What docs/serve.md says is so."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

from posh.serve.capacity import Limits
from tests.serve.test_openapi import OPERATIONS

TEXT = (Path(__file__).parent.parent.parent / "docs" / "serve.md").read_text()


def test_the_limits_are_those(tmp_path):
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", TEXT, flags=re.MULTILINE))
    assert rows == {name: str(value) for name, value in asdict(Limits()).items()}


def test_all_operations_are_there():
    rows = re.findall(r"^\| `(GET|PUT|POST|DELETE) ([^ `?]+)", TEXT, flags=re.MULTILINE)
    found = {(method.lower(), re.sub(r"^C\b", "/v1/collections/{name}", path)) for method, path in rows}
    assert found == set(OPERATIONS)
