"""Mutated files by the thousand: a FormatError or the right answer, never a crash or a wrong one.

``POSH_FUZZ=100000`` sets how many; the default keeps the test short.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import posh
from tests.conftest import clusters

N = int(os.environ.get("POSH_FUZZ", "1500"))
DATA = clusters(300, 8)
HASHER = posh.POSH(32, 4, n_epochs=1, random_state=0).fit(DATA)


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Flip bits, cut, repeat, overwrite a stretch, or put hostile lengths where numbers may stand."""
    data = bytearray(content)
    match rng.integers(5):
        case 0:
            for _ in range(int(rng.integers(1, 4))):
                data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        case 1:
            del data[int(rng.integers(len(data))) :]
        case 2:
            start = int(rng.integers(len(data)))
            data[start:start] = data[start : start + int(rng.integers(1, 64))] or b"x"
        case 3:
            start = int(rng.integers(len(data)))
            data[start : start + 16] = rng.bytes(16)
        case 4:
            start = int(rng.integers(max(1, len(data) - 8)))
            hostile = (0, 2**31, 2**63 - 1, 2**64 - 1)[int(rng.integers(4))]
            data[start : start + 8] = hostile.to_bytes(8, "little")
    return bytes(data)


def refused_or_unchanged(load, expected) -> bool:
    try:
        return load() == expected
    except (posh.FormatError, FileNotFoundError):
        return True


def test_model_files(tmp_path):
    path = tmp_path / "model"
    HASHER.save(path)
    content = path.read_bytes()
    expected = HASHER.encode(DATA)
    rng = np.random.default_rng(0)
    for _ in range(N):
        path.write_bytes(mutated(content, rng))
        assert refused_or_unchanged(lambda: posh.Hasher.load(path).encode(DATA), expected)


@pytest.mark.parametrize(
    "options", [{"refine": "decoder"}, {"structure": "ivf", "n_lists": 4}], ids=["exact", "ivf"]
)
def test_index_folders(tmp_path, options):
    original, copy = tmp_path / "original", tmp_path / "copy"
    index = posh.CodeIndex(HASHER, **options).add(DATA).delete([7])
    index.save(original)
    expected = index.search(DATA[:5], 4).ids.tolist()
    rng = np.random.default_rng(1)
    shutil.copytree(original, copy)
    files = sorted(path for path in original.rglob("*") if path.is_file() and path.name != ".posh-lock")
    for _ in range(N):
        file = files[int(rng.integers(len(files)))]
        target = copy / file.relative_to(original)
        target.write_bytes(mutated(file.read_bytes(), rng))
        assert refused_or_unchanged(lambda: posh.Index.load(copy).search(DATA[:5], 4).ids.tolist(), expected)
        target.write_bytes(file.read_bytes())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # damaged numbers may overflow
def test_mapped_index_folders_do_not_crash(tmp_path, monkeypatch):
    """Without checksums an answer may be wrong, but nothing is read astray, and a broken form is named."""
    monkeypatch.setattr("posh._durable._SMALL", 0)  # as if all files were large
    original, copy = tmp_path / "original", tmp_path / "copy"
    posh.CodeIndex(HASHER, refine="decoder").add(DATA).save(original)
    rng = np.random.default_rng(2)
    shutil.copytree(original, copy)
    files = sorted(path for path in original.rglob("*.npy"))
    for _ in range(N):
        file = files[int(rng.integers(len(files)))]
        target = copy / Path(file.relative_to(original))
        target.write_bytes(
            mutated(file.read_bytes(), rng)[: file.stat().st_size].ljust(file.stat().st_size, b"\0")
        )
        with contextlib.suppress(posh.FormatError, ValueError):
            posh.Index.load(copy, mmap=True).search(DATA[:5], 4)
        shutil.copy(file, target)
