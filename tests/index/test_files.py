"""Index folders: what was saved comes back, lies are refused, an interrupted save harms nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import posh
from posh.index.open import load_index
from tests.conftest import clusters

DATA = clusters(400, 8)
SPARSE = posh.POSH(32, 4, n_epochs=1, random_state=0).fit(DATA)
DENSE = posh.LSH(12, random_state=0).fit(DATA)
GOLDEN = Path(__file__).parent.parent / "golden"

KINDS = {
    "exact": posh.CodeIndex(SPARSE),
    "decoder": posh.CodeIndex(SPARSE, refine="decoder", document_active=6, query_active=3),
    "vectors": posh.CodeIndex(SPARSE, refine="vectors", scoring="asymmetric"),
    "ivf": posh.CodeIndex(SPARSE, structure="ivf", n_lists=6, n_probe=2),
    "dense": posh.CodeIndex(DENSE),
    "nearest": posh.Index("euclidean", n_lists=3),
}
for _index in KINDS.values():
    _index.add(DATA[:300], ids=np.arange(1000, 1300)).delete([1003, 1200]).add(DATA[300:])


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("saved")
    for name, index in KINDS.items():
        index.save(root / name)
    return root


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("kind", list(KINDS))
def test_saved_and_loaded(saved, kind, mmap):
    index, loaded = KINDS[kind], load_index(saved / kind, mmap=mmap)
    assert repr(loaded) == repr(index)
    expected, found = index.search(DATA[:20], 12), loaded.search(DATA[:20], 12)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert found.kind == expected.kind
    changed = loaded.delete([1000]).add(DATA[:5]).update(DATA[:1], [1001]).compact()
    assert len(changed) == len(index) + 4


def test_an_empty_index_and_replacing_one(tmp_path):
    posh.CodeIndex(SPARSE).save(tmp_path / "index")
    assert len(posh.CodeIndex.load(tmp_path / "index")) == 0
    KINDS["exact"].save(tmp_path / "index")
    assert len(posh.CodeIndex.load(tmp_path / "index")) == 398
    names = sorted(entry.name.split("-")[0] for entry in (tmp_path / "index").iterdir())
    assert names == [".posh", "manifest.json", "posh"]


def test_other_files_are_not_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="expected an empty folder or a saved index"):
        KINDS["exact"].save(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_a_missing_index(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a saved index"):
        posh.CodeIndex.load(tmp_path / "nothing")


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".posh-lock")


@pytest.mark.parametrize("kind", list(KINDS))
@given(data=st.data())
def test_any_damage_is_noticed(saved, kind, data):
    copy = saved / f"{kind}-damaged"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(saved / kind, copy)
    file = data.draw(st.sampled_from(files_of(copy)))
    content = bytearray(file.read_bytes())
    how = data.draw(st.sampled_from(["flip", "cut", "grow", "remove", "swap"]))
    if how == "flip":
        position = data.draw(st.integers(0, len(content) * 8 - 1))
        content[position // 8] ^= 1 << position % 8
    elif how == "cut":
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    elif how == "grow":
        content += b"x"
    elif how == "swap":
        other = data.draw(st.sampled_from([f for f in files_of(copy) if f.read_bytes() != file.read_bytes()]))
        content = bytearray(other.read_bytes())
    file.unlink() if how == "remove" else file.write_bytes(content)
    with pytest.raises((posh.FormatError, FileNotFoundError)):
        load_index(copy)


def rewritten(folder: Path, name: str, array: np.ndarray) -> None:
    """Put another array into a folder, with correct checksums: only its meaning is wrong."""
    from posh import _durable

    manifest = json.loads((folder / "manifest.json").read_text())
    manifest.pop("sha256")
    file = folder / manifest["data"] / f"{name}.npy"
    np.save(file, array)
    content = file.read_bytes()
    manifest["files"][file.name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest["sha256"] = _durable._compute_digest(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("ids", np.arange(3)),
        ("ids", np.zeros(400)),
        ("codes", np.full((400, 4), 77, np.uint16)),
        ("codes", np.zeros((400, 5), np.uint16)),
        ("removed", np.array([400])),
        ("removed", np.array([-1])),
        ("parts", np.array([[0, 8, 40_000, 0]])),
        ("parts", np.array([[1 << 40, 8, 400, 0]])),
        ("parts", np.array([[-8, 8, 400, 0]])),
        ("parts", np.array([[0, 8, 300, 0]])),
        ("parts", np.zeros((0, 4), np.int64)),
        ("planes", np.zeros(5, np.uint64)),
        ("kept", np.zeros((400, 3), np.float32)),
    ],
    ids=lambda value: str(value)[:20].replace("\n", " "),
)
def test_arrays_that_do_not_fit(saved, tmp_path, name, array):
    shutil.copytree(saved / "exact", tmp_path / "index")
    rewritten(tmp_path / "index", name, array)
    with pytest.raises(posh.FormatError):
        posh.CodeIndex.load(tmp_path / "index")


@pytest.mark.parametrize("name", ["../../secret.npy", "/etc/passwd"])
def test_a_manifest_that_points_elsewhere(saved, tmp_path, name):
    from posh import _durable

    shutil.copytree(saved / "exact", tmp_path / "index")
    path = tmp_path / "index" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest.pop("sha256")
    manifest["files"][name] = {"bytes": 1, "sha256": ""}
    path.write_text(json.dumps(manifest | {"sha256": _durable._compute_digest(manifest)}))
    with pytest.raises(posh.FormatError, match="outside of its folder"):
        posh.CodeIndex.load(tmp_path / "index")


SAVER = """
import os, sys, posh
old, new = posh.CodeIndex.load(sys.argv[1]), posh.CodeIndex.load(sys.argv[2])
for _ in sys.stdin:  # a line asks for a process that saves until it is killed
    child = os.fork()
    while not child:
        new.save(sys.argv[3]); old.save(sys.argv[3])
    print(child, flush=True)
    os.waitpid(child, 0)
    print("killed", flush=True)
