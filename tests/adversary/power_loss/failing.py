"""Steps of a subject in which the n-th call fails, for every n.

``python -m tests.adversary.power_loss.failing FOLDER MODULE:CLASS,STEPS,EVERY ...`` tries one in EVERY
failures of each step of these subjects, and saves the findings in a file for each.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from pathlib import Path

from tests.adversary.power_loss.crashes import crashes
from tests.adversary.power_loss.examination import Findings, described, scratch_folder, write
from tests.adversary.power_loss.faults import FAULTS, Fault, arm, count_calls, disarm
from tests.adversary.power_loss.recording import acknowledge, recording
from tests.adversary.power_loss.subjects import Subject, parsed, subject


class Trials:
    """Trials in a folder: each begins with a copy of the files before the step."""

    def __init__(self, folder: Path, tested: Subject) -> None:
        self._before, self._root, self._other = folder / "before", folder / "root", folder / "other"
        self._log = folder / "log"
        self._tested = tested
        self.findings = Findings()

    def try_step(self, number: int, every: int) -> None:
        """Do a step with a fault at a call, for one in ``every`` pairs of a fault and a call."""
        self._tested.prepare(self._before, number)
        for fault, n in self._cases(number)[number % every :: every]:
            shutil.copytree(self._before, self._root)
            self.findings.states += 1
            try:
                self._judge_fault(number, fault, n)
            except Exception as error:
                where = f"step {number}, {fault} {n}"
                self.findings.bad.append(f"{where}: {described(error, self._root, self._other)}")
            finally:
                disarm()
                shutil.rmtree(self._root)
        shutil.rmtree(self._before)

    def _cases(self, number: int) -> list[tuple[Fault, int]]:
        """All faults, at each call of a step."""
        shutil.copytree(self._before, self._root)
        with recording(self._root, self._log):
            disarm()
            self._tested.step(self._root, number)
            cases = [(fault, n) for fault in FAULTS for n in range(1, count_calls(fault.kind) + 1)]
        shutil.rmtree(self._root)
        return cases

    def _judge_fault(self, number: int, fault: Fault, n: int) -> None:
        """Do a step with a fault; raise if it loses something, is unclear, or cannot be done again."""
        with recording(self._root, self._log) as operations:
            arm(fault, n)
            try:
                self._tested.step(self._root, number)
            except self._tested.errors as error:
                self._judge_failure(number, str(error))
                self._tested.step(self._root, number)
            disarm()
            acknowledge(number)
        self._tested.judge(self._root, number + 1)
        if (
            fault.kind == "s"
        ):  # a power failure after all that: a sync that failed is not made good by the next
            for crash in crashes(operations, moments=0, subsets=0):
                write(self._other, crash.state)
                self._judge_other(number + 1)

    def _judge_failure(self, number: int, message: str) -> None:
        """Raise if a step that failed has an unclear error, leaves files open, or has done harm."""
        assert disarm(), f"failed without a fault: {message}"
        assert str(self._root) in message, f"expected an error that names the path, got {message}"
        self._require_closed()
        shutil.copytree(self._root, self._other)
        self._judge_other(number)

    def _require_closed(self) -> None:
        """Raise if the step has left files open: they would keep locks, and write later."""
        links = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
        found = [os.readlink(link) for link in links if link.is_symlink()]  # noqa: PTH115
        left = [path for path in found if path.startswith(f"{self._root}/")]
        assert not left, f"expected files that are closed, got open ones: {left}"

    def _judge_other(self, acknowledged: int) -> None:
        try:
            self._tested.judge(self._other, acknowledged)
        finally:
            shutil.rmtree(self._other)


def main(folder: str, *cases: str) -> None:
    logging.disable(logging.WARNING)  # of saved indexes that could not be written
    for name, (steps, every) in parsed(cases):
        with scratch_folder() as place:
            trials = Trials(place, subject(name, steps))
            for number in range(steps):
                trials.try_step(number, every)
        trials.findings.save(Path(folder, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
