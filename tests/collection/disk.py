"""Programs for full disks and read-only folders: ``python -m tests.collection.disk PROGRAM FOLDER``.

They change what their process may do, and so are not part of the one that tests. They end with "fine".
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import posh
from tests.collection.implementations import DATA, OTHER, SPARSE
from tests.collection.reference import ReferenceCollection

SAFE = "Earlier writes are safe and this call changed nothing: free some space"
WRITABLE = "changed nothing: make the folder and its files writable"
NOBODY = 65534

Call = Callable[[posh.BaseCollection], Any]


def content(collection: posh.BaseCollection) -> tuple:
    found = collection.search(DATA[:9], 30, filter={"n": {"gte": 5}})
    stored = [(item.id, item.vector.tolist(), item.payload) for item in collection.items()]
    return found.ids.tolist(), found.scores.tolist(), stored, collection.metadata


def refusal(call: Callable[[], Any]) -> str:
    """The message with which a call is refused; empty if it is not."""
    try:
        call()
    except posh.StorageError as error:
        return str(error)
    return ""


def attempt(call: Call, collection: posh.Collection, plain: ReferenceCollection) -> bool:
    """Do something to both, unless it is refused: then to none. Whether it was done."""
    refused = refusal(lambda: call(collection))
    assert not refused or SAFE in refused, refused
    if not refused:
        call(plain)
    assert content(collection) == content(plain)
    return not refused


def written(name: str) -> Call:
    payloads = [{"n": i, "text": "x" * 2000} for i in range(100)]  # few and large: all are compared
    return lambda c: c.upsert([f"{name}/{i}" for i in range(100)], DATA[:100], payloads)


def fill(collection: posh.Collection, make_room: Callable[[], Any]) -> None:
    """Write until there is no room; try everything; open it again; make room, and go on."""
    plain = ReferenceCollection(SPARSE)
    assert attempt(lambda c: c.upsert(range(30), DATA[:30], [{"n": i} for i in range(30)]), collection, plain)
    n = 0
    while attempt(written(f"{n}"), collection, plain):
        n += 1
    assert n > 0
    assert not attempt(lambda c: c.set_metadata({"x": "y" * 10**7}), collection, plain)
    for call in (
        lambda c: c.delete([f"0/{i}" for i in range(100)]),
        lambda c: c.upsert(["x"], DATA[:1]),
        lambda c: c.reindex(OTHER),
        lambda c: c.compact(),
        written("more"),
    ):
        attempt(call, collection, plain)
    collection.close()
    with posh.Collection(collection.path) as again:
        assert content(again) == content(plain)
        make_room()
        for call in (written("again"), lambda c: c.delete(["again/1", 3]), lambda c: c.compact()):
            assert attempt(call, again, plain)
        assert attempt(lambda c: c.reindex(SPARSE), again, plain)
    with posh.Collection(collection.path) as again:
        assert content(again) == content(plain)


def limited(folder: Path) -> None:
    """Files may not grow beyond a size."""
    collection = posh.Collection(folder, SPARSE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, resource.RLIM_INFINITY))
    fill(collection, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2))


def filled(folder: Path) -> None:
    """A file system of 16 MB has 4 MB left."""
    ballast = folder.parent / "ballast"
    ballast.write_bytes(bytes(12 << 20))
    fill(posh.Collection(folder, SPARSE), ballast.unlink)


def brim(folder: Path) -> None:
    """A file system has no room left, not even for the small files that SQLite makes to read."""
    with posh.Collection(folder, SPARSE) as collection:
        collection.upsert(range(30), DATA[:30], [{"n": i} for i in range(30)])
        expected = content(collection)
    assert not list(folder.glob("*-shm"))
    with contextlib.suppress(OSError), (folder.parent / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))
    with posh.Collection(folder, read_only=True) as one, posh.Collection(folder, read_only=True) as two:
        assert content(one) == content(two.refresh()) == expected
        assert "expected a collection that is not open elsewhere" in refusal(lambda: posh.Collection(folder))
    (folder.parent / "ballast").unlink()
    with posh.Collection(folder) as collection:
        assert collection.delete([7]) == 1


def read_only(folder: Path) -> None:
    """A folder becomes read-only, at first while it is open."""
    if os.getuid() == 0:  # to whom nothing is forbidden
        os.chown(folder.parent, NOBODY, NOBODY)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    with posh.Collection(folder, SPARSE) as collection:
        collection.upsert(range(30), DATA[:30], [{"n": i} for i in range(30)])
        folder.chmod(0o555)
        collection.upsert(["late"], DATA[:1])  # its files are open already
        collection.compact()  # though without a saved index
        expected = content(collection)
    for path in folder.iterdir():
        path.chmod(0o444)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with posh.Collection(folder, read_only=True) as collection:
        assert content(collection) == expected
    refused = refusal(lambda: posh.Collection(folder))
    assert "expected a folder that can be written to, got Permission denied: make it writable" in refused
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "lock").chmod(0o644)
    search_only(folder, expected)
    folder.parent.chmod(0o555)
    assert "got Permission denied" in refusal(lambda: posh.Collection(folder.parent / "new"))
    folder.parent.chmod(0o755)
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    with posh.Collection(folder) as collection:
        assert content(collection) == expected
        assert collection.delete(["late"]) == 1
    assert not list(folder.glob("*-shm"))  # SQLite would need it, and now cannot make it
    folder.chmod(0o555)
    with posh.Collection(folder, read_only=True) as collection:
        assert len(content(collection)[2]) == 30
    folder.chmod(0o755)


def search_only(folder: Path, expected: tuple) -> None:
    """The lock can be taken, but nothing written."""
    with posh.Collection(folder) as collection:
        for call in (
            lambda: collection.delete(["late"]),
            lambda: collection.upsert([1], DATA[:1]),
            lambda: collection.reindex(OTHER),
            lambda: collection.set_metadata({"a": 1}),
        ):
            assert WRITABLE in refusal(call)
            assert content(collection) == expected


if __name__ == "__main__":
    programs = {"limited": limited, "filled": filled, "brim": brim, "read-only": read_only}
    programs[sys.argv[1]](Path(sys.argv[2]))
    print("fine")
