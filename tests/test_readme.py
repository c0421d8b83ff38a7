"""``.ci/readme.py`` runs the blocks of a README, in order, in one shell."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / ".ci" / "readme.py"
_spec = importlib.util.spec_from_file_location("readme", SCRIPT)
readme = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(readme)


def run(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "README.md").write_text(text)
    (folder / ".venv/bin").mkdir(parents=True, exist_ok=True)
    if not (folder / ".venv/bin/python").exists():
        (folder / ".venv/bin/python").symlink_to(sys.executable)
    path = f"{folder}:/usr/local/bin:/usr/bin:/bin"
    return subprocess.run(
        [sys.executable, SCRIPT],
        cwd=folder,
        env={"PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_blocks_run_in_order_and_share_a_shell(tmp_path):
    done = run(
        tmp_path,
        "# A\n\n```console\n$ export WORD=one  # why\n$ mkdir sub && cd sub\noutput, which is not run\n```\n"
        "```json\n{}\n```\n\n```sh\necho $WORD > word\ncd ..\n```\n"
        "```python\nfrom pathlib import Path\n\nprint('read', Path('sub/word').read_text())\n```\n",
    )
    assert done.returncode == 0, done.stderr
    assert "read one" in done.stdout
    assert "== README.md line 4: export WORD=one" in done.stdout
    assert "== README.md line 13: echo $WORD" in done.stdout


@pytest.mark.parametrize(
    "block",
    ["```console\n$ false\n```", "```sh\nfalse | cat\n```", "```python\nraise SystemExit(3)\n```"],
    ids=["console", "a pipe", "python"],
)
def test_a_failure_ends_the_run(block, tmp_path):
    done = run(tmp_path, f"{block}\n\n```console\n$ echo reached\n```\n")
    assert done.returncode != 0
    assert "reached" not in done.stdout.replace("echo reached", "")


SERVER = """#!{python}
import http.server, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))
if sys.argv[1:] == ["serve", "nothing"]:
    sys.exit(0)
http.server.HTTPServer(("127.0.0.1", {port}), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.mark.parametrize(
    ("folder", "code", "expected"), [("some", 0, 0), ("some", 4, 4), ("nothing", 0, 1)],
    ids=["stops well", "stops badly", "exits immediately"],
)  # fmt: skip
def test_a_service_is_stopped_when_it_answers(folder, code, expected, tmp_path):
    with socket.socket() as kept:  # bound but not listening, so that no other process gets the port
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port = kept.getsockname()[1]
        (tmp_path / "posh").write_text(SERVER.format(python=sys.executable, port=port, code=code))
        (tmp_path / "posh").chmod(0o755)
        text = f"```console\n$ posh serve {folder}  # Ctrl-C stops it\n$ echo after\n```\n"
        assert run(tmp_path, text, POSH_README_PORT=str(port)).returncode == expected


def test_a_readme_without_commands_is_an_error(tmp_path):
    assert run(tmp_path, "# Nothing\n").returncode != 0


def test_ours_has_commands_of_both_kinds():
    found = list(readme.parse_commands((ROOT / "README.md").read_text()))
    assert {"console", "python"} <= {command.language for command in found}
    assert all(any(command.text.startswith(name) for command in found) for name in ("make demo", "make test"))
