"""The rules of the house that a machine can check."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

import posh
import posh_reproduction
from posh.hashers.base import _CLASSES

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "posh"
REPRODUCTION = ROOT / "reproduction" / "src" / "posh_reproduction"

# Each module may import those to the left of it (and its own kind), never to the right.
LAYERS = [
    ["errors", "_native", "_plugins", "_progress", "_system"],
    ["kernels"],
    ["_arrays", "_files", "_matrix", "_validate", "model_files"],
    ["_threads", "_bitsliced", "_folder"],
    ["datasets", "vector_files"],
    ["codes", "metrics", "preprocess"],
    ["hashers"],
    ["decode", "_neighbours"],
    ["index"],
    ["collection"],
    ["milvus"],
    ["_open"],
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
TOP = ("batch", "bench", "cli", "langchain", "neighbors", "serve")  # the top of the house may use everything
BELOW = [path for path in SOURCES if path.relative_to(SOURCE).with_suffix("").parts[0] not in TOP]


@pytest.mark.parametrize("path", BELOW, ids=lambda path: str(path.relative_to(SOURCE)))
def test_dependencies_point_one_way(path):
    own = path.relative_to(SOURCE).with_suffix("").parts[0]
    for name in imported(path) - {own}:
        assert layer(name) <= layer(own), f"{own} must not know {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_core_does_not_know_the_reproduction(path):
    assert "posh_reproduction" not in path.read_text()


def test_public_names_are_complete_and_documented():
    """The names for type checkers, the table of modules and ``__all__`` say the same."""
    (block,) = [
        node for node in ast.parse((SOURCE / "__init__.py").read_text()).body if isinstance(node, ast.If)
    ]
    checked = {
        alias.name: f"posh.{alias.name}" if node.module == "posh" else node.module
        for node in block.body
        for alias in node.names
    }
    assert checked == posh._HOMES
    assert sorted(checked) == sorted(posh.__all__)
    assert set(posh.__all__) <= set(dir(posh))
    for name in posh.__all__:
        assert getattr(posh, name).__doc__, name
    with pytest.raises(AttributeError, match="module 'posh' has no attribute 'nope'"):
        posh.nope  # noqa: B018


MODULES = [
    module.name
    for package in (posh, posh_reproduction)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.endswith("_native")
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_benchmarks_can_be_imported(path):
    if "import faiss" in path.read_text():
        pytest.importorskip("faiss", reason="the rival is not installed: pip install 'posh-ann[bench]'")
    importlib.import_module(f"benchmarks.{path.stem}")


# tests/docs runs the pages of the site.
@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md"])
def test_python_in_the_documents_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), flags=re.DOTALL):
        exec(compile(block, document, "exec"), {})


@pytest.mark.parametrize(
    "document",
    [path for folder in (".", "docs", "reproduction") for path in sorted((ROOT / folder).glob("*.md"))]
    + sorted((ROOT / "docs" / "reference").glob("*.md")),
    ids=str,
)
def test_links_lead_somewhere_and_nothing_is_left_to_fill_in(document):
    text = document.read_text()
    assert "@TABLE@" not in text
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (document.parent / target).exists(), target


def test_the_versions_of_both_distributions_agree():
    core, other = (
        tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"]
        for path in (".", "reproduction")
    )
    assert core["version"] == other["version"]
    assert f"posh-ann=={core['version']}" in other["dependencies"]
    assert core["optional-dependencies"]["reproduction"] == [f"posh-reproduction=={other['version']}"]


def test_every_hasher_is_public():
    own = [cls for cls in _CLASSES.values() if cls.__module__.startswith("posh.")]
    assert {cls.__name__ for cls in own} <= set(posh.__all__)


# Words that once named the same thing as a word of the glossary in ARCHITECTURE.md.
RETIRED = {"Candidates", "Directory", "Found", "Given", "Growing", "Moment", "Nearest", "Options", "Plan"}
RETIRED |= {"State", "View", "directory", "handed_over", "knowledge", "learned_from", "learned_state"}
RETIRED |= {"names_of", "one_moment", "outgrown", "taught", "understood", "unparse", "view"}
RETIRED |= {"Gate", "Lane", "Memory", "Served", "Share", "Shelf", "heard", "sweep"}  # of the service
RETIRED_IN = {  # these words have another meaning in other packages
    "collection": {"building", "changes", "engine", "Engine", "given", "kept", "Known", "learned", "moment"}
    | {"place", "Place", "shown", "storage", "Stored", "sums", "whole"},
}


def names_in(path: Path) -> set[str]:
    """The names that a module defines: its own, classes, functions, parameters, attributes, variables."""
    found = {path.stem}
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found.add(node.name)
            case ast.arg():
                found.add(node.arg)
            case ast.Attribute(ctx=ast.Store()):
                found.add(node.attr)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
    return {name.lstrip("_") for name in found}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_retired_words_do_not_come_back_as_names(path):
    package = path.relative_to(SOURCE).parts[0]
    retired = RETIRED | RETIRED_IN.get(package, set())
    assert names_in(path) & retired == set()


def test_the_glossary_is_short():
    rows = re.findall(r"^\| ([a-z, ]+) \|", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.MULTILINE)
    words = [word for row in rows[1:] for word in row.split(", ")]
    assert rows[0] == "word"
    assert 20 <= len(words) == len(set(words)) <= 25
