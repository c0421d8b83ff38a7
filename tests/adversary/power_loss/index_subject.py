"""Index folders: one index is saved over the other, the first one into folders that are not there yet."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import posh
from tests.adversary.power_loss import model_subject
from tests.adversary.power_loss.subjects import Subject
from tests.conftest import clusters

FOLDER = Path("new", "folders", "index")
DATA = clusters(300, 8).astype("float32")
SPARSE = posh.FruitFly(48, 6, random_state=0).fit(DATA)
DENSE = posh.LSH(16, random_state=0).fit(DATA)
NEXT = 201  # the index that is saved after a crash
KINDS: list[tuple[posh.Hasher, dict[str, Any]]] = [
    (SPARSE, {}),
    (SPARSE, {"structure": "ivf", "n_lists": 4, "n_probe": 2, "refine": "decoder"}),
    (DENSE, {"refine": "cosine"}),
    (SPARSE, {"structure": "ivf", "n_lists": 3, "n_probe": 3}),
    (SPARSE, {"refine": "vectors"}),
]


@cache
def index(number: int) -> posh.CodeIndex:
    """Another index for each number."""
    rng = np.random.default_rng(number)
    hasher, options = KINDS[number % len(KINDS)]
    made = posh.CodeIndex(hasher, **options)
    n = 97 + number  # enough for a decoder
    made.add(DATA[rng.permutation(len(DATA))[:n]], ids=np.arange(n) + 1000 * number)
    return made.delete([1000 * number + 3]) if number % 2 else made


def content(found: posh.CodeIndex) -> list[Any]:
    """Everything that can be asked of an index."""
    hits = found.search(DATA[::50], 8)
    return [
        asdict(found.options),
        model_subject.content(found.hasher),
        found.ids.tolist(),
        hits.ids.tolist(),
        hits.scores.tolist(),
    ]


@cache
def content_of(number: int) -> list[Any]:
    return content(index(number))


class IndexFolders(Subject):
    def step(self, root: Path, number: int) -> None:
        index(number).save(root / FOLDER)

    def judge(self, root: Path, acknowledged: int) -> None:
        path = root / FOLDER
        try:
            found = content(posh.CodeIndex.load(path, mmap=acknowledged % 2 == 1, verify=True))
        except FileNotFoundError:
            assert acknowledged == 0, "the acknowledged index is gone"
        else:
            known = [content_of(number) for number in (acknowledged - 1, acknowledged) if number >= 0]
            assert found in known, "neither the acknowledged index nor the next one"
        index(NEXT).save(path)
        assert content(posh.CodeIndex.load(path)) == content_of(NEXT), "the next save is not what is loaded"
