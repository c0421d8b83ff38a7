"""The decoder of an index learns again as documents are added, whatever the parts in which they are."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import posh
from posh.index.codes import refine
from posh.index.codes.refine import choose_learning_size
from tests.conftest import clusters

DATA = clusters(700, 12).astype(np.float32)
SPARSE = posh.POSH(64, 6, n_epochs=3, random_state=0).fit(DATA)
FEW = "ignore:expected refine=.* to learn from:UserWarning"


def added(parts, *, index=None):
    index = posh.CodeIndex(SPARSE, refine="decoder") if index is None else index
    for start, stop in zip([0, *parts], parts, strict=False):
        index.add(DATA[start:stop])
    return index


def same(one, other):
    """Decoders, rows of documents and results are equal up to rounding."""
    a, b = one.snapshot(), other.snapshot()
    assert a.refiner.n_learned == b.refiner.n_learned
    np.testing.assert_allclose(a.refiner.decoder.weights_, b.refiner.decoder.weights_, atol=1e-5)
    np.testing.assert_allclose(a.refiner.decoder.mean_, b.refiner.decoder.mean_, atol=1e-9)
    np.testing.assert_allclose(a.refiner_rows.rows, b.refiner_rows.rows, rtol=1e-4, atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hits = [index.search(DATA[:20], 5, oversample=4.0) for index in (one, other)]
    np.testing.assert_allclose(hits[0].scores, hits[1].scores, rtol=1e-3, atol=1e-3)


@given(st.integers(1, 10**6))
def test_learning_sizes(n):
    size = choose_learning_size(n)
    assert 0.8 * min(n, refine.ENOUGH) <= size <= n
    assert choose_learning_size(size) == size
    assert len({choose_learning_size(m) for m in range(n, min(2 * n, n + 3000))}) <= 5


@given(st.lists(st.integers(1, 700), min_size=1, max_size=6, unique=True))
def test_several_additions_equal_one(ends):
    parts = sorted(ends)
    same(added(parts), added([parts[-1]]))


def test_single_documents_equal_one_addition():
    same(added(range(1, 400)), added([399]))


def test_the_decoder_is_that_of_all_documents_up_to_the_learning_size():
    index = added([1, 30, 650])
    codes = SPARSE.encode(DATA[:640])
    expected = posh.LinearDecoder(ridge=None).fit(codes, DATA[:640])
    refiner = index.snapshot().refiner
    np.testing.assert_allclose(refiner.decoder.weights_, expected.weights_, atol=1e-5)
    decoded = SPARSE.encode(DATA[:650]).to_csr() @ expected.weights_
    rows = index.snapshot().refiner_rows.rows
    np.testing.assert_allclose(rows[:, 0], np.square(decoded).sum(axis=1), rtol=1e-4)


def test_learning_ends_with_enough_documents(monkeypatch):
    monkeypatch.setattr(refine, "ENOUGH", 300)
    index, other = added([100, 350]), added([700])
    same(added([100, 350, 700]), other)
    weights = index.snapshot().refiner.decoder.weights_
    assert index.snapshot().refiner.training is None
    assert index.add(DATA[350:]).snapshot().refiner.decoder.weights_ is weights
    expected = posh.LinearDecoder(ridge=None).fit(SPARSE.encode(DATA[:300]), DATA[:300])
    np.testing.assert_allclose(weights, expected.weights_, atol=1e-5)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("n", [5, 100, 300])
def test_a_saved_index_goes_on_learning(tmp_path, n, mmap):
    added([n]).save(tmp_path / "index")
    loaded = posh.CodeIndex.load(tmp_path / "index", mmap=mmap)
    same(loaded, added([n]))
    same(loaded.add(DATA[n:650]), added([650]))


def test_copies_and_snapshots_learn_apart():
    index = added([100])
    before, other = index.snapshot(), copy.copy(index)
    rows, weights = before.refiner_rows.rows.copy(), before.refiner.decoder.weights_.copy()
    index.add(DATA[100:600])
    other.add(DATA[100:300])
    np.testing.assert_array_equal(before.refiner_rows.rows, rows)
    np.testing.assert_array_equal(before.refiner.decoder.weights_, weights)
    same(index, added([600]))
    same(other, added([300]))


def test_vectors_may_change_after_they_were_added():
    index, changing = added([100]), DATA[100:105].copy()
    index.add(changing)
    changing[:] = 0
    same(index.add(DATA[105:400]), added([400]))


@pytest.mark.parametrize("compact", [False, True])
def test_deleted_documents_stay_in_the_decoder(compact):
    index = added([300]).delete(np.arange(0, 300, 2))
    if compact:
        index.compact()
    index.add(DATA[300:650])
    whole = added([650])
    np.testing.assert_allclose(
        index.snapshot().refiner.decoder.weights_, whole.snapshot().refiner.decoder.weights_, atol=1e-5
    )
    hits = [i.search(DATA[:20], 5, oversample=130.0, filter=np.arange(1, 300, 2)) for i in (index, whole)]
    np.testing.assert_allclose(hits[0].scores, hits[1].scores, rtol=1e-3, atol=1e-3)


def test_a_trained_state_is_not_changed_by_additions():
    index = added([200])
    fresh = posh.CodeIndex(SPARSE, refine="decoder").snapshot()
    again = fresh.with_trained_state(index.snapshot().trained_state())
    grown = again.with_documents(np.arange(600), DATA[:600])
    weights = index.snapshot().refiner.decoder.weights_
    np.testing.assert_array_equal(grown.refiner.decoder.weights_, weights)
    trained = fresh.train(DATA[:200])
    weights = trained.refiner.decoder.weights_
    assert trained.with_documents(np.arange(600), DATA[:600]).refiner.decoder.weights_ is weights


@pytest.mark.parametrize("refine", ["decoder", "sbiht"])
def test_few_documents_are_warned_of(refine):
    index = posh.CodeIndex(SPARSE, refine=refine).add(DATA[:127])
    expected = rf"expected refine='{refine}' to learn from 128 documents or more \(2 per bit\), got 112"
    with pytest.warns(UserWarning, match=expected) as caught:
        index.search(DATA[:2])
    assert caught[0].filename == __file__
    index.add(DATA[127:128]).search(DATA[:2])


@pytest.mark.filterwarnings(FEW)
def test_a_file_without_sums_keeps_its_decoder(tmp_path):
    index = added([100])
    refiner = index.snapshot().refiner
    refiner.training = refiner.n_learned = None  # as older versions saved it
    index.save(tmp_path / "index")
    loaded = posh.CodeIndex.load(tmp_path / "index").add(DATA[100:])
    np.testing.assert_array_equal(loaded.snapshot().refiner.decoder.weights_, refiner.decoder.weights_)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nobody knows how many documents it learned from
        loaded.search(DATA[:2])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("decoder_seen", np.array(0), "decoder_seen to be at least 1"),
        ("decoder_seen", np.array(20_000), "fewer than 20,000 documents"),
        ("decoder_seen", np.array(3), "fewer than 20,000 documents, found"),
        ("decoder_gram", np.zeros((64, 63), np.uint16), "expected decoder_gram to be"),
        ("decoder_total", np.full(12, np.nan), "expected decoder_total to be finite"),
        ("decoder_learned", np.array(0), "decoder_learned to be at least 1"),
    ],
)
def test_wrong_sums_are_refused(name, value, message):
    arrays = added([100]).snapshot().refiner.to_arrays() | {name: value}
    refiner = posh.CodeIndex(SPARSE, refine="decoder").snapshot()._new_refiner()
    with pytest.raises(ValueError, match=message):
        refiner.restore(arrays)
