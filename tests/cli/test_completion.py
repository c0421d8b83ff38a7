"""``posh --print-completion``: the script in a real shell."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from posh.cli import main
from posh.errors import find_install_command
from tests.cli.running import one_error

pytest.importorskip("shtab", reason="needs the extra 'completion'")


def print_script(shell, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--print-completion", shell])
    return capsys.readouterr().out


def complete(script: str, line: str) -> set[str]:
    """Return what bash offers at the end of a line."""
    words = line.split(" ")
    function = re.search(r"complete .*-F (\w+) posh", script)[1]
    calls = f"COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}"
    calls += f"; {function} posh {words[-1]!r}; " + 'echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{calls}"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash(capsys):
    script = print_script("bash", capsys)
    assert {"fit", "import", "query", "serve", "info", "bench"} <= complete(script, "posh ")
    assert complete(script, "posh imp") == {"import"}
    assert complete(script, "posh data ") == {"list", "fetch"}
    assert complete(script, "posh data list --j") == {"--json"}
    assert complete(script, "posh import a.npy c --num") == {"--number-rows"}
    assert complete(script, "posh import --metric d") == {"dot"}


@pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh"])
def test_other_shells_read_their_script(shell, capsys):
    program = shutil.which(shell)
    script = print_script(shell, capsys)
    assert "posh" in script
    if program is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([program, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_an_unknown_shell_and_a_missing_library(capsys, monkeypatch):
    monkeypatch.delenv("POSH_DEBUG", raising=False)
    assert main(["--print-completion", "powershell"]) == 2
    assert "choose from" in one_error(capsys)
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["--print-completion=bash"]) == 1
    line = f"posh --print-completion needs shtab: {find_install_command('completion')}"
    assert line in one_error(capsys)
