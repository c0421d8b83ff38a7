"""The folder of a service: a collection is created, written to and dropped, again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from posh.serve.sources import Folder
from tests.adversary.power_loss.subjects import Subject

NAME = "shop"
VECTORS = np.arange(12, dtype=np.float32).reshape(3, 4)


def expected(steps: int) -> Any:
    """What is there after so many steps; None if the collection is not."""
    turn, phase = divmod(steps, 3)
    return None if phase == 0 else [{"turn": turn}, list(range(3)) if phase == 2 else []]


class ServedFolders(Subject):
    def step(self, root: Path, number: int) -> None:
        folder = Folder(root / "service")
        turn, phase = divmod(number, 3)
        there = NAME in folder.names()  # a process that was killed may have done the step
        if phase == 0 and not there:
            folder.create(NAME, {"turn": turn}, {}).close()
        elif there:
            with folder.open(NAME) as collection:
                if phase == 1:
                    collection.upsert(range(3), VECTORS)
            if phase == 2:
                folder.drop(NAME)

    def judge(self, root: Path, acknowledged: int) -> None:
        folder = Folder(root / "service")
        found: Any = None
        if NAME in folder.names():
            with folder.open(NAME) as collection:
                items = list(collection.items())
                assert all((item.vector == VECTORS[item.id]).all() for item in items), "other vectors"
                found = [collection.metadata, [item.id for item in items]]
            folder.drop(NAME)
        assert found in [expected(acknowledged), expected(acknowledged + 1)], f"found {found}"
        folder.create(NAME, {}, {}).close()
        assert folder.names() == [NAME], "the next collection"
