"""Saved indexes with a metric whose files are damaged or lie: an error that says so, or an answer.

Checksums notice damage. A lie has right checksums: another program wrote the files. Then answers may be
wrong, but nothing is read astray, and every error is one that a caller expects.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import posh
from posh.index.nearest.vectors import BlockLayout
from tests.conftest import CASES, clusters
from tests.index.test_files import files_of, rewritten

X = clusters(500, 24, n_clusters=3, seed=1).astype(np.float32)
Q = X[::100] + np.float32(0.1)
KINDS = {
    "float32": {"metric": "cosine", "recall": 0.9, "n_lists": 3},
    "float16": {"metric": "dot", "store": "float16", "n_lists": 3},
    "int8": {"metric": "euclidean", "store": "int8", "n_lists": 3},
    "one list": {"metric": "cosine", "n_lists": 1},
    "reduced": {"metric": "euclidean", "n_lists": 3},
}

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numbers that lie may overflow
    pytest.mark.usefixtures("_small"),
]


@pytest.fixture(scope="module")
def _small():
    """Few documents are searched in blocks, too, and narrow vectors reduced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("posh.index.nearest.lists.FEW", 100)
        patch.setattr("posh.index.nearest.space._STEP", 4)
        yield patch


@pytest.fixture(scope="module")
def saved(_small, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("saved")
    flat = X @ np.linalg.qr(np.random.default_rng(0).normal(size=(24, 24)))[0]
    flat[:, 6:] *= 0.01
    for name, options in KINDS.items():
        with pytest.MonkeyPatch.context() as patch:
            if name == "reduced":
                patch.setattr("posh.index.nearest.space._WIDE", 24)
            index = posh.Index(**options).add(flat if name == "reduced" else X).delete([7, 300])
        assert ("reduction" in index.snapshot().lists.to_arrays()) == (name == "reduced")
        index.save(root / name)
    return root


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    return {file.stem: np.load(file) for file in sorted(folder.rglob("*.npy"))}


SEARCHES = ({}, {"filter": np.arange(0, 500, 3)}, {"slack": 9.0, "n_probe": 3, "oversample": 5.0})


def used(folder: Path, **how: bool) -> None:
    """Everything that reads an index; a wrong answer names documents that there are."""
    with suppress(posh.FormatError, ValueError):
        index = posh.Index.load(folder, **how)
        known = {-1, *index.snapshot().id_column.rows.rows.tolist()}
        for options in SEARCHES:
            for queries in (Q, Q[:1]):
                hits = index.search(queries, 5, **options)
                assert hits.ids.shape == (len(queries), 5)
                assert set(hits.ids.ravel().tolist()) <= known
        index.add(X[:3])
        index.delete(index.snapshot().ids[-1:]).compact().search(Q, 5)


def lied(saved: Path, tmp_path: Path, kind: str, lies: dict[str, np.ndarray]) -> None:
    folder = tmp_path / "lied"
    shutil.copytree(saved / kind, folder)
    for name, array in lies.items():
        rewritten(folder, name, array)
    used(folder)
    used(folder, mmap=True, verify=False)
    shutil.rmtree(folder)


def flat_set(array: np.ndarray, value: float, position: int) -> np.ndarray:
    changed = array.copy()
    changed.reshape(-1)[position] = value
    return changed


def values_of(dtype: np.dtype) -> list[float]:
    """Numbers at the ends of what a dtype holds, and nearer ones that are wrong in most places."""
    if dtype.kind == "f":
        most = float(np.finfo(dtype).max)
        return [0.0, -1.0, most, -most, float(np.finfo(dtype).tiny), np.nan, np.inf, 1e4]
    return [int(np.iinfo(dtype).max), int(np.iinfo(dtype).min), 0, 1, 3, 77]


def lies_of(array: np.ndarray) -> list:
    """Functions that make another array."""
    lies = [
        lambda a: a.astype(np.float64 if a.dtype != np.float64 else np.float32),
        lambda a: a[None],
        lambda a: a.reshape(-1),
        lambda a: np.zeros(()),
    ]
    if array.ndim:
        lies += [
            lambda a: a[:-1],
            lambda a: a[:0],
            lambda a: np.concatenate([a, a]),
            lambda a: a[::-1].copy(),
        ]
    if array.ndim == 2:
        lies += [lambda a: a.T.copy(), lambda a: a[:, :-1].copy(), lambda a: np.asfortranarray(a)]
    for value in values_of(array.dtype):
        lies.append(partial(np.full_like, fill_value=value))
        if array.size:
            lies += [partial(flat_set, value=value, position=at) for at in (0, array.size // 2, -1)]
    return lies


def a_slice(cases: list) -> list:
    """Some of all cases, others for each kind of case; ``POSH_CASES=5000`` tries all."""
    order = np.random.default_rng(len(cases)).permutation(len(cases))
    return [cases[i] for i in order[: 3 * CASES]]


def test_one_array_lies(saved, tmp_path):
    contents = {kind: arrays_of(saved / kind) for kind in KINDS}
    cases = [
        (kind, name, lie)
        for kind in KINDS
        for name, array in contents[kind].items()
        for lie in lies_of(array)
    ]
    for kind, name, lie in a_slice(cases):
        lied(saved, tmp_path, kind, {name: lie(contents[kind][name])})


def test_two_arrays_are_swapped(saved, tmp_path):
    contents = {kind: arrays_of(saved / kind) for kind in KINDS}
    cases = [(kind, *pair) for kind in KINDS for pair in combinations(contents[kind], 2)]
    for kind, one, other in a_slice(cases):
        lied(saved, tmp_path, kind, {one: contents[kind][other], other: contents[kind][one]})


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_a_slot_without_a_document_is_named(saved, tmp_path, kind):
    shutil.copytree(saved / kind, tmp_path / "index")
    arrays = arrays_of(saved / kind)
    blocks, (offset, _, n) = arrays["blocks"], arrays["block_table"][-1].tolist()
    BlockLayout(256, 24).split(blocks[offset:], n).slots[-1] = 255
    rewritten(tmp_path / "index", "blocks", blocks)
    index = posh.Index.load(tmp_path / "index")
    with pytest.raises(posh.FormatError, match="the slots of documents"):
        index.search(X, 5, slack=100.0, n_probe=3)
    with pytest.raises(posh.FormatError, match="the slots of documents"):
        index.search(X, 5, filter=np.arange(500), slack=100.0, n_probe=3)
    if kind == "int8":
        with pytest.raises(posh.FormatError, match="the slots of documents"):
            index.compact()


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        ("tuned_codes", lambda a: a * [1, 1, -1, 1]),
        ("reach_lifts", np.zeros_like),
        ("reach_powers", np.zeros_like),
        ("reach_ranks", lambda a: a[::-1].copy()),
        ("reach_recalls", lambda a: a + 1),
        ("drift", lambda a: -a),
    ],
)
def test_measurements_that_cannot_be_are_refused(saved, tmp_path, name, lie):
    shutil.copytree(saved / "float32", tmp_path / "index")
    rewritten(tmp_path / "index", name, lie(arrays_of(saved / "float32")[name]))
    with pytest.raises(posh.FormatError, match="expected"):
        posh.Index.load(tmp_path / "index")


def test_vectors_column_by_column_are_the_same_vectors(saved, tmp_path):
    shutil.copytree(saved / "float32", tmp_path / "index")
    rewritten(tmp_path / "index", "vectors", np.asfortranarray(arrays_of(saved / "float32")["vectors"]))
    expected = posh.Index.load(saved / "float32").search(Q, 5)
    for mmap in (False, True):
        found = posh.Index.load(tmp_path / "index", mmap=mmap).search(Q, 5)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.scores, expected.scores)


