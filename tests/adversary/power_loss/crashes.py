"""The states in which a power failure may leave a disk, for each moment of a recorded run."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.adversary.power_loss.disk import SHARED_MEMORY, Change, Disk, File, Names, State, apply
from tests.adversary.power_loss.recording import Operation

_SECTOR = 512
_SINGLE = 4  # the latest changes at one moment, each of which is lost or kept alone


@dataclass(frozen=True)
class Crash:
    """A state after the operation with this number, when so many steps of the program were acknowledged."""

    after: int
    acknowledged: int
    what: str
    state: State


def crashes(
    operations: list[Operation], *, moments: int, subsets: int, first: int = 0, seed: int = 0
) -> Iterator[Crash]:
    """All distinct states at each moment at which something was acknowledged, and at some others.

    These are ``moments`` at which a folder is about to be synced, because most is uncertain then, and as many
    of all, chosen at random. ``subsets`` is the number of random states for each moment. Moments before the
    operation ``first`` are left out.
    """
    disk, rng, seen = Disk(), random.Random(seed), set()
    acknowledged = 0
    chosen = _chosen(operations, first, moments, rng)
    for number, operation in enumerate(operations):
        disk.play(operation)
        acknowledged += operation.kind == "!"
        if number not in chosen:
            continue
        for what, state in _states(disk, rng, subsets):
            key = (acknowledged, _digest(state))
            if key not in seen:
                seen.add(key)
                yield Crash(number, acknowledged, what, state)


def _chosen(operations: list[Operation], first: int, moments: int, rng: random.Random) -> set[int]:
    numbered = list(enumerate(operations))[first:]
    folders = {operation.inode for operation in operations if operation.kind == "m"}
    acknowledged = [number for number, operation in numbered if operation.kind == "!"]
    delicate = [number - 1 for number, (kind, inode, *_) in numbered if kind == "s" and inode in folders]
    others = [number for number, operation in numbered if operation.kind not in "k!"]
    return {*acknowledged, *_sample(delicate, moments, rng), *_sample(others, moments, rng)}


def _sample(values: list, n: int, rng: random.Random) -> list:
    return values if len(values) <= n else rng.sample(values, n)


def _states(disk: Disk, rng: random.Random, subsets: int) -> Iterator[tuple[str, State]]:
    state = _SharedMemory(disk.state, rng)
    yield "everything", state(_all, _current)
    yield "only what was synced", state(_none, _synced)
    yield "names without data", state(_all, _synced)
    yield "names and lengths without data", state(_all, _zeros)
    yield "data without names", state(_none, _current)
    for change in _some(disk.pending, rng):
        yield f"all but {_words(change)}", state(lambda other, lost=change: other is not lost, _current)
        yield f"only {_words(change)}", state(lambda other, kept=change: other is kept, _current)
    for lost in _some([file for file in disk.files.values() if file.pending], rng):
        yield (
            "all but the data of one file",
            state(_all, lambda file, lost=lost: _synced(file) if file is lost else _current(file)),
        )
    for _ in range(subsets):
        names, data = rng.choice([0.1, 0.5, 0.9, 1.0]), rng.choice([0.1, 0.5, 0.9, 1.0])
        yield (
            f"a random subset of names ({names}) and data ({data})",
            state(
                lambda _, share=names: rng.random() < share,
                lambda file, share=data: _partial(file, share, rng),
            ),
        )


class _SharedMemory:
    """Makes states in which SQLite's mapped file is missing or garbage."""

    def __init__(self, make: Callable[..., State], rng: random.Random) -> None:
        self._make, self._garbage = make, rng.randbytes(1 << 15)
        self._rng = rng

    def __call__(self, kept: Callable[[Names], bool], content: Callable[[File], bytes]) -> State:
        garbage = self._rng.random() < 0.5
        return {
            path: self._garbage if path.endswith(SHARED_MEMORY) else found
            for path, found in self._make(kept, content).items()
            if garbage or not path.endswith(SHARED_MEMORY)
        }


def _all(_: Names) -> bool:
    return True


def _none(_: Names) -> bool:
    return False


def _current(file: File) -> bytes:
    return bytes(file.content)


def _synced(file: File) -> bytes:
    return file.synced


def _zeros(file: File) -> bytes:
    size = len(file.content)
    return file.synced[:size].ljust(size, b"\0")


def _partial(file: File, share: float, rng: random.Random) -> bytes:
    """The synced content with some of the later changes, some of them torn, and a length it has had."""
    if not file.pending:
        return file.synced
    content = bytearray(file.synced)
    lengths = [len(content)]  # after each change
    for change in file.pending:
        offset, data = change
        lengths.append(offset if data is None else max(lengths[-1], offset + len(data)))
        if rng.random() < share:
            for part in _torn(change, rng):
                apply(content, part)
    if rng.random() < 0.5:
        apply(content, Change(rng.choice([lengths[-1], rng.choice(lengths)]), None))
    return bytes(content)


def _torn(change: Change, rng: random.Random) -> list[Change]:
    """A write: mostly all of it, else the beginning, the end or some of its sectors."""
    offset, data = change
    if data is None or len(data) < 2 or rng.random() < 0.7:
        return [change]
    match rng.randrange(3):
        case 0:
            return [Change(offset, data[: rng.randrange(1, len(data))])]
        case 1:
            start = rng.randrange(1, len(data))
            return [Change(offset + start, data[start:])]
        case _:
            sectors = range(0, len(data), _SECTOR)
            kept = [start for start in sectors if rng.random() < 0.5]
            return [Change(offset + start, data[start : start + _SECTOR]) for start in kept]


def _some(values: list, rng: random.Random) -> list:
    """All values, or if they are many the last ones and some others."""
    older, latest = values[:-_SINGLE], values[-_SINGLE:]
    return _sample(older, 2, rng) + latest


def _words(change: Names) -> str:
    return " and ".join(
        f"{'without' if number is None else 'with'} {place.name}" for place, number in change.places.items()
    )


def _digest(state: State) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for path, content in sorted(state.items()):
        if path.endswith(SHARED_MEMORY):  # two kinds of nothing
            continue
        kind = "folder" if content is None else len(content)
        digest.update(f"{path}\0{kind}\0".encode())
        digest.update(content or b"")
    return digest.digest()
