"""Run the commands of README.md in this folder, a fresh clone, as a new user would.

Every block is run, in order, in one shell. In a block of ``console``, what follows ``$ `` is run and other
lines are output; ``sh`` and ``bash`` are run whole; ``python`` is run by the Python that the commands before
have set up. A command that serves is stopped as soon as it answers. The first command that fails ends the run
with its exit code.
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
own_python={shlex.quote(sys.executable)}
ask="import urllib.request as u; u.urlopen('http://127.0.0.1:${{POSH_README_PORT:-8765}}/')"
"""
PRELUDE += """
set -euo pipefail
step() { echo "== README.md line $1: $2"; }
serve() {  # a command that serves, until it answers at its usual address
  (eval "exec $1") & serving=$!
  for ((second = 0; second < 300; ++second)); do
    kill -0 $serving 2>/dev/null || { wait $serving; echo "it ended before it answered"; exit 1; }
    "$own_python" -c "$ask" 2>/dev/null && break
    sleep 1
  done
  ((second < 300)) || { echo "no answer within 5 minutes"; kill $serving; exit 1; }
  pkill -TERM -P $serving || kill -TERM $serving  # make passes the exit code of its child on
  wait $serving
}
run_python() { if [[ -n ${VIRTUAL_ENV:-} ]]; then python -; else .venv/bin/python -; fi; }
"""


class Command(NamedTuple):
    """One command of the shell, or one block of Python, and the line where it begins."""

    line: int
    language: str
    text: str


def commands(readme: str) -> Iterator[Command]:
    """What the blocks of a README say, in order."""
    for block in BLOCK.finditer(readme):
        language, text = block.groups()
        first = readme.count("\n", 0, block.start()) + 2
        if language != "console":
            yield Command(first, language, text)
            continue
        for number, line in enumerate(text.splitlines(), first):
            if line.startswith("$ "):
                yield Command(number, language, line.removeprefix("$ "))


def script(found: Iterator[Command]) -> str:
    """One script of bash that runs them."""
    lines = [PRELUDE]
    for command in found:
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
    """Run README.md of this folder; the exit code is that of the command that failed, or 0."""
    found = list(commands(Path("README.md").read_text()))
    if not found:
        raise SystemExit("README.md: expected blocks with commands, found none")
    return subprocess.run(["bash", "-c", script(iter(found))], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
