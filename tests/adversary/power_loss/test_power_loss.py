"""No power failure loses what was acknowledged, or leaves half of what was not.

``POSH_ADVERSARY=1`` checks thousands of states of longer runs, in all cores.
"""

from __future__ import annotations

import os

import pytest

from tests.adversary.power_loss.crashes import crashes
from tests.adversary.power_loss.disk import played
from tests.adversary.power_loss.examination import examined, examined_in_processes
from tests.adversary.power_loss.recording import read, recorded
from tests.adversary.power_loss.subjects import subject

LONG = os.environ.get("POSH_ADVERSARY") == "1"


@pytest.mark.parametrize(
    ("name", "short", "long"),
    [
        ("model_subject:ModelFiles", (6, 15), (40, 1000)),
        ("index_subject:IndexFolders", (5, 10), (20, 250)),
        ("collection_subject:Collections", (18, 10), (40, 250)),
        ("collection_subject:TextCollections", (10, 6), (40, 250)),
        ("backup_subject:Backups", (4, 10), (8, 250)),
        ("folder_subject:ServedFolders", (12, 10), (24, 100)),
    ],
    ids=["models", "indexes", "collections", "collections with text", "backups", "served folders"],
)
def test_every_state_after_a_power_failure_is_good(name, short, long, library, tmp_path):
    steps, moments = long if LONG else short
    log = recorded(library, tmp_path / "root", name, steps)
    operations = list(read(log))
    played(operations, tmp_path / "root")
    if LONG:
        processes = os.cpu_count() or 1
        findings = examined_in_processes(name, steps, log, processes, moments=moments, subsets=8)
    else:
        findings = examined(subject(name, steps), crashes(operations, moments=moments, subsets=2))
    print(f"{len(operations)} operations, {findings.states} states")
    assert findings.states > steps
    assert not findings.bad, str(findings)