@given(data=st.data())
@settings(max_examples=CASES)
def test_some_numbers_lie(saved, tmp_path_factory, data):
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    arrays = arrays_of(saved / kind)
    lies = {}
    for name in data.draw(st.lists(st.sampled_from(sorted(arrays)), min_size=1, max_size=3, unique=True)):
        array = lies[name] = arrays[name].copy()
        numbers, size = array.reshape(-1).view(np.uint8), array.nbytes
        for _ in range(data.draw(st.integers(1, 4)) if size else 0):
            if data.draw(st.booleans()):
                numbers[data.draw(st.integers(0, size - 1))] ^= 1 << data.draw(st.integers(0, 7))
            else:
                value = data.draw(st.sampled_from(values_of(array.dtype)))
                array.reshape(-1)[data.draw(st.integers(0, array.size - 1))] = value
    lied(saved, tmp_path_factory.mktemp("lies"), kind, lies)


@given(data=st.data())
@settings(max_examples=CASES)
def test_damage_is_noticed_or_harmless(saved, tmp_path_factory, data):
    """With checksums it is noticed. Where nobody asked for those of large files, nothing is read astray."""
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    copy = tmp_path_factory.mktemp("damaged") / "index"
    shutil.copytree(saved / kind, copy)
    file = data.draw(st.sampled_from(files_of(copy)))
    content = bytearray(file.read_bytes())
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        start = data.draw(st.integers(0, len(content) - 1))
        content[start : start + 16] = data.draw(st.binary(min_size=16, max_size=16))[: len(content) - start]
    if bytes(content) != file.read_bytes():
        file.write_bytes(content)
        for mmap in (False, True):
            with pytest.raises((posh.FormatError, FileNotFoundError)):
                posh.Index.load(copy, mmap=mmap)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("posh._durable._SMALL", -1)  # as if all files were large
        used(copy, mmap=True, verify=False)
        used(copy, verify=False)
    file.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises((posh.FormatError, FileNotFoundError)):
        posh.Index.load(copy, mmap=True, verify=False)
    shutil.rmtree(copy.parent)
