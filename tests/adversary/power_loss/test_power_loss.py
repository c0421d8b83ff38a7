"""No power failure loses what was acknowledged, or leaves half of what was not.

``POSH_ADVERSARY=1`` checks every moment of longer runs, in all cores: thousands of states.
"""

from __future__ import annotations

import os

import pytest

from tests.adversary.power_loss.crashes import crashes
from tests.adversary.power_loss.disk import played
from tests.adversary.power_loss.examination import examined, examined_in_processes
from tests.adversary.power_loss.recording import compiled, read, recorded, why_not
from tests.adversary.power_loss.subjects import subject

LONG = os.environ.get("POSH_ADVERSARY") == "1"


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize(
    ("name", "steps", "long_steps", "subsets"),
    [
        ("model_subject:ModelFiles", 8, 40, 12),
        ("index_subject:IndexFolders", 5, 20, 4),
        ("collection_subject:Collections", 18, 40, 2),
    ],
)
def test_every_state_after_a_power_failure_is_good(name, steps, long_steps, subsets, tmp_path):
    steps = long_steps if LONG else steps
    log = recorded(compiled(tmp_path), tmp_path / "root", name, steps)
    operations = list(read(log))
    played(operations, tmp_path / "root")
    if LONG:
        findings = examined_in_processes(name, steps, log, os.cpu_count() or 1, subsets=subsets)
    else:
        findings = examined(subject(name, steps), crashes(operations, moments=10, subsets=2))
    print(f"{len(operations)} operations, {findings.states} states")
    assert findings.states > steps
    assert not findings.bad, str(findings)
