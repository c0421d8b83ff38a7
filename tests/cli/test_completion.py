"""``posh completion``: the script in a real shell."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from posh.cli import main


@pytest.fixture(scope="module")
def scripts():
    import contextlib
    import io

    found = {}
    for shell in ("bash", "zsh", "fish"):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert main(["completion", shell]) == 0
        found[shell] = out.getvalue()
    return found


def completed(script: str, line: str) -> list[str]:
    """What bash would offer at the end of a line."""
    words = line.split(" ")
    calls = f"COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}; _posh"
    calls += '; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{calls}"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("posh imp", ["import"]),
        ("posh ex", ["export"]),
        ("posh import a.npy c --num", ["--number-rows"]),
        ("posh import --metric ", ["euclidean", "cosine", "dot"]),
        ("posh import --metric d", ["dot"]),
        ("posh import a.n", []),  # bash completes the names of files
        ("posh import --id ", []),
        ("posh data ", ["list", "fetch"]),
        ("posh data list --j", ["--json"]),
        ("posh completion z", ["zsh"]),
        ("posh query c --li", ["--like"]),
    ],
)
def test_bash(line, expected, scripts):
    assert sorted(completed(scripts["bash"], line)) == sorted(expected)


def test_every_command_is_offered(scripts):
    assert {"fit", "import", "query", "serve", "completion"} <= set(completed(scripts["bash"], "posh "))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_script(shell, scripts):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([program, "-c", scripts[shell]], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_fish_knows_commands_and_options(scripts):
    lines = scripts["fish"].splitlines()
    begin = "complete -c posh -n '__fish_use_subcommand' -f -a import -d 'bring vectors"
    assert any(line.startswith(begin) for line in lines)
    begin = (
        "complete -c posh -n '__fish_seen_subcommand_from import' -l metric -x -a 'cosine euclidean dot' -d"
    )
    assert any(line.startswith(begin) for line in lines)