"""


def test_killed_at_any_moment_of_saving(tmp_path):
    X = np.resize(DATA, (20_000, 8))
    posh.CodeIndex(SPARSE).add(X[:15_000]).save(tmp_path / "old")
    posh.CodeIndex(SPARSE).add(X).save(tmp_path / "new")
    shutil.copytree(tmp_path / "old", tmp_path / "target")
    rng = np.random.default_rng(0)
    command = [sys.executable, "-c", SAVER, *(str(tmp_path / n) for n in ("old", "new", "target"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(8):
            process.stdin.write("save\n")
            process.stdin.flush()
            child = int(process.stdout.readline())
            time.sleep(rng.uniform(0, 0.3))
            os.kill(child, signal.SIGKILL)
            assert process.stdout.readline() == "killed\n"
            assert len(posh.CodeIndex.load(tmp_path / "target")) in (15_000, 20_000)
        process.stdin.close()
    KINDS["exact"].save(tmp_path / "target")
    assert len(list((tmp_path / "target").iterdir())) == 3


@pytest.mark.parametrize("kind", ["exact", "ivf"])
def test_golden_index_of_version_1(kind):
    expected = json.loads((GOLDEN / f"posh-index-v1-{kind}.json").read_text())
    for mmap in (False, True):
        hits = posh.CodeIndex.load(GOLDEN / f"posh-index-v1-{kind}", mmap=mmap).search(expected["queries"], 5)
        assert hits.ids.tolist() == expected["ids"]
        np.testing.assert_allclose(hits.scores, expected["scores"], rtol=1e-5)  # sums of floats


@pytest.mark.parametrize("kind", ["metric", "metric-int8"])
def test_golden_index_with_a_metric_of_version_1(kind, monkeypatch):
    """With the block kernels, which so few documents do not need. An index without a recall is measured."""
    monkeypatch.setattr("posh.index.nearest.lists.FEW", 100)
    expected = json.loads((GOLDEN / f"posh-index-v1-{kind}.json").read_text())
    for mmap in (False, True):
        index = posh.Index.load(GOLDEN / f"posh-index-v1-{kind}", mmap=mmap)
        hits = index.search(expected["queries"], 5, n_probe=2, slack=3.0, oversample=4.0)
        assert hits.ids.tolist() == expected["ids"]
        np.testing.assert_allclose(hits.scores, expected["scores"], rtol=1e-5)
    assert index.snapshot().lists.tuning is not None
    assert len(index.add(np.array(expected["queries"]))) == 133


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("kind", ["metric", "metric-int8"])
def test_golden_index_of_version_2(kind, mmap, tmp_path, monkeypatch):
    """Its blocks keep their padded columns, and so do files of it, until documents get new slots."""
    monkeypatch.setattr("posh.index.nearest.lists.FEW", 100)
    expected = json.loads((GOLDEN / f"posh-index-v2-{kind}.json").read_text())
    index = posh.Index.load(GOLDEN / f"posh-index-v2-{kind}", mmap=mmap)
    padded = -(-index.snapshot().n_features // 64) * 64
    for _ in range(2):
        hits = index.search(expected["queries"], 5, n_probe=2, slack=3.0, oversample=4.0)
        assert hits.ids.tolist() == expected["ids"]
        np.testing.assert_allclose(hits.scores, expected["scores"], rtol=1e-4)
        assert index.snapshot().lists.blocks.n_stored == padded
        index.save(tmp_path)
        index = posh.Index.load(tmp_path, mmap=mmap)
    index.add(np.array(expected["queries"]))
    found = index.search(expected["queries"], 5, slack=100.0, oversample=4.0)
    old, new = index.snapshot(), index.compact().snapshot()
    assert new.lists.blocks.n_stored == new.n_features
    assert new.memory_usage()["lists"] < old.memory_usage()["lists"]
    again = index.search(expected["queries"], 5, slack=100.0, oversample=4.0)
    np.testing.assert_allclose(again.scores, found.scores, rtol=1e-2)


@pytest.mark.parametrize("kind", ["exact", "ivf", "metric", "metric-int8"])
def test_an_index_of_version_1_is_saved_as_version_3(kind, tmp_path):
    old = load_index(GOLDEN / f"posh-index-v1-{kind}")
    old.save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    is_nearest = kind.startswith("metric")
    assert (manifest["version"], manifest["kind"]) == (3, "nearest" if is_nearest else "codes")
    assert ("hasher.safetensors" in manifest["files"]) == (not is_nearest)
    queries = json.loads((GOLDEN / f"posh-index-v1-{kind}.json").read_text())["queries"]
    again, expected = load_index(tmp_path).search(queries, 5), old.search(queries, 5)
    np.testing.assert_array_equal(again.ids, expected.ids)
    np.testing.assert_array_equal(again.scores, expected.scores)
