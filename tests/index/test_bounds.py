"""Whatever is asked for, the work is bounded by the documents that there are; none gives no hits."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import posh
from tests.conftest import clusters

DATA = clusters(400, 8).astype(np.float32)
SPARSE = posh.POSH(32, 4, n_epochs=1, random_state=0).fit(DATA)
DENSE = posh.LSH(12, random_state=0).fit(DATA)
IVF = {"structure": "ivf", "n_lists": 3}
REFINERS = (None, "decoder", "sbiht", "vectors", "cosine")
KINDS = {
    f"{structure.get('structure', 'exact')}-{scoring}-{refine}": (
        SPARSE,
        {**structure, "scoring": scoring, "refine": refine},
    )
    for structure in ({}, IVF)
    for scoring in ("overlap", "asymmetric")
    for refine in REFINERS
} | {f"dense-{refine}": (DENSE, {"refine": refine}) for refine in (None, "vectors", "cosine")}

pytestmark = pytest.mark.filterwarnings("ignore:expected refine=.* to learn from:UserWarning")


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("n_queries", [0, 1, 40])
def test_no_hits_after_everything_was_removed(kind, n_queries):
    hasher, options = KINDS[kind]
    index = posh.CodeIndex(hasher, **options).add(DATA[:50]).delete(np.arange(50))
    for again in (index, index.compact()):
        for filter_ in (None, [3], np.zeros(0, bool)):
            hits = again.search(DATA[:n_queries], 5, filter=filter_)
            assert (hits.ids == np.full((n_queries, 5), -1)).all()
            assert (hits.scores == np.full((n_queries, 5), -np.inf)).all()
            assert (hits.ids.dtype, hits.scores.dtype) == (np.int64, np.float32)
    assert index.add(DATA[:3]).search(DATA[:1], 5).ids.tolist()[0][3:] == [-1, -1]


@pytest.mark.parametrize("refine", REFINERS)
@pytest.mark.parametrize("scoring", ["overlap", "asymmetric"])
def test_no_hits_in_a_collection_after_everything_was_deleted(tmp_path, refine, scoring):
    with posh.Collection(tmp_path, SPARSE, refine=refine, scoring=scoring) as collection:
        collection.upsert([str(i) for i in range(20)], DATA[:20])
        collection.delete([str(i) for i in range(20)])
        collection.compact()
        hits = collection.search(DATA[:2], 3)
        assert (np.asarray(hits.ids) == None).all()  # noqa: E711  # element by element
        assert (hits.scores == -np.inf).all()


@pytest.mark.parametrize("kind", list(KINDS))
def test_more_is_asked_for_than_there_is(kind):
    hasher, options = KINDS[kind]
    index = posh.CodeIndex(hasher, n_probe=3, **options).add(DATA[:30]).delete([0, 7])
    exact = index.search(DATA[:5], 28, oversample=1.0)
    assert (exact.ids >= 0).all()
    for oversample in (1.0, 1e300):
        hits = index.search(DATA[:5], 1000, oversample=oversample)
        np.testing.assert_array_equal(hits.ids[:, :28], exact.ids)
        np.testing.assert_array_equal(hits.scores[:, :28], exact.scores)
        assert (hits.ids[:, 28:] == -1).all()
        assert (hits.scores[:, 28:] == -np.inf).all()


@pytest.mark.parametrize("kind", list(KINDS))
def test_memory_is_that_of_the_answer(kind):
    hasher, options = KINDS[kind]
    index = posh.CodeIndex(hasher, **options).add(DATA, ids=np.arange(1000, 1400))
    k = 2_000_000
    tracemalloc.start()
    try:
        hits = index.search(DATA[:1], k)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert hits.ids.shape == (1, k)
    assert peak < 1.25 * (hits.ids.nbytes + hits.scores.nbytes) + 5e6


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_oversample_is_finite(value):
    index = posh.CodeIndex(SPARSE, refine="vectors").add(DATA)
    with pytest.raises(ValueError, match=r"expected oversample in \[1, inf\), got (inf|nan)"):
        index.search(DATA[:1], oversample=value)
    with pytest.raises(ValueError, match=r"expected oversample in \[1, inf\), got (inf|nan)"):
        posh.CodeIndex(SPARSE, refine="vectors", oversample=value)


@pytest.mark.parametrize(
    ("hasher", "options"), [(SPARSE, {}), (SPARSE, IVF), (DENSE, {})], ids=["exact", "ivf", "dense"]
)
def test_a_mask_need_not_cover_removed_ids(hasher, options):
    index = (
        posh.CodeIndex(hasher, **options).add(DATA[:20]).add(DATA[20:30], ids=np.arange(10**12, 10**12 + 10))
    )
    index.delete(np.r_[10**12 : 10**12 + 10, 15:20])
    mask = np.ones(15, bool)
    mask[3] = False
    for _ in range(2):
        found = index.search(DATA[:4], 40, filter=mask, n_probe=3).ids
        assert np.unique(found).tolist() == [-1, 0, 1, 2, *range(4, 15)]
        with pytest.raises(ValueError, match=r"longer than the largest id \(14\), got length 14"):
            index.search(DATA[:4], filter=mask[:14])
        index.compact()
    for none in ([17, 10**12], [], ()):
        assert (index.search(DATA[:4], 5, filter=none).ids == -1).all()
