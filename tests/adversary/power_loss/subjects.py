"""What is put to the test: a program that writes files step by step, and what must be found after a crash.

``python -m tests.adversary.power_loss.subjects FOLDER MODULE:CLASS STEPS`` runs the program of a subject.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.adversary.power_loss.recording import acknowledge, kill_at_sync


class Subject(ABC):
    """A program of ``steps`` steps that are alike in every process; doing one twice is the same as once."""

    errors: type[OSError] = OSError  # raised by a step if the disk fails; the message names the path

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def write(self, root: Path) -> None:
        """Do all steps and acknowledge each; those of the first quarter are killed before every sync.

        What a killed process has left is not synced, but the next one finds it there.
        """
        n_killed = self.steps // 4
        for number in range(n_killed):
            sync = 1
            while not self._survived(root, number, sync):
                sync += 1
        self.go_on(root, n_killed)

    def _survived(self, root: Path, number: int, sync: int) -> bool:
        """Do a step in a child that is killed before its sync with this number."""
        child = os.fork()
        if child == 0:
            try:
                kill_at_sync(sync)
                self.step(root, number)
                kill_at_sync(0)
                acknowledge(number)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, -signal.SIGKILL), f"step {number} failed in a child with status {status}"
        return status == 0

    def go_on(self, root: Path, first: int) -> None:
        """Do the steps from the number ``first`` on, in one process."""
        for number in range(first, self.steps):
            self.step(root, number)
            acknowledge(number)

    def prepare(self, root: Path, number: int) -> None:
        """Do the steps before this one, in a new folder."""
        root.mkdir()
        for before in range(number):
            self.step(root, before)

    @abstractmethod
    def step(self, root: Path, number: int) -> None:
        """Do a step, whatever an interrupted process has left of it."""

    @abstractmethod
    def judge(self, root: Path, acknowledged: int) -> None:
        """Raise if a folder is not what may be left when so many steps were acknowledged; may change it."""


def subject(name: str, steps: int) -> Subject:
    """The subject called ``module:class``, a module of this package."""
    module, class_name = name.split(":")
    found = getattr(importlib.import_module(f"tests.adversary.power_loss.{module}"), class_name)(steps)
    assert isinstance(found, Subject)
    return found


def parsed(cases: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
    """Names of subjects, and numbers: ``module:class,4,2``."""
    for case in cases:
        name, *numbers = case.split(",")
        yield name, [int(number) for number in numbers]


def main(root: str, name: str, steps: str) -> None:
    from tests.adversary.power_loss import subjects  # and not this module, which is called __main__

    subjects.subject(name, int(steps)).write(Path(root))


if __name__ == "__main__":
    main(*sys.argv[1:])
