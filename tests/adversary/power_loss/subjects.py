"""What is put to the test: a program that writes files step by step, and what must be found after a crash.

``python -m tests.adversary.power_loss.subjects FOLDER NAME STEPS`` runs the program of a subject, under the
recorder.
"""

from __future__ import annotations

import importlib
import sys
from abc import ABC, abstractmethod
from pathlib import Path

from tests.adversary.power_loss.recording import acknowledge


class Subject(ABC):
    """A program of ``steps`` steps that are alike in every process."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    @abstractmethod
    def write(self, root: Path) -> None:
        """Do all steps, in a process of its own, and call ``acknowledge`` after each."""

    @abstractmethod
    def judge(self, root: Path, acknowledged: int) -> None:
        """Raise if a folder is not what may be left when so many steps were acknowledged; may change it."""


def subject(name: str, steps: int) -> Subject:
    """The subject called ``name``: class ``Tested`` of the module ``name``."""
    return importlib.import_module(name).Tested(steps)


if __name__ == "__main__":
    subject(sys.argv[2], int(sys.argv[3])).write(Path(sys.argv[1]))

__all__ = ["Subject", "acknowledge", "subject"]
