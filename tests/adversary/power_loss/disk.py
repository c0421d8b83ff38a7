"""The files of a recorded run: as the program sees them, and as the disk has them for sure."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.adversary.power_loss.recording import Operation

State = dict[str, bytes | None]
"""Content of all files by path relative to the root; None for a folder."""

ROOT = 0
SHARED_MEMORY = "-shm"  # the end of the name of SQLite's mapped file, which means nothing after a crash


class UnrecordedError(Exception):
    """The files are not what the records say: something was written behind the recorder's back."""


class Change(NamedTuple):
    """A change of a file's data that is not synced: a write, or a new length if ``data`` is None."""

    offset: int
    data: bytes | None


@dataclass
class File:
    """``synced`` is on the disk for sure; ``pending`` leads to ``content``, unless a sync failed."""

    path: str  # at which it was created
    synced: bytes = b""
    content: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        self.pending.append(change)
        apply(self.content, change)

    def sync(self) -> None:
        synced = bytearray(self.synced)
        for change in self.pending:
            apply(synced, change)
        self.synced = bytes(synced)
        self.pending.clear()

    def forget(self) -> None:
        """A sync failed: the program still sees the changes, but no later sync writes them."""
        self.pending.clear()


class Place(NamedTuple):
    """Where a name is: the number of its folder, and the name."""

    folder: int
    name: str


class Names(NamedTuple):
    """A change of names that happens at once: which file or folder each place has from now on, if any."""

    number: int
    places: dict[Place, int | None]


class Disk:
    """Plays a record back. Files and folders have numbers: unlike inodes, these are never used again."""

    def __init__(self) -> None:
        self.files: dict[int, File] = {}
        self.pending: list[Names] = []
        self._names: dict[Place, int] = {}  # as the program sees them
        self._synced: dict[Place, tuple[int, int | None]] = {}  # as the disk has them, and since which change
        self._numbers: dict[int, int] = {}  # of inodes
        self._made = self._changes = 0

    def play(self, operation: Operation) -> None:
        """Do what was recorded."""
        kind, inode, offset, first, second, data = operation
        match kind:
            case "m" if not first:
                self._numbers[inode] = ROOT
            case "m" | "c":
                self._made += 1
                self._numbers[inode] = self._made
                if kind == "c":
                    self.files[self._made] = File(first)
                self._change({self._place(first): self._made})
            case "l":
                self._change({self._place(first): self._number(inode)})
            case "r" if first != second:
                source = self._place(first)
                self._change({source: None, self._place(second): self._names[source]})
            case "u" | "d":
                self._change({self._place(first): None})
            case "w":
                self._file(inode).change(Change(offset, data))
            case "t":
                self._file(inode).change(Change(offset, None))
            case "s":
                self._sync(self._number(inode))
            case "x" if self._number(inode) in self.files:
                self._file(inode).forget()
            case "k":
                self._compare(inode, offset, int.from_bytes(data, "little"))
            case "?":
                raise UnrecordedError(f"expected calls that the simulator knows, got {operation}")

    def state(self, kept: Callable[[Names], bool], content: Callable[[File], bytes]) -> State:
        """The disk with the unsynced changes of names that are kept, and with this content of files."""
        names = dict(self._synced)
        for change in filter(kept, self.pending):
            for place, number in change.places.items():
                if names.get(place, (0, None))[0] < change.number:
                    names[place] = (change.number, number)
        return self._tree(
            {place: number for place, (_, number) in names.items() if number is not None}, content
        )

    def now(self) -> State:
        """The files as the program sees them."""
        return self._tree(self._names, lambda file: bytes(file.content))

    def _change(self, places: dict[Place, int | None]) -> None:
        self._changes += 1
        self.pending.append(Names(self._changes, places))
        for place, number in places.items():
            if number is None:
                del self._names[place]
            else:
                self._names[place] = number

    def _sync(self, number: int) -> None:
        if number in self.files:
            self.files[number].sync()
            return
        done = [change for change in self.pending if any(place.folder == number for place in change.places)]
        for change in done:
            self._synced |= {place: (change.number, content) for place, content in change.places.items()}
        self.pending = [change for change in self.pending if change not in done]

    def _place(self, path: str) -> Place:
        *folders, name = path.split("/")
        at = ROOT
        for folder in folders:
            at = self._names[Place(at, folder)]
        return Place(at, name)

    def _number(self, inode: int) -> int:
        if inode not in self._numbers:
            raise UnrecordedError(f"expected files whose making was recorded, got inode {inode}")
        return self._numbers[inode]

    def _file(self, inode: int) -> File:
        return self.files[self._number(inode)]

    def _compare(self, inode: int, size: int, checksum: int) -> None:
        file = self._file(inode)
        found = (len(file.content), zlib.crc32(file.content))
        if found != (size, checksum) and not file.path.endswith(SHARED_MEMORY):
            raise UnrecordedError(
                f"{file.path}: {found[0]} bytes were recorded, but the file had {size} or other ones"
            )

    def _tree(self, names: dict[Place, int], content: Callable[[File], bytes]) -> State:
        entries: dict[int, list[tuple[int, str]]] = {}  # sorted by number: names may differ from run to run
        for place, number in names.items():
            entries.setdefault(place.folder, []).append((number, place.name))
        state: State = {}
        todo = [("", ROOT)]
        while todo:
            prefix, folder = todo.pop()
            for number, name in sorted(entries.get(folder, [])):
                path = prefix + name
                if number in self.files:
                    state[path] = content(self.files[number])
                else:
                    state[path] = None
                    todo.append((f"{path}/", number))
        return state


def apply(content: bytearray, change: Change) -> None:
    """Change the content of a file."""
    offset, data = change
    end = offset if data is None else offset + len(data)
    if data is None:
        del content[end:]
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if data is not None:
        content[offset:end] = data


def played(operations: list[Operation], root: Path) -> Disk:
    """The disk after a whole run, which must be what is in the folder: nothing may go unrecorded."""
    disk = Disk()
    for operation in operations:
        disk.play(operation)
    found = {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in root.rglob("*")
    }
    one, other = _significant(disk.now()), _significant(found)
    wrong = [path for path in one.keys() | other.keys() if one.get(path, b"") != other.get(path, b"")]
    if wrong or one.keys() != other.keys():
        raise UnrecordedError(f"expected what was recorded, found other content of {sorted(wrong)}")
    return disk


def _significant(state: State) -> State:
    return {path: content for path, content in state.items() if not path.endswith(SHARED_MEMORY)}
