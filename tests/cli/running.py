"""How the tests run a command in this process, and what they look at."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from posh.cli import main


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert isinstance(values, dict)
    return values


def help_of(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    return capsys.readouterr().out


def fails_in_one_line(
    capsys: pytest.CaptureFixture[str], code: int, arguments: list[str], message: str
) -> None:
    assert main(arguments) == code
    assert message in one_error(capsys)


def one_error(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"posh: error: .+\n", captured.err)
    return captured.err
