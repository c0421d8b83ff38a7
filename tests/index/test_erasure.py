"""``Index.save`` writes nothing of deleted documents, and the saved index gives the same answers."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from posh.index.open import load_index
from tests.leftovers import files_with, forms_of

RNG = np.random.default_rng(5)
X = RNG.standard_normal((6000, 40)).astype(np.float32)
QUERIES = RNG.standard_normal((30, 40)).astype(np.float32)
DELETED = np.sort(RNG.permutation(6000)[:1500])
SPARSE = posh.POSH(n_bits=128, n_active=16, random_state=0).fit(X)
KINDS = {
    "segments": lambda: posh.CodeIndex(SPARSE),
    "lists": lambda: posh.CodeIndex(SPARSE, structure="ivf", n_lists=8, refine="vectors"),
    "packed": lambda: posh.CodeIndex(posh.LSH(256, random_state=0).fit(X), refine="cosine"),
    "cosine": lambda: posh.Index(metric="cosine"),
    "float16": lambda: posh.Index(metric="dot", store="float16"),
    "int8": lambda: posh.Index(metric="euclidean", store="int8"),
    "exact": lambda: posh.Index(metric="euclidean"),
}
IDS = [RNG.bytes(10).hex() for _ in range(6000)]


def arrays_of(folder) -> dict[str, np.ndarray]:
    (data,) = folder.glob("posh-data-*")
    return {path.stem: np.load(path) for path in data.glob("*.npy")}


@pytest.fixture(scope="module", params=KINDS)
def saved(request, tmp_path_factory):
    """An index of which documents were deleted, and folders from before and after that."""
    folder = tmp_path_factory.mktemp("erased")
    index = KINDS[request.param]().add(X, IDS)
    index.save(folder / "before")
    index.delete([IDS[i] for i in DELETED]).save(folder / "after")
    return index, folder


def test_deleted_documents_are_not_written(saved):
    _, folder = saved
    secrets = [IDS[i].encode() for i in DELETED]
    for vector in X[DELETED]:
        secrets += [*forms_of(vector), *forms_of(vector / np.linalg.norm(vector))]
    assert "id_text.npy" in files_with(folder / "before", secrets)
    assert files_with(folder / "after", secrets) == set()


@pytest.mark.parametrize("mmap", [False, True])
def test_answers_are_the_same(saved, mmap):
    index, folder = saved
    found, again = (one.search(QUERIES, 20) for one in (index, load_index(folder / "after", mmap=mmap)))
    np.testing.assert_array_equal(again.ids, found.ids)
    np.testing.assert_array_equal(again.scores, found.scores)


def test_codes_of_deleted_documents_have_no_bits(saved):
    _, folder = saved
    before, after = (arrays_of(folder / name) for name in ("before", "after"))
    for name in {"codes", "kept"} & set(after):
        assert not after[name][DELETED].any()
    n_bits, n_active = before.get("code_shape", (SPARSE.n_bits, SPARSE.n_active))
    for name in ("planes", "blocks"):
        if name in before:
            n_set = [count_set_bits(n_bits, arrays, name) for arrays in (before, after)]
            np.testing.assert_array_equal(n_set, np.array([6000, 4500]) * n_active)


def count_set_bits(n_bits: int, arrays: dict[str, np.ndarray], name: str) -> int:
    """Return the number of set bits in all codes that planes hold."""
    parts = [arrays["planes"]] if name == "planes" else []
    for offset, _, n in arrays.get("block_table", np.empty((0, 3), np.int64)).tolist():
        parts.append(arrays["blocks"][offset : offset + n_bits * 32 * -(-n // 256)])
    return sum(int(np.unpackbits(part.view(np.uint8)).sum()) for part in parts)


def test_eight_bit_numbers_of_deleted_documents_are_gone(tmp_path):
    """All that is left of them is the centroid of the list that they were in."""
    index = KINDS["int8"]().add(X).delete(DELETED)
    index.save(tmp_path / "index")
    structure = posh.Index.load(tmp_path / "index").snapshot().lists
    centroids = {row.tobytes() for row in structure.space.centroids}
    assert {row.tobytes() for row in structure.vectors(DELETED)} <= centroids
    live = np.setdiff1d(np.arange(6000), DELETED)
    kept = index.snapshot().lists.vectors(live)
    np.testing.assert_array_equal(structure.vectors(live), kept)
