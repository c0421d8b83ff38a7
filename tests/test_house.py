"""The rules of the house that a machine can check."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
from inspect import ismodule
from pathlib import Path

import pytest

import posh

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "posh"

# Each module may import those to the left of it (and its own kind), never to the right.
LAYERS = [
    ["errors", "_native", "_progress"],
    ["kernels"],
    ["_arrays", "_validate", "store"],
    ["_threads", "_bitsliced", "_folder"],
    ["datasets"],
    ["codes", "metrics", "preprocess"],
    ["hashers"],
    ["decode"],
    ["index"],
    ["collection"],
]


def layer(module: str) -> int:
    (found,) = [i for i, names in enumerate(LAYERS) if module in names]
    return found


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "posh":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("posh."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("posh.")}
    return found


SOURCES = [path for path in sorted(SOURCE.rglob("*.py")) if path.parent != SOURCE or path.stem != "__init__"]
TOP = ("bench", "cli", "demo", "experiments", "serve")  # the top of the house may use everything
BELOW = [path for path in SOURCES if path.relative_to(SOURCE).with_suffix("").parts[0] not in TOP]


@pytest.mark.parametrize("path", BELOW, ids=lambda path: str(path.relative_to(SOURCE)))
def test_dependencies_point_one_way(path):
    own = path.relative_to(SOURCE).with_suffix("").parts[0]
    for name in imported(path) - {own}:
        assert layer(name) <= layer(own), f"{own} must not know {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_small(path):
    assert len(path.read_text().splitlines()) <= 300


def test_public_names_are_complete_and_documented():
    values = {name for name, value in vars(posh).items() if not name.startswith("_") and not ismodule(value)}
    modules = {name for name in posh.__all__ if ismodule(getattr(posh, name))}
    assert set(posh.__all__) == values | modules
    assert len(posh.__all__) == len(set(posh.__all__))
    for name in posh.__all__:
        assert getattr(posh, name).__doc__, name


MODULES = [m.name for m in pkgutil.walk_packages(posh.__path__, "posh.") if not m.name.endswith("_native")]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md", "docs/collections.md"])
def test_python_in_the_documents_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), flags=re.DOTALL)
    for block in blocks:
        exec(compile(block, document, "exec"), {})


@pytest.mark.parametrize(
    "document", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md")), ids=str
)
def test_links_lead_somewhere_and_nothing_is_left_to_fill_in(document):
    text = document.read_text()
    assert "@TABLE@" not in text
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (document.parent / target).exists(), target


def test_every_hasher_is_public():
    own = [cls for cls in posh.hashers.base._CLASSES.values() if cls.__module__.startswith("posh.")]
    assert {cls.__name__ for cls in own} <= set(posh.__all__)
