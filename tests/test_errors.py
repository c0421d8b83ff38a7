"""The pip command in the error for a missing extra."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from posh.errors import MissingExtraError


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "a clone"
    folder.mkdir()
    return folder


def message(monkeypatch: pytest.MonkeyPatch, source: object, pip: Path | None) -> str:
    """The error in an environment that was installed from ``source``, where ``pip`` is on the path."""
    text = json.dumps(source) if source else None
    monkeypatch.setattr(metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: text))
    monkeypatch.setattr("shutil.which", lambda _: pip and str(pip))
    return str(MissingExtraError("httpx", "client", "posh.client"))


OURS = Path(sys.executable).parent / "pip"


def test_a_package_is_installed_by_its_name(monkeypatch, clone):
    wheel = {"url": (clone / "posh_ann.whl").as_uri(), "archive_info": {}}
    for source in (None, wheel):
        text = message(monkeypatch, source, OURS)
        assert text == "posh.client needs httpx: pip install 'posh-ann[client]'"


def test_an_editable_installation_is_extended_from_its_clone(monkeypatch, clone):
    source = {"url": clone.as_uri(), "dir_info": {"editable": True}}
    assert message(monkeypatch, source, OURS).endswith(f": pip install --editable '{clone}[client]'")
    monkeypatch.chdir(clone)
    assert message(monkeypatch, source, OURS).endswith(": pip install --editable '.[client]'")


@pytest.mark.parametrize("pip", [None, Path("/usr/bin/pip")], ids=["no pip", "another pip"])
def test_without_this_environments_pip_its_python_is_named(monkeypatch, pip):
    assert message(monkeypatch, None, pip).endswith(f": {sys.executable} -m pip install 'posh-ann[client]'")
