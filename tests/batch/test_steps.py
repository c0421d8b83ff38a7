"""Every step gives what one process with all vectors gives, and finished parts are not made again."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

import posh
from posh import batch
from posh.batch import steps
from tests.batch.doing import DIGITS, SIZES, Here, all_steps, equal, write_npy, write_parquet


@pytest.fixture
def shards(tmp_path):
    write_npy(tmp_path / "shards")
    return [tmp_path / "shards"]


@pytest.fixture(scope="module")
def hasher():
    return posh.POSH(128, 8, n_epochs=2, random_state=0).fit(DIGITS.base)


@pytest.fixture
def model(hasher, tmp_path):
    hasher.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_fit_on_all_vectors_is_the_fit_of_one_process(shards, hasher, tmp_path):
    own = posh.POSH(128, 8, n_epochs=2, random_state=0)
    outcome = batch.fit(shards, own, tmp_path / "model", Here(), n_sample=10**6)
    assert outcome.n_rows == len(DIGITS.base)
    assert posh.Hasher.load(tmp_path / "model").encode(DIGITS.queries) == hasher.encode(DIGITS.queries)
    assert not hasattr(own, "weights_")


def test_a_sample_is_random_distinct_and_the_same_for_any_shards(shards, tmp_path):
    whole = tmp_path / "whole.npy"
    np.save(whole, DIGITS.base)
    fitted = {}
    for name, paths, seed in (("a", shards, 0), ("b", [whole], 0), ("c", shards, 1)):
        method = posh.POSH(64, 4, n_epochs=1, random_state=0)
        outcome = batch.fit(paths, method, tmp_path / name, Here(), n_sample=300, random_state=seed)
        assert outcome.n_rows == 300
        fitted[name] = posh.Hasher.load(tmp_path / name).weights_
    np.testing.assert_array_equal(fitted["a"], fitted["b"])
    assert not np.array_equal(fitted["a"], fitted["c"])


def test_a_fit_is_done_again_only_for_other_vectors(shards, tmp_path):
    def fit(workers):
        method = posh.POSH(64, 4, n_epochs=1, random_state=0)
        return batch.fit(shards, method, tmp_path / "model", workers, n_sample=300)

    fit(Here())
    again = Here()
    assert fit(again).n_resumed == len(SIZES)
    assert again.made == []
    np.save(shards[0] / "3.npy", DIGITS.base[-SIZES[-1] :] + 1)
    assert fit(again).n_resumed == 0
    assert list(tmp_path.glob(".model*")) == []


def test_codes_are_those_of_one_process(shards, model, hasher, tmp_path):
    outcome = batch.encode(model, shards, tmp_path / "codes", Here())
    assert outcome[1:4] == (4, 0, len(DIGITS.base))
    assert outcome.cpu_seconds > 0
    ids, codes = zip(*batch.read_codes(tmp_path / "codes"), strict=True)
    assert [len(some) for some in codes] == list(SIZES)
    np.testing.assert_array_equal(np.concatenate(ids), np.arange(len(DIGITS.base)))
    np.testing.assert_array_equal(
        np.concatenate([some.active for some in codes]), hasher.encode(DIGITS.base).active
    )


def test_dense_codes(shards, tmp_path):
    hasher = posh.LSH(20, random_state=0).fit(DIGITS.base)
    hasher.save(tmp_path / "model")
    batch.encode(tmp_path / "model", shards, tmp_path / "codes", Here())
    (_, first), *_ = batch.read_codes(tmp_path / "codes")
    assert first == hasher.encode(DIGITS.base[: SIZES[0]])


ALL = {"oversample": len(DIGITS.base)}  # one index refines other candidates than several: refine everything


@pytest.mark.parametrize(
    ("options", "asked"),
    [({}, {}), ({"scoring": "asymmetric"}, {}), ({"refine": "decoder"}, ALL), ({"refine": "cosine"}, ALL)],
    ids=["overlap", "asymmetric", "decoder", "cosine"],
)
def test_results_are_those_of_one_index(shards, hasher, tmp_path, options, asked):
    batch.build(shards, tmp_path / "index", posh.CodeIndex(hasher, **options), Here())
    batch.search(
        tmp_path / "index",
        DIGITS.queries,
        tmp_path / "hits",
        Here(),
        k=10,
        n_at_once=64,
        shards_at_once=3,
        **asked,
    )
    one = posh.CodeIndex.load(tmp_path / "index" / "template" / "index").add(DIGITS.base)
    # The same 64 queries at a time: the last bits of a matrix product depend on its number of rows.
    expected = [
        one.search(DIGITS.queries[i : i + 64], k=10, **asked) for i in range(0, len(DIGITS.queries), 64)
    ]
    hits = batch.read_hits(tmp_path / "hits")
    np.testing.assert_array_equal(hits.ids, np.concatenate([some.ids for some in expected]))
    np.testing.assert_array_equal(hits.scores, np.concatenate([some.scores for some in expected]))
    assert hits.kind == expected[0].kind


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot"])
def test_results_of_a_metric_are_those_of_one_index(shards, tmp_path, metric):
    index = posh.Index(metric=metric, recall=0.95)
    batch.build(shards, tmp_path / "index", index, Here())
    batch.search(tmp_path / "index", DIGITS.queries, tmp_path / "hits", Here(), k=10, exact=True)
    one = posh.Index.load(tmp_path / "index" / "template" / "index").add(DIGITS.base)
    equal(batch.read_hits(tmp_path / "hits"), one.search(DIGITS.queries, k=10, exact=True))


def test_a_metric_with_lists_finds_the_recall_that_was_asked_for(tmp_path):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(100, 24))
    X = (centres[rng.integers(100, size=8_300)] + 0.5 * rng.normal(size=(8_300, 24))).astype(np.float32)
    base, queries = X[:-300], X[-300:]
    for i, part in enumerate(np.array_split(base, 2)):
        np.save(tmp_path / f"{i}.npy", part)
    index = posh.Index(metric="euclidean", recall=0.9)
    batch.build([tmp_path / "*.npy"], tmp_path / "index", index, Here())
    centroids = []
    for part in ("part-00000", "part-00001"):
        opened = posh.Index.load(tmp_path / "index" / part / "index")
        assert opened.snapshot().n_measured == len(base) // 2
        centroids.append(opened.snapshot().trained_state()["centroids"])
    np.testing.assert_array_equal(*centroids)
    batch.search(tmp_path / "index", queries, tmp_path / "hits", Here(), k=10)
    batch.search(tmp_path / "index", queries, tmp_path / "true", Here(), k=10, exact=True)
    found, true = (batch.read_hits(tmp_path / name).ids for name in ("hits", "true"))
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, true, strict=True)])
    assert 0.9 <= recall < 1


def test_the_template_is_loaded_once_per_worker(shards, hasher, tmp_path, monkeypatch):
    load, loaded = steps.load_index, []

    def count(path, **options):
        loaded.append(path)
        return load(path, **options)

    monkeypatch.setattr(steps, "load_index", count)
    for name, n_bits in (("first", 128), ("second", 64)):
        index = posh.CodeIndex(posh.POSH(n_bits, 8, n_epochs=1, random_state=0).fit(DIGITS.base))
        batch.build(shards, tmp_path / name, index, Here())
    assert loaded == [tmp_path / name / "template" / "index" for name in ("first", "second")]
    for i, n in enumerate(SIZES):
        part = load(tmp_path / "second" / f"part-{i:05d}" / "index")
        assert (len(part), part.hasher.n_bits) == (n, 64)


def test_ids_of_a_column_and_equal_scores_in_their_order(tmp_path):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(40, 8)), 5, axis=0).astype(np.float32)  # each vector five times
    ids = rng.permutation(1000)[: len(X)]
    for i, rows in enumerate(np.array_split(rng.permutation(len(X)), 3)):
        write_parquet(tmp_path / f"{i}.parquet", X[rows], ids[rows], fixed=i != 1)
    hasher = posh.POSH(64, 4, n_epochs=1, random_state=0).fit(X)
    columns = batch.Columns(id="number")
    batch.build([tmp_path / "*.parquet"], tmp_path / "index", posh.CodeIndex(hasher), Here(), columns=columns)
    batch.search(tmp_path / "index", X[::5], tmp_path / "hits", Here(), k=7)
    order = np.argsort(ids)
    one = posh.CodeIndex(hasher).add(X[order], ids[order])
    equal(batch.read_hits(tmp_path / "hits"), one.search(X[::5], k=7))


def test_more_results_than_documents(shards, hasher, tmp_path):
    batch.build([shards[0] / "1.npy"], tmp_path / "index", posh.CodeIndex(hasher), Here())
    batch.search(tmp_path / "index", DIGITS.queries[:2], tmp_path / "hits", Here(), k=5)
    hits = batch.read_hits(tmp_path / "hits")
    assert hits.ids.shape == (2, 5)
    assert hits.is_hit.sum(axis=1).tolist() == [3, 3]


def test_search_options_change_results(shards, tmp_path):
    index = posh.Index(metric="cosine")
    batch.build(shards, tmp_path / "index", index, Here())
    for name, options in (("all", {}), ("few", {"min_score": 0.95})):
        batch.search(tmp_path / "index", DIGITS.queries, tmp_path / name, Here(), **options)
    assert batch.read_hits(tmp_path / "all").is_hit.sum() > batch.read_hits(tmp_path / "few").is_hit.sum() > 0


def test_shards_at_once_change_the_tasks_but_not_the_results(shards, hasher, tmp_path):
    batch.build(shards, tmp_path / "index", posh.CodeIndex(hasher), Here())
    found = []
    for name, at_once, n_tasks in (("a", 1, 4), ("b", 3, 2), ("c", None, 2)):
        outcome = batch.search(
            tmp_path / "index", DIGITS.queries, tmp_path / name, Here(), shards_at_once=at_once
        )
        assert (outcome.n_parts, outcome.n_rows) == (n_tasks, 4 * len(DIGITS.queries))
        found.append(batch.read_hits(tmp_path / name))
    equal(found[0], found[1])
    equal(found[0], found[2])
    again = batch.search(tmp_path / "index", DIGITS.queries, tmp_path / "b", Here())
    assert again.n_resumed == 2
    with pytest.raises(ValueError, match="expected shards_at_once=3, with which the job began, got 1"):
        batch.search(tmp_path / "index", DIGITS.queries, tmp_path / "b", Here(), shards_at_once=1)


def test_finished_parts_are_not_made_again(shards, tmp_path):
    with all_steps(tmp_path, Here()) as first:
        pass
    again = Here()
    with all_steps(tmp_path, again) as second:
        equal(first, second)
    assert again.made == []


def test_a_changed_shard_and_a_missing_part_are_made_again(shards, model, hasher, tmp_path):
    def build(workers):
        return batch.build(shards, tmp_path / "index", posh.CodeIndex(hasher), workers)

    build(Here())
    about = (shards[0] / "2.npy").stat()
    np.save(shards[0] / "2.npy", DIGITS.base[:700][::-1])
    os.utime(shards[0] / "2.npy", ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    shutil.rmtree(tmp_path / "index" / "part-00001")
    (tmp_path / "index" / ".unfinished-0123456789abcdef0123456789abcdef").mkdir()
    workers = Here()
    assert build(workers).n_resumed == 2
    assert workers.made == ["part-00001", "part-00002"]
    assert [p.name for p in (tmp_path / "index").glob(".unfinished*")] == []
    batch.search(tmp_path / "index", DIGITS.base[:1], tmp_path / "hits", Here(), k=1)
    assert batch.read_hits(tmp_path / "hits").ids.tolist() == [[0]]
