"""A second power failure, while a program recovers from the first, loses no more than one does.

``POSH_ADVERSARY=1`` starts from hundreds of states of longer runs.
"""

from __future__ import annotations

import os

import pytest

from tests.adversary.power_loss.examination import Findings
from tests.adversary.power_loss.recording import run

LONG = os.environ.get("POSH_ADVERSARY") == "1"
SHORT_CASES = {
    "models": "model_subject:ModelFiles,3,3,4",
    "indexes": "index_subject:IndexFolders,2,20,4",
    "collections": "collection_subject:Collections,12,60,3",
    "backups": "backup_subject:Backups,2,25,4",
    "served folders": "folder_subject:ServedFolders,6,50,3",
}
LONG_CASES = {
    "models": "model_subject:ModelFiles,9,4,20",
    "indexes": "index_subject:IndexFolders,10,10,20",
    "collections": "collection_subject:Collections,18,10,20",
    "backups": "backup_subject:Backups,4,10,20",
    "served folders": "folder_subject:ServedFolders,12,10,20",
}
CASES = LONG_CASES if LONG else SHORT_CASES


@pytest.fixture(scope="module")
def folder(library, tmp_path_factory):
    """The findings of all subjects, from one process: starting takes longer than most of them do."""
    folder = tmp_path_factory.mktemp("recovery")
    run(library, "recovery", folder, *CASES.values())
    return folder


@pytest.mark.parametrize("name", CASES)
def test_every_state_after_a_second_power_failure_is_good(name, folder):
    found = Findings.read(folder / CASES[name].split(",")[0])
    print(f"{found.states} states")
    assert found.states > 20
    assert not found.bad, str(found)


def findings_of_toy(library, folder, name: str) -> Findings:
    run(library, "recovery", folder, f"toys:{name},3,1,20")
    return Findings.read(folder / f"toys:{name}")


def test_a_careful_program_is_not_blamed(library, tmp_path):
    found = findings_of_toy(library, tmp_path, "Careful")
    assert found.states > 20
    assert found.bad == []


def test_a_program_that_recovers_carelessly_is_caught(library, tmp_path):
    found = findings_of_toy(library, tmp_path, "RecoversInPlace")
    assert any("neither the acknowledged file nor the next one" in line for line in found.bad)
