"""Model files: one is saved over the other."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import posh
from posh import _model_files
from tests.adversary.power_loss.subjects import Subject
from tests.conftest import clusters

DATA = clusters(200, 8).astype("float32")
NEXT = 999  # the model that is saved after a crash


@cache
def hasher(number: int) -> posh.Hasher:
    """A small or a larger model, another one for each number."""
    n_bits = [32, 1024, 512][number % 3]
    return posh.FruitFly(n_bits, 4, random_state=number).fit(DATA)


def content(found: posh.Hasher) -> list[Any]:
    """All of a hasher: its file has no order."""
    name, params, arrays, columns = _model_files.parse_model(found.to_bytes(), "model")
    return [name, params, columns, sorted((key, value.tobytes()) for key, value in arrays.items())]


@cache
def content_of(number: int) -> list[Any]:
    return content(hasher(number))


class ModelFiles(Subject):
    def step(self, root: Path, number: int) -> None:
        hasher(number).save(root / "model.safetensors")

    def judge(self, root: Path, acknowledged: int) -> None:
        path = root / "model.safetensors"
        try:
            found = content(posh.Hasher.load(path))
        except FileNotFoundError:
            assert acknowledged == 0, "the acknowledged model is gone"
        else:
            known = [content_of(number) for number in (acknowledged - 1, acknowledged) if number >= 0]
            assert found in known, "neither the acknowledged model nor the next one"
        hasher(NEXT).save(path)
        assert content(posh.Hasher.load(path)) == content_of(NEXT), "the next save is not what is loaded"
