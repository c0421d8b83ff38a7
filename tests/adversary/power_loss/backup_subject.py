"""Backups: copies of a collection, one after the other."""

from __future__ import annotations

import hashlib
from pathlib import Path

import posh
from tests.adversary.power_loss.collection_subject import DATA, FIRST, METADATA, content
from tests.adversary.power_loss.subjects import Subject
from tests.collection.reference import ReferenceCollection

N = 60
IDS = [i if i % 3 else f"id {i}" for i in range(N)]
PAYLOADS = [{"row": i} for i in range(N)]


def copies(root: Path, number: int) -> list[Path]:
    """What a step has made; a step that was killed may have made one before."""
    return sorted(root.glob(f"backup-{number}-*"))


class Backups(Subject):
    def __init__(self, n: int) -> None:
        super().__init__(n)
        plain = ReferenceCollection(FIRST, metadata=METADATA).upsert(IDS, DATA[:N], PAYLOADS)
        self._expected = content(plain)
        self._good: set[bytes] = set()  # digests of copies that were judged: most of them are equal

    def step(self, root: Path, number: int) -> None:
        with posh.Collection(root / "collection", FIRST, metadata=METADATA) as collection:
            if len(collection) == 0:
                collection.upsert(IDS, DATA[:N], PAYLOADS)
            collection.backup(root / f"backup-{number}-{len(copies(root, number))}")

    def judge(self, root: Path, acknowledged: int) -> None:
        for number in range(self.steps):
            found = copies(root, number)
            assert found or number >= acknowledged, "an acknowledged backup is gone"
            for path in found:
                self._judge_copy(path)

    def _judge_copy(self, path: Path) -> None:
        """A copy is complete, or not there."""
        parts = sorted((file.name, file.read_bytes()) for file in path.iterdir())
        digest = hashlib.blake2b(repr(parts).encode()).digest()
        if digest not in self._good:
            with posh.Collection(path) as copy:
                assert content(copy) == self._expected, "a backup is not what was copied"
            self._good.add(digest)
