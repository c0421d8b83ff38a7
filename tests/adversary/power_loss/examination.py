"""Judging all states of a run, in this process or in several."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tests.adversary.power_loss.crashes import Crash, crashes
from tests.adversary.power_loss.disk import State
from tests.adversary.power_loss.recording import read
from tests.adversary.power_loss.subjects import Subject, subject

_MEMORY = Path("/dev/shm")


@dataclass
class Findings:
    """How many states were judged, and for each bad one where, what and why."""

    states: int = 0
    bad: list[str] = field(default_factory=list)

    def __add__(self, other: Findings) -> Findings:
        return Findings(self.states + other.states, self.bad + other.bad)

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Findings:
        """Those that a program has saved."""
        return cls(**json.loads(file.read_text()))

    def __str__(self) -> str:
        kinds = Counter(line.split(": ", 1)[1] for line in self.bad)
        examples = [f"  {n} times: {kind}" for kind, n in kinds.most_common(10)]
        return "\n".join([f"{len(self.bad)} bad states of {self.states}", *examples, *self.bad[:5]])


def examined(tested: Subject, found: Iterable[Crash]) -> Findings:
    """Write each state into a folder and have it judged."""
    findings = Findings()
    with scratch_folder() as folder:
        root = folder / "root"
        for crash in found:
            write(root, crash.state)
            findings.states += 1
            try:
                tested.judge(root, crash.acknowledged)
            except Exception as error:
                where = (
                    f"after operation {crash.after}, {crash.acknowledged} steps acknowledged, {crash.what}"
                )
                findings.bad.append(f"{where}: {described(error, root)}")
            shutil.rmtree(root)
    return findings


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, in memory if that is possible."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="power-loss-", dir=place) as folder:
        yield Path(folder)


def described(error: Exception, *roots: Path) -> str:
    """An error on one line, without what differs from run to run."""
    line = (f"{type(error).__name__} {error}".splitlines() or [""])[0]
    for root in roots:
        line = line.replace(str(root), "")
    return re.sub("[0-9a-f]{32}", "…", line)


def write(root: Path, state: State) -> None:
    """Make the files and folders of a state, parents before what is in them."""
    root.mkdir()
    for path, content in sorted(state.items()):
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)


def examined_in_processes(name: str, steps: int, log: Path, processes: int, **options: Any) -> Findings:
    """The same for a recorded run, each process with its share of the states."""
    shares = [(name, steps, log, number, processes, options) for number in range(processes)]
    context = multiprocessing.get_context("spawn")  # threads of BLAS do not survive a fork
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        return sum(pool.map(_share, shares), Findings())


def _share(arguments: tuple[str, int, Path, int, int, dict[str, Any]]) -> Findings:
    name, steps, log, number, processes, options = arguments
    states: Iterator[Crash] = crashes(list(read(log)), **options)
    return examined(subject(name, steps), islice(states, number, None, processes))
