"""Built indexes on disk: a build takes longer than all searches, and not all indexes fit into memory."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from posh import datasets
from posh.datasets._fetch import is_stored, store
from posh_reproduction.ann.cases import Prepared
from posh_reproduction.ann.contenders import BuiltIndex, Contender, Params
from posh_reproduction.experiments.spec import key

__all__ = ["Indexes"]

_SHARE = 0.5  # of the machine's memory: the rest is for the vectors and for builds


class Indexes:
    """The indexes of one case: each is stored in the data folder, and as many as fit are held in memory."""

    def __init__(self, data: Prepared, versions: dict[str, str], budget: float | None = None) -> None:
        self._data, self._versions = data, versions
        self._root = datasets.data_dir() / "ann-indexes.v1" / data.content
        self._budget = _physical_memory() * _SHARE if budget is None else budget
        self._held: dict[Path, BuiltIndex] = {}

    def find(self, contender: Contender, build: Params) -> BuiltIndex | None:
        """Return an index that was built before, or None."""
        folder = self._folder(contender, build)
        if folder not in self._held:
            if not is_stored(folder):
                return None
            self._make_room(_size(folder))
            d, metric = self._data.base.shape[1], self._data.case.metric
            self._held[folder] = contender.load(folder, d, metric, **build)
        return self._held[folder]

    def add(self, contender: Contender, build: Params, index: BuiltIndex) -> int:
        """Store an index, and hold it in memory; return its size in bytes."""
        folder = self._folder(contender, build)
        for other in folder.parent.glob(f"{_stem(contender, build)}-*"):  # of another version
            shutil.rmtree(other)
        store(folder, index.save)
        self._make_room(_size(folder))
        self._held[folder] = index
        return _size(folder)

    def release(self) -> None:
        """Hold no index in memory."""
        self._held.clear()

    def keep(self, contender: Contender, builds: list[Params]) -> None:
        """Delete the other indexes of a contender."""
        kept = [self._folder(contender, build).name for build in builds]
        for folder in self._root.glob(f"{contender.name} *"):
            if folder.name not in kept:
                self._held.pop(folder, None)
                shutil.rmtree(folder)

    def _folder(self, contender: Contender, build: Params) -> Path:
        return self._root / f"{_stem(contender, build)}-{_digest(self._versions[contender.name])}"

    def _make_room(self, needed: int) -> None:
        """Forget indexes, the oldest first, until another one fits."""
        while self._held and needed + sum(map(_size, self._held)) > self._budget:
            del self._held[next(iter(self._held))]


def _stem(contender: Contender, build: Params) -> str:
    return f"{contender.name} {_digest(key(build))}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
