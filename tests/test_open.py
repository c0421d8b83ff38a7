"""``posh.open`` and ``posh.create``."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import posh
from tests.collection.implementations import DATA, SPARSE


def test_a_collection_is_made_and_opened(tmp_path):
    with posh.create(tmp_path / "shop", SPARSE, metadata={"a": 1}, refine="vectors") as shop:
        shop.upsert(["x"], DATA[:1])
    with posh.open(tmp_path / "shop") as shop:
        assert isinstance(shop, posh.Collection)
        assert (len(shop), shop.metadata, shop.index_options["refine"]) == (1, {"a": 1}, "vectors")


def test_an_index_and_a_hasher_are_opened(tmp_path):
    posh.CodeIndex(SPARSE).add(DATA[:10]).save(tmp_path / "index")
    SPARSE.save(tmp_path / "hasher.safetensors")
    assert len(posh.open(tmp_path / "index")) == 10
    assert posh.open(str(tmp_path / "hasher.safetensors")).encode(DATA) == SPARSE.encode(DATA)


def test_a_typo_is_an_error_that_says_what_was_looked_for(tmp_path):
    message = "expected a collection .*, a saved index .* or a hasher file, found nothing: create a"
    with pytest.raises(FileNotFoundError, match=message) as caught:
        posh.open(tmp_path / "shpo")
    assert caught.value.filename == str(tmp_path / "shpo")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(posh.FormatError, match="found a folder with none of these"):
        posh.open(tmp_path)
    (tmp_path / "text").write_text("no hasher")
    with pytest.raises(posh.FormatError):
        posh.open(tmp_path / "text")


def test_what_exists_is_not_made_again(tmp_path):
    posh.create(tmp_path / "shop", metadata={"a": 1}).close()
    with pytest.raises(FileExistsError, match="expected a path without a collection, found one"):
        posh.create(tmp_path / "shop", metadata={"a": 2})
    with posh.open(tmp_path / "shop") as shop:
        assert shop.metadata == {"a": 1}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="expected an empty folder or a collection"):
        posh.create(tmp_path / "other")
    (tmp_path / "empty").mkdir()
    posh.create(tmp_path / "empty").close()


def test_of_many_who_make_a_collection_one_succeeds(tmp_path):
    """The others get an error, whether the collection is complete or in the making."""
    outcomes = []
    start = threading.Barrier(8)

    def make(number: int) -> None:
        start.wait()
        try:
            posh.create(tmp_path / "shop", metadata={"n": number}).close()
            outcomes.append(number)
        except (FileExistsError, posh.StorageError):
            pass

    threads = [threading.Thread(target=make, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with posh.open(tmp_path / "shop") as shop:
        assert outcomes == [shop.metadata["n"]]


def test_index_keeps_scores_above_a_threshold():
    index = posh.CodeIndex(SPARSE).add(DATA)
    everything, some = index.search(DATA[:5], 50), index.search(DATA[:5], 50, min_score=3)
    good = everything.scores >= 3
    assert 0 < good.sum() < good.size
    np.testing.assert_array_equal(some.ids, np.where(good, everything.ids, -1))
    np.testing.assert_array_equal(some.scores, np.where(good, everything.scores, -np.inf))
