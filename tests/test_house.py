"""Checks of the whole project: public names, examples, documents, versions."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

import posh
import posh_reproduction
from posh import errors
from posh.hashers.base import _CLASSES

ROOT = Path(__file__).parent.parent


def test_public_names_are_documented():
    assert set(posh.__all__) <= set(dir(posh))
    for name in posh.__all__:
        assert getattr(posh, name).__doc__, name
    with pytest.raises(AttributeError, match="nope"):
        posh.nope  # noqa: B018


def test_every_error_is_public():
    assert set(errors.__all__) <= set(posh.__all__)


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
    for rival in ("faiss", "kannolo"):
        if f"import {rival}" in path.read_text():
            pytest.importorskip(rival, reason="the rival is not installed: pip install 'posh-ann[bench]'")
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
    ours = [cls for cls in _CLASSES.values() if cls.__module__.startswith("posh.")]
    assert {cls.__name__ for cls in ours} <= set(posh.__all__)
