"""Run the commands of README.md in this folder, a fresh clone, as a new user would.

Blocks run in order, in one shell. In a ``console`` block, lines that begin with ``$ `` are commands and other
lines are output. ``sh`` and ``bash`` blocks run as scripts, ``python`` blocks with the Python of the
environment that the commands have created.
A service is stopped as soon as it answers. The first command that fails ends
the run with its exit code.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(r"^```(console|sh|bash|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SERVES = re.compile(r"(make|posh) serve\b")

PRELUDE = f"""
this_python={shlex.quote(sys.executable)}
ask="import urllib.request as u; u.urlopen('http://127.0.0.1:${{POSH_README_PORT:-8765}}/')"
"""
PRELUDE += """
set -euo pipefail
step() { echo "== README.md line $1: $2"; }
serve() {  # runs a service until it answers at its default address
  (eval "exec $1") & serving=$!
  for ((second = 0; second < 300; ++second)); do
    kill -0 $serving 2>/dev/null || { wait $serving; echo "it exited before it answered"; exit 1; }
    "$this_python" -c "$ask" 2>/dev/null && break
    sleep 1
  done
  ((second < 300)) || { echo "no answer within 5 minutes"; kill $serving; exit 1; }
  pkill -TERM -P $serving || kill -TERM $serving  # make passes the exit code of its child on
  wait $serving
}
run_python() { if [[ -n ${VIRTUAL_ENV:-} ]]; then python -; else .venv/bin/python -; fi; }
"""


class Command(NamedTuple):
    """A command of the shell or a block of Python, and the line where it begins."""

    line: int
    language: str
    text: str


def parse_commands(readme: str) -> Iterator[Command]:
    """Yield the commands of a README in order."""
    for block in BLOCK.finditer(readme):
        language, text = block.groups()
        first = readme.count("\n", 0, block.start()) + 2
        if language != "console":
            yield Command(first, language, text)
            continue
        for number, line in enumerate(text.splitlines(), first):
            if line.startswith("$ "):
                yield Command(number, language, line.removeprefix("$ "))


def write_script(commands: Iterator[Command]) -> str:
    """Return a bash script that runs the commands."""
    lines = [PRELUDE]
    for command in commands:
        title = command.text.strip().splitlines()[0]
        lines.append(f"step {command.line} {shlex.quote(title)}")
        if command.language == "python":
            lines.append(f"run_python <<'END OF BLOCK'\n{command.text}\nEND OF BLOCK")
        elif SERVES.match(title):
            lines.append(f"serve {shlex.quote(command.text)}")
        else:
            lines.append(command.text)
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run README.md of this folder and return the exit code of the command that failed, or 0."""
    commands = list(parse_commands(Path("README.md").read_text()))
    if not commands:
        raise SystemExit("README.md: expected blocks with commands, found none")
    return subprocess.run(["bash", "-c", write_script(iter(commands))], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
