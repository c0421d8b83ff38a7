"""A folder with models and indexes of the bundled digits, which the tests of commands only read."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import posh

DIGITS = posh.datasets.load("digits")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models, indexes and files of vectors; tests write elsewhere."""
    folder = tmp_path_factory.mktemp("home")
    sparse = posh.POSH(128, 8, n_epochs=2, random_state=0).fit(DIGITS.base)
    sparse.save(folder / "digits.safetensors")
    posh.LSH(24, random_state=0).fit(DIGITS.base).save(folder / "dense.safetensors")
    posh.CodeIndex(sparse, refine="decoder").add(DIGITS.base).save(folder / "digits-index")
    posh.CodeIndex(sparse, structure="ivf", n_lists=40, n_probe=2).add(DIGITS.base).save(folder / "lists")
    posh.CodeIndex(sparse).add(DIGITS.base[:100]).save(folder / "few")
    posh.CodeIndex(sparse).add(DIGITS.base[::-1]).save(folder / "reversed")
    narrow = posh.LSH(8, random_state=0).fit(DIGITS.base[:, 20:28])
    posh.CodeIndex(narrow).add(DIGITS.base[:, 20:28]).save(folder / "narrow")
    np.save(folder / "queries.npy", DIGITS.queries[:7])
    np.save(folder / "wide.npy", np.eye(7))
    np.save(folder / "floats.npy", np.ones(5))
    np.save(folder / "ids.npy", np.arange(30, 60))
    np.save(folder / "mask.npy", np.isin(np.arange(len(DIGITS.base)), np.arange(30, 60)))
    (folder / "text").mkdir()
    (folder / "text" / "thesis.txt").write_text("precious")
    return folder


@pytest.fixture
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.delenv("POSH_DEBUG", raising=False)
    monkeypatch.setitem(sys.modules, "faiss", None)  # as if it were not installed
