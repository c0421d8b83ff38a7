"""What is put to the test: a program that writes files step by step, and what must be found after a crash.

``python -m tests.adversary.power_loss.subjects FOLDER MODULE:CLASS STEPS`` runs the program of a subject.
"""

from __future__ import annotations

import importlib
import sys
from abc import ABC, abstractmethod
from pathlib import Path


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
    """The subject called ``module:class``, a module of this package."""
    module, class_name = name.split(":")
    found = getattr(importlib.import_module(f"tests.adversary.power_loss.{module}"), class_name)(steps)
    assert isinstance(found, Subject)
    return found


def main(root: str, name: str, steps: str) -> None:
    from tests.adversary.power_loss import subjects  # and not this module, which is called __main__

    subjects.subject(name, int(steps)).write(Path(root))


if __name__ == "__main__":
    main(*sys.argv[1:])
