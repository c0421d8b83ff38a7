"""What tests of the embedded collection do to it again and again."""

from __future__ import annotations

import shutil

import posh
from tests.collection.implementations import DATA


def answers(collection, k=20) -> tuple:
    found = collection.search(DATA[:40], k)
    return found.ids.tolist(), found.scores.tolist(), found.kind


def reopened(collection, *, saved_index: bool = True) -> posh.Collection:
    collection.close()
    if not saved_index:
        for folder in collection.path.glob("snapshot-*"):
            shutil.rmtree(folder)
    return posh.Collection(collection.path)


def folders(collection) -> list[str]:
    return [path.name for path in collection.path.glob("snapshot-*")]
