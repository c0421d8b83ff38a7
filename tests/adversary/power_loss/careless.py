"""The real subjects with one safeguard taken away: what they lose must be found."""

from __future__ import annotations

import os
from pathlib import Path

from posh.collection import storage
from tests.adversary.power_loss.collection_subject import Collections
from tests.adversary.power_loss.index_subject import IndexFolders


class CollectionsThatSyncLate(Collections):
    """SQLite syncs at checkpoints only, as many programs have it do with a write-ahead log."""

    def write(self, root: Path) -> None:
        storage._ALWAYS = tuple(each.replace("= FULL", "= NORMAL") for each in storage._ALWAYS)
        super().write(root)


class IndexesThatDoNotSync(IndexFolders):
    def write(self, root: Path) -> None:
        os.fsync = lambda file: None  # this process has no other purpose
        super().write(root)
