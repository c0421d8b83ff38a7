"""The adversary itself: it finds what careless programs lose, blames nobody else, and overlooks no write."""

from __future__ import annotations

import os

import pytest

from tests.adversary.power_loss.crashes import crashes
from tests.adversary.power_loss.disk import UnrecordedError, played
from tests.adversary.power_loss.examination import Findings, examined
from tests.adversary.power_loss.recording import Operation, read, recorded
from tests.adversary.power_loss.subjects import subject


def findings(library, tmp_path, name: str, steps: int = 5) -> Findings:
    operations = list(read(recorded(library, tmp_path / "root", name, steps)))
    played(operations, tmp_path / "root")
    return examined(subject(name, steps), crashes(operations, moments=20, subsets=4))


def test_a_careful_program_is_not_blamed(library, tmp_path):
    found = findings(library, tmp_path, "toys:Careful")
    assert found.states > 15
    assert found.bad == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("RenamesBeforeSyncing", "neither the acknowledged file nor the next one"),
        ("ForgetsTheFolder", "the acknowledged file is gone"),
        ("ForgetsTheParent", "the acknowledged file is gone"),
        ("TrustsWhatItFinds", "the acknowledged file is gone"),
        ("WritesInPlace", "neither the acknowledged file nor the next one"),
        ("SyncsBeforeTheLastWrite", "neither the acknowledged file nor the next one"),
    ],
)
def test_careless_programs_are_caught(library, tmp_path, name, why):
    assert any(why in line for line in findings(library, tmp_path, f"toys:{name}").bad)


@pytest.mark.skipif(os.environ.get("POSH_ADVERSARY") != "1", reason="takes longer: set POSH_ADVERSARY=1")
@pytest.mark.parametrize("name", ["careless:CollectionsThatSyncLate", "careless:IndexesThatDoNotSync"])
def test_real_programs_without_a_safeguard_are_caught(library, tmp_path, name):
    assert len(findings(library, tmp_path, name, 8).bad) > 8


def test_a_write_that_is_not_recorded_is_an_error(library, tmp_path):
    with pytest.raises(UnrecordedError, match="temporary: 1000 bytes were recorded"):
        findings(library, tmp_path, "toys:WritesUnseen", 1)


def test_a_file_that_appears_unrecorded_is_an_error(library, tmp_path):
    log = recorded(library, tmp_path / "root", "toys:Careful", 1)
    (tmp_path / "root" / "new" / "other").touch()
    with pytest.raises(UnrecordedError, match="other"):
        played(list(read(log)), tmp_path / "root")


def test_all_calls_are_played_back_to_the_byte(library, tmp_path):
    operations = list(read(recorded(library, tmp_path / "root", "toys:UsesEveryCall", 3)))
    assert {operation.kind for operation in operations} == set("mclruwtsdk!")
    played(operations, tmp_path / "root")


def operation(kind: str, inode: int = 0, first: str = "", second: str = "", data: bytes = b"") -> Operation:
    return Operation(kind, inode, 0, first, second, data)


def states(*operations: Operation) -> set[tuple]:
    """All states after the last operation."""
    found = crashes([operation("m", 1), *operations, operation("!")], moments=100, subsets=400)
    return {tuple(sorted(crash.state.items())) for crash in found if crash.acknowledged}


NEW = [operation("c", 2, "new"), operation("w", 2, data=b"ab"), operation("s", 2)]


def test_unsynced_data_may_be_there_or_not_or_torn():
    found = states(operation("c", 2, "new"), operation("s", 1), operation("w", 2, data=b"ab"))
    assert found == {(("new", data),) for data in (b"", b"\0\0", b"a", b"\0b", b"ab", b"a\0")}


def test_a_synced_file_is_whole_but_may_have_no_name():
    assert states(*NEW) == {(), (("new", b"ab"),)}
    assert states(*NEW, operation("s", 1)) == {(("new", b"ab"),)}


def test_a_rename_is_atomic_and_safe_after_its_folder_is_synced():
    old = [operation("c", 3, "file"), operation("s", 1)]
    renamed = [*old, *NEW, operation("r", 2, "new", "file")]
    expected = {(("file", b""),), (("file", b""), ("new", b"ab")), (("file", b"ab"),)}
    assert states(*renamed) == expected
    assert states(*renamed, operation("s", 1)) == {(("file", b"ab"),)}


def test_a_folder_is_safe_only_if_its_own_name_is_synced():
    folder, whole = (("folder", None),), (("folder", None), ("folder/file", b""))
    made = [operation("m", 5, "folder"), operation("c", 6, "folder/file")]
    assert states(*made) == {(), folder, whole}
    assert states(*made, operation("s", 5)) == {(), whole}
    assert states(*made, operation("s", 1)) == {folder, whole}
    assert states(*made, operation("s", 5), operation("s", 1)) == {whole}


def test_what_was_removed_may_come_back_until_its_folder_is_synced():
    removed = [*NEW, operation("s", 1), operation("u", first="new")]
    assert states(*removed) == {(), (("new", b"ab"),)}
    assert states(*removed, operation("s", 1)) == {()}
