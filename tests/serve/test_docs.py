"""What docs/serve.md says is so."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

from posh.serve.folder import Folder
from posh.serve.limits import Limits
from tests.serve.service import running
from tests.serve.test_openapi import OPERATIONS

TEXT = (Path(__file__).parent.parent.parent / "docs" / "serve.md").read_text()


ADDRESS = "http://127.0.0.1:8765"


def test_the_examples_run_one_after_the_other_and_again(tmp_path, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    (command,) = re.findall(r"\$ (curl .*?/search)\n", TEXT, flags=re.DOTALL)
    assert ADDRESS in block
    assert ADDRESS in command
    with running(Folder(tmp_path), token="secret") as address:
        for _ in range(2):
            exec(compile(block.replace(ADDRESS, address), "serve.md", "exec"), {})
            assert capsys.readouterr().out == "500 (3, 5)\n"
            if shutil.which("curl"):
                found = subprocess.check_output(command.replace(ADDRESS, address), shell=True, text=True)
                assert len(json.loads(found)["results"][0]["hits"]) == 3


def test_the_limits_are_those(tmp_path):
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", TEXT, flags=re.MULTILINE))
    assert rows == {name: str(value) for name, value in asdict(Limits()).items()}


def test_all_operations_are_there():
    rows = re.findall(r"^\| `(GET|PUT|POST|DELETE) ([^ `?]+)", TEXT, flags=re.MULTILINE)
    found = {(method.lower(), re.sub(r"^C\b", "/v1/collections/{name}", path)) for method, path in rows}
    assert found == set(OPERATIONS)
