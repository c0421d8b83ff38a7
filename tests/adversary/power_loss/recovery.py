"""A second power failure, during the recovery from the first.

``python -m tests.adversary.power_loss.recovery FOLDER MODULE:CLASS,STEPS,EVERY,MOMENTS ...`` records a run of
each subject and takes one in EVERY states in which a power failure may leave its files. In each it does the
step that was interrupted once more, which recovers from the failure, and judges the states in which a second
one may leave the files. It saves the findings in a file for each subject.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tests.adversary.power_loss.crashes import Crash, crashes
from tests.adversary.power_loss.examination import Findings, examined, scratch_folder, write
from tests.adversary.power_loss.recording import acknowledge, recording
from tests.adversary.power_loss.subjects import Subject, parsed, subject


def second_crashes(folder: Path, tested: Subject, first: Crash, moments: int) -> Iterator[Crash]:
    """Do the interrupted step in a state after a power failure, and yield those after another one."""
    root = folder / "again"
    write(root, first.state)
    with recording(root, folder / "again.log") as operations:
        start = len(operations)
        tested.step(root, first.acknowledged)
        acknowledge(first.acknowledged)
    shutil.rmtree(root)
    for second in crashes(operations, moments=moments, subsets=1, first=start, seed=first.after):
        what = f"{first.what} of operation {first.after}, then {second.what}"
        yield replace(second, acknowledged=first.acknowledged + second.acknowledged, what=what)


def recovered(folder: Path, tested: Subject, every: int, moments: int) -> Findings:
    """Judge the states after a second failure."""
    root = folder / "root"
    root.mkdir()
    with recording(root, folder / "log") as operations:
        tested.write(root)
    states = crashes(operations, moments=moments, subsets=1)
    unfinished = (crash for crash in states if crash.acknowledged < tested.steps)
    findings = Findings()
    for first in islice(unfinished, 0, None, every):
        findings += examined(tested, second_crashes(folder, tested, first, moments))
    return findings


def main(folder: str, *cases: str) -> None:
    for name, (steps, every, moments) in parsed(cases):
        with scratch_folder() as place:
            findings = recovered(place, subject(name, steps), every, moments)
        findings.save(Path(folder, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
