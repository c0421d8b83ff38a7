"""Model files: what was saved comes back, and a file that lies is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

import posh
from posh import _durable, _model_files
from tests.conftest import clusters

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    posh.POSH(16, 3, n_epochs=1, random_state=0).fit(clusters(50, 4)).save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scratch") / "model.safetensors"


def refused(path: Path, content: bytes, message: str | None = None) -> None:
    path.write_bytes(content)
    with pytest.raises(posh.FormatError, match=message):
        posh.Hasher.load(path)


def test_golden_model_of_version_1():
    expected = json.loads((GOLDEN / "posh-model-v1.json").read_text())
    hasher = posh.Hasher.load(GOLDEN / "posh-model-v1.safetensors")
    # The file does not name the reduction: it is of the time when there was only the paper's rule.
    assert hasher.get_params() == expected["params"] | {"reduce": "paper"}
    assert hasher.encode(np.array(expected["vectors"])).active.tolist() == expected["active"]


@given(data=st.data())
def test_a_flipped_bit_is_noticed(content, scratch, data):
    position = data.draw(st.integers(0, len(content) * 8 - 1))
    damaged = bytearray(content)
    damaged[position // 8] ^= 1 << position % 8
    refused(scratch, bytes(damaged))


@given(data=st.data())
def test_a_truncated_file_is_noticed(content, scratch, data):
    refused(scratch, content[: data.draw(st.integers(0, len(content) - 1))])


@given(st.binary(max_size=200))
def test_any_other_file_is_refused(scratch, junk):
    refused(scratch, junk)


def test_appended_bytes_are_noticed(content, scratch):
    refused(scratch, content + b"x")


def test_a_header_longer_than_the_file(content, scratch):
    refused(scratch, (1 << 60).to_bytes(8, "little") + content[8:], "bytes of header announced")


def rewritten(content: bytes, header: dict[str, str], arrays: dict[str, np.ndarray] | None = None) -> bytes:
    """A file with a correct checksum that says something else."""
    metadata = _model_files._parse_metadata(content) | header
    metadata.pop("sha256")
    arrays = load(content) | (arrays or {})
    return save(arrays, metadata=metadata | {"sha256": _model_files._compute_digest(metadata, arrays)})


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"format": "other"}, "expected a POSH model, found 'other'"),
        ({"version": "2"}, "expected format version 1, found '2': upgrade posh-ann"),
        ({"class": "Elsewhere"}, "found Elsewhere: import the module that defines it first"),
        ({"class": "LSH"}, "not a readable POSH model"),
        ({"params": "{"}, "not a readable POSH model"),
        ({"params": "[]"}, "not a readable POSH model"),
        ({"params": '{"n_bits": 1}'}, "expected n_bits"),
        ({"params": '{"colour": "red"}'}, "colour"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_header_that_lies(content, scratch, header, message):
    refused(scratch, rewritten(content, header), message)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"weights_": np.zeros((16, 5), np.float32)}, r"weights_ .* \(16, 4\)"),
        ({"weights_": np.zeros((15, 4), np.float32)}, r"weights_"),
        ({"weights_": np.zeros((16, 4))}, "weights_"),
        ({"weights_": np.full((16, 4), np.nan, np.float32)}, "weights_"),
        ({"mean": np.zeros((2, 2))}, "mean"),
        ({"scale": np.array(0.0)}, "scale"),
        ({"moment_": np.zeros((3, 4), np.float32)}, "moment_"),
        ({"counts_": np.zeros(3, np.int64)}, "counts_"),
        ({"counts_": np.full(16, -1)}, "counts_ to be at least 0, found -1"),
        ({"n_seen": np.array([-5, -5])}, "n_seen"),
        ({"n_iter": np.array(-3)}, "n_iter"),
        ({"components": np.zeros((4, 3), np.float32)}, "components"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_arrays_that_do_not_fit(content, scratch, arrays, message):
    refused(scratch, rewritten(content, {}, arrays), message)


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        posh.Hasher.load(tmp_path / "nothing")


def test_saving_to_a_missing_folder_names_the_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such folder, create it first: '.*missing'"):
        posh.LSH(8, random_state=0).fit(clusters(20, 4)).save(tmp_path / "missing" / "model")


def test_saving_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    hasher = posh.LSH(8, random_state=0).fit(clusters(20, 4))
    hasher.save(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        posh.LSH(8, random_state=1).fit(clusters(20, 4)).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_without_a_class(content, scratch):
    metadata = _model_files._parse_metadata(content)
    metadata.pop("sha256")
    metadata.pop("class")
    arrays = load(content)
    refused(
        scratch,
        save(arrays, metadata=metadata | {"sha256": _model_files._compute_digest(metadata, arrays)}),
        "class",
    )


def test_a_header_nested_without_end(scratch):
    deep = b"[" * 100_000
    refused(scratch, len(deep).to_bytes(8, "little") + deep)


def test_parameters_that_cannot_be_saved_are_named(tmp_path):
    hasher = posh.LSH(8, random_state=0).fit(clusters(20, 4))
    hasher.get_params = lambda deep: {"n_bits": 8, "shape": (1, 2)}
    with pytest.raises(TypeError, match=r"expected shape to be a number, a string or None"):
        hasher.save(tmp_path / "model")


def test_a_link_is_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    posh.LSH(8, random_state=0).fit(clusters(20, 4)).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert posh.LSH.load(tmp_path / "target").n_bits == 8


def test_column_names_are_kept(tmp_path):
    hasher = posh.LSH(8, random_state=0).fit(clusters(20, 4))
    hasher.feature_names_in_ = np.array(["a", "b", "c", "d"], object)
    hasher.save(tmp_path / "model")
    assert posh.LSH.load(tmp_path / "model").feature_names_in_.tolist() == ["a", "b", "c", "d"]


def test_a_random_state_object_does_not_prevent_saving(tmp_path):
    hasher = posh.LSH(np.int64(8), random_state=np.random.RandomState(0)).fit(clusters(20, 4))
    hasher.save(tmp_path / "model")
    loaded = posh.LSH.load(tmp_path / "model")
    assert loaded.random_state is None
    assert loaded.n_bits == 8


def test_new_folders_are_synced_in_their_parents(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(_durable, "sync_folder", synced.append)
    _durable.make_folder(tmp_path / "a" / "b")
    _durable.make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path.parent, tmp_path, tmp_path / "a", tmp_path / "a"]


def test_the_folder_of_a_model_is_synced_after_the_rename(tmp_path, monkeypatch):
    path = tmp_path / "model"
    there = []
    monkeypatch.setattr(_durable, "sync_folder", lambda folder: there.append((folder, path.exists())))
    posh.LSH(8, random_state=0).fit(clusters(20, 4)).save(path)
    assert there == [(tmp_path, True)]
