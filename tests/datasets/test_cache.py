from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from posh.datasets import _fetch, data_dir
from posh.errors import FormatError


def test_data_dir_prefers_argument_then_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.delenv("POSH_DATA", raising=False)
    assert data_dir() == Path("/xdg/posh")
    monkeypatch.setenv("POSH_DATA", "~/vectors")
    assert data_dir() == Path.home() / "vectors"
    assert data_dir("/mine") == Path("/mine")


def test_data_dir_defaults_to_the_home_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("POSH_DATA", raising=False)
    assert data_dir() == Path.home() / ".cache" / "posh"


def test_store_and_read_back(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6).reshape(2, 3), "words": np.array(["x", "yz"])}
    _fetch.store(tmp_path / "set.v1", lambda work: _fetch.write_arrays(work, arrays))
    for key, array in arrays.items():
        np.testing.assert_array_equal(_fetch.read_array(tmp_path / "set.v1" / f"{key}.npy"), array)
    assert [path.name for path in tmp_path.iterdir()] == ["set.v1"]


def test_a_failing_fill_leaves_nothing_behind(tmp_path: Path) -> None:
    def fill(work: Path) -> None:
        (work / "half.npy").write_bytes(b"...")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        _fetch.store(tmp_path / "set.v1", fill)
    assert list(tmp_path.iterdir()) == []


def test_the_faster_process_wins(tmp_path: Path) -> None:
    def fill(work: Path) -> None:
        _fetch.store(tmp_path / "set.v1", lambda other: _fetch.write_arrays(other, {"a": np.zeros(1)}))
        _fetch.write_arrays(work, {"a": np.ones(1)})

    _fetch.store(tmp_path / "set.v1", fill)
    np.testing.assert_array_equal(_fetch.read_array(tmp_path / "set.v1" / "a.npy"), [0])
    assert [path.name for path in tmp_path.iterdir()] == ["set.v1"]


@pytest.mark.parametrize("mmap", [False, True])
def test_a_damaged_cache_says_what_to_delete(tmp_path: Path, mmap: bool) -> None:
    np.save(tmp_path / "a.npy", np.zeros(100))
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-8])
    with pytest.raises(FormatError, match=r"delete .* and load again"):
        _fetch.read_array(tmp_path / "a.npy", mmap=mmap)
