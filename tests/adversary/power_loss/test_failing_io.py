"""A call of the disk that fails loses nothing, leaves no half and is reported; doing the same again works.

``POSH_ADVERSARY=1`` lets every call fail.
"""

from __future__ import annotations

import os

import pytest

from tests.adversary.power_loss.examination import Findings
from tests.adversary.power_loss.recording import run

LONG = os.environ.get("POSH_ADVERSARY") == "1"
SHORT_CASES = {
    "models": "model_subject:ModelFiles,2,1",
    "indexes": "index_subject:IndexFolders,2,5",
    "collections": "collection_subject:Collections,18,30",
    "open collections": "live_subject:LiveCollections,18,25",
    "backups": "backup_subject:Backups,2,9",
    "served folders": "folder_subject:ServedFolders,6,15",
}
LONG_CASES = {
    "models": "model_subject:ModelFiles,6,1",
    "indexes": "index_subject:IndexFolders,5,1",
    "collections": "collection_subject:Collections,18,1",
    "open collections": "live_subject:LiveCollections,18,1",
    "backups": "backup_subject:Backups,3,1",
    "served folders": "folder_subject:ServedFolders,6,1",
}
CASES = LONG_CASES if LONG else SHORT_CASES


@pytest.fixture(scope="module")
def folder(library, tmp_path_factory):
    """The findings of all subjects, from one process: starting takes longer than most of them do."""
    folder = tmp_path_factory.mktemp("failing")
    run(library, "failing", folder, *CASES.values())
    return folder


@pytest.mark.parametrize("name", CASES)
def test_no_failing_call_does_harm(name, folder):
    found = Findings.read(folder / CASES[name].split(",")[0])
    print(f"{found.states} calls failed")
    assert found.states > 20
    assert not found.bad, str(found)


def findings_of_toy(library, folder, name: str) -> Findings:
    run(library, "failing", folder, f"toys:{name},2,1")
    return Findings.read(folder / f"toys:{name}")


def test_a_careful_program_is_not_blamed(library, tmp_path):
    found = findings_of_toy(library, tmp_path, "Careful")
    assert found.states > 20
    assert found.bad == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("WritesInPlace", "neither the acknowledged file nor the next one"),
        ("IgnoresErrors", "neither the acknowledged file nor the next one"),
        ("SyncsAgain", "neither the acknowledged file nor the next one"),
        ("HidesThePath", "expected an error that names the path"),
        ("LeavesFilesOpen", "expected files that are closed"),
    ],
)
def test_careless_programs_are_caught(library, tmp_path, name, why):
    assert any(why in line for line in findings_of_toy(library, tmp_path, name).bad)
