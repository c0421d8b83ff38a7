"""The real subjects with one safeguard taken away: what they lose must be found."""

from __future__ import annotations

import os
from pathlib import Path

from posh.collection import database
from tests.adversary.power_loss.collection_subject import Collections
from tests.adversary.power_loss.index_subject import IndexFolders


class CollectionsThatSyncLate(Collections):
    """SQLite syncs at checkpoints only, as many programs have it do with a write-ahead log."""

    def write(self, root: Path) -> None:
        database._PRAGMAS = tuple(each.replace("= FULL", "= NORMAL") for each in database._PRAGMAS)
        super().write(root)


class IndexesThatDoNotSync(IndexFolders):
    def write(self, root: Path) -> None:
        os.fsync = lambda file: None  # this process has no other purpose
        super().write(root)
