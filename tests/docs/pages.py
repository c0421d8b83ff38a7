"""Run the code blocks of a page, one after the other, as a reader would.

- ``python`` blocks share their names, as in one session.
- ``console`` blocks: each line that begins with ``$`` is a command; what follows is what it prints.
- A ``text`` block right after a ``python`` block is what that prints.
- In what is printed, … stands for anything.
- If ``is_quick``, commands of ``posh`` run in this process: a new one imports for a second or two.
- ``posh serve`` runs until the end of the page, at a free port in place of 8765.
- ``<!-- not run: REASON -->`` before a block leaves it out, with the output that follows it.
  ``<!-- needs: posh NAME -->`` does so if there is no such command, ``<!-- needs: MODULE -->`` if a library
  is not installed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from posh import cli

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(
    r"(?:^<!-- (not run|needs): ([^>]*?) -->\n)?^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
RUN = ("python", "console", "text")
SHOWN_ONLY = ("", "caddy", "nginx", "ini")  # tests/docs/test_proxy.py tries the first two
ADDRESS = "127.0.0.1:8765"


class Block(NamedTuple):
    """A code block of a page."""

    language: str
    text: str
    line: int
    mark: str = ""
    reason: str = ""


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    found = []
    for match in BLOCK.finditer(page):
        mark, reason, language, text = match.groups(default="")
        found.append(Block(language, text, page[: match.start(4)].count("\n"), mark, reason))
    return found


def is_run(block: Block) -> bool:
    """Whether a reader could run a block here."""
    if block.mark == "needs":
        program, _, command = block.reason.partition(" ")
        return command in cli._COMMANDS if command else find_spec(program) is not None
    return not block.mark


class Session:
    """Runs the blocks of one page in a folder; :meth:`close` ends what it has started."""

    def __init__(self, name: str, folder: Path, *, is_quick: bool = False) -> None:
        self.name, self.folder, self.is_quick = name, folder, is_quick
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.missing: set[str] = set()  # programs and libraries that this machine does not have
        self._address = ADDRESS
        self._service: subprocess.Popen[str] | None = None

    def run(self, page: str) -> None:
        """Run all blocks that can be run, and compare what they print."""
        printed: str | None = ""  # None: by a block that cannot be run here
        for block in blocks(page):
            if not is_run(block):
                printed = None
                if block.mark == "needs":
                    self.missing.add(block.reason)
            elif block.language == "python":
                printed = self._python(block)
            elif block.language == "text" and printed is not None:
                self._compare(block, block.text, printed)
            elif block.language == "console":
                self._console(block)

    def _python(self, block: Block) -> str:
        source = "\n" * block.line + block.text.replace(ADDRESS, self._address)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(source, self.name, "exec", dont_inherit=True), self.names)
        return out.getvalue()

    def _console(self, block: Block) -> None:
        for command, expected in commands(block.text):
            if " posh serve " in f" {command}":
                self._serve(block, command, expected)
                continue
            program = next(word for word in command.split() if "=" not in word)
            if shutil.which(program, path=self._environment()["PATH"]) is None:
                self.missing.add(program)
                continue
            if self.is_quick and (words := plain_words(command)) and program == "posh":
                printed = self._here(words[1:], f"{self.name}, line {block.line}: {command}")
                self._compare(block, expected or "…", printed)
                continue
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command.replace(ADDRESS, self._address)],
                cwd=self.folder,
                env=self._environment(),
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, (
                f"{self.name}, line {block.line}: {command}\n{done.stdout}{done.stderr}"
            )
            if expected:
                self._compare(block, expected, done.stdout)

    def _here(self, arguments: list[str], where: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert cli.main([word.replace(ADDRESS, self._address) for word in arguments]) == 0, where
        return out.getvalue()

    def _serve(self, block: Block, command: str, expected: str) -> None:
        assert self._service is None, "one service for each page"
        self._service = subprocess.Popen(
            ["bash", "-c", f"exec env {command} --port 0"],
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self._service.stdout.readline()  # ends without a line if the service does
        self._address = re.search(r"127\.0\.0\.1:\d+", line)[0]
        self._compare(block, expected, line.replace(self._address, ADDRESS))

    def _compare(self, block: Block, expected: str, printed: str) -> None:
        pattern = ".*".join(map(re.escape, expected.strip().split("…")))
        where = f"{self.name}, line {block.line}"
        assert re.fullmatch(pattern, printed.strip(), flags=re.DOTALL), f"{where} prints\n{printed}"

    def _environment(self) -> dict[str, str]:
        """The commands of this installation first; a page sets its own token."""
        own = {name: value for name, value in os.environ.items() if name != "POSH_TOKEN"}
        return own | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def close(self) -> None:
        """Stop the service, as Ctrl-C does, and look at its exit code."""
        if self._service is not None:
            self._service.terminate()
            assert self._service.wait(30) == 0
            self._service.stdout.close()


def plain_words(command: str) -> list[str]:
    """The words of a command that needs no shell; else none."""
    words = [] if re.search(r"[|&;<>$`*~]", command) else shlex.split(command)
    return words if words and "=" not in words[0] else []


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that follows it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        first, _, rest = part.partition("\n")
        while first.endswith("\\"):
            more, _, rest = rest.partition("\n")
            first = f"{first[:-1]} {more.strip()}"
        yield first, rest
