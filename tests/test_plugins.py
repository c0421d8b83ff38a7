"""What other distributions add, and what the core says without them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

import pytest

from posh import _plugins, datasets
from posh.cli import main

GET_IT = "pip install posh-reproduction, or in a clone: make"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The core without other distributions."""
    monkeypatch.setattr(metadata, "entry_points", lambda group: ())
    _plugins.plugins.cache_clear()
    yield
    _plugins.plugins.cache_clear()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("command", ["reproduce", "demo"])
def test_a_missing_command_says_in_one_line_how_to_get_it(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"posh: error: unknown command '{command}'; choose from data, fit")
    assert GET_IT in line


@pytest.mark.usefixtures("alone")
def test_the_help_of_bench_says_how_to_get_the_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    assert GET_IT in capsys.readouterr().out
    assert main(["bench", "ann"]) == 2
    assert "see 'posh bench --help'" in capsys.readouterr().err


@pytest.mark.usefixtures("alone")
def test_a_missing_data_set_says_how_to_get_it() -> None:
    assert datasets.names() == ("digits", "mnist", "glove-100")
    with pytest.raises(ValueError, match=f"unknown data set 'cifar10-gist'; choose from digits.*{GET_IT}"):
        datasets.load("cifar10-gist")


def test_with_the_other_package_an_unknown_name_is_just_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nope"]) == 2
    error = capsys.readouterr().err
    assert "unknown command 'nope'; choose from data, fit" in error
    assert "reproduce" in error
    assert "pip install" not in error
    with pytest.raises(ValueError, match=r"choose from digits, .* places205$"):
        datasets.load("nope")


def test_names_of_the_core_do_not_search_for_others() -> None:
    code = """
import sys
from importlib import metadata
metadata.entry_points = None  # a search would fail
from posh import datasets
from posh.cli import main
datasets.load("digits")
sys.exit(main(["data", "fetch", "digits"]))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    for name in ("data", "serve", "bench", "demo", "reproduce"):
        assert f"    {name}" in shown
