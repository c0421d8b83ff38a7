"""Embedded collections with a metric: an index that is made, trained and measured as items come."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

import posh
from posh import _model_files
from posh._runtime import cancel_on, track_progress
from posh.collection import indexing, tables
from posh.collection.maintenance import check_collection
from posh.index.nearest.lists import Lists
from posh.index.nearest.options import NearestParams
from posh.index.nearest.snapshot import NearestSnapshot
from tests.collection.opened import folders, reopened
from tests.collection.reference import ReferenceCollection

N = 6000


def make_clusters(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Return vectors (n, d) in 100 clusters that overlap."""
    centres = rng.standard_normal((100, d))
    return (centres[rng.integers(0, 100, n)] + rng.standard_normal((n, d))).astype(np.float32)


X = make_clusters(np.random.default_rng(5), 14_300, 24)
X, Q = X[:-300], X[-300:]


def ids_of(collection: posh.Collection, **options) -> np.ndarray:
    return collection.search(Q, 10, **options).ids.astype(np.int64)


def share(collection: posh.Collection, n: int, **options) -> float:
    """The share of the true ten nearest among the first n vectors that a search finds."""
    scores = unit(Q) @ unit(X[:n]).T
    tenth = np.sort(scores, axis=1)[:, -10][:, None]
    found = np.take_along_axis(scores, ids_of(collection, **options), axis=1)
    return float(np.mean(found >= tenth - 1e-5 * np.abs(tenth)))  # ties count


def tuning(collection: posh.Collection):
    return collection._store.snapshot.index.lists.tuning


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """The folder of a closed collection with N items."""
    folder = tmp_path_factory.mktemp("filled") / "collection"
    with posh.Collection(folder, metric="cosine", recall=0.9, optimize="build") as collection:
        collection.upsert(range(N), X[:N])
    return folder


@pytest.fixture
def collection(filled, tmp_path):
    shutil.copytree(filled, tmp_path / "collection")
    with posh.Collection(tmp_path / "collection") as collection:
        yield collection


def test_the_first_items_make_an_index_that_keeps_its_promise(collection):
    assert share(collection, N) >= 0.89
    assert share(collection, N, recall=0.7) < share(collection, N) < share(collection, N, recall=0.99)
    assert share(collection, N, recall=0.99) >= 0.98
    assert share(collection, N, exact=True) == 1.0
    assert share(collection, N, slack=0.0, n_probe=1) < 0.7
    options = collection.index_options
    assert options == {
        "metric": "cosine",
        "recall": 0.9,
        "store": "float32",
        "n_lists": None,
        "random_state": 0,
        "optimize": "build",
    }
    report = collection.report()
    assert (report.n_documents, report.asked, report.store) == (N, 0.9, "float32")
    assert report.recall >= 0.9


def test_recall_is_that_of_index_build_by_default(tmp_path):
    with posh.Collection(tmp_path / "a", metric="dot") as collection:
        assert collection.hasher is None
        assert collection.index_options == {"metric": "dot"}
        collection.upsert([1], X[:1])
        assert collection.index_options["recall"] == 0.95
        assert collection.hasher is None
    posh.Collection(tmp_path / "a", metric="dot").close()
    with pytest.raises(ValueError, match="expected the options that this collection has"):
        posh.Collection(tmp_path / "a", metric="dot", recall=0.5)


@pytest.mark.parametrize("first", [np.ones((1, 3)), np.zeros((1, 3)), np.ones((5, 3)), np.zeros((5, 3))])
@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot"])
def test_first_items_that_say_nothing(tmp_path, metric, first):
    with posh.Collection(tmp_path / "a", metric=metric) as collection:
        collection.upsert(range(len(first)), first)
        collection.upsert(range(10, 310), X[:300, :3])
        plain = ReferenceCollection(metric=metric).upsert(range(len(first)), first)
        plain.upsert(range(10, 310), X[:300, :3])
        np.testing.assert_allclose(
            collection.search(Q[:, :3], 10).scores, plain.search(Q[:, :3], 10).scores, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("wrong", [{"metric": "manhattan"}, {"metric": "dot", "recall": 2.0}])
def test_wrong_options_make_no_collection(tmp_path, wrong):
    with pytest.raises(ValueError, match="expected"):
        posh.Collection(tmp_path / "a", **wrong)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("saved", [True, False])
def test_what_was_measured_survives_reopening(collection, saved, monkeypatch):
    before, found = tuning(collection), ids_of(collection)
    assert len(folders(collection)) == 1
    with monkeypatch.context() as patch:
        patch.setattr("posh.index.nearest.lists.measure", None)  # nothing is measured again
        collection = reopened(collection, saved_index=saved)
    after = tuning(collection)
    assert (after.n_docs, after.n_queries) == (N, before.n_queries)
    np.testing.assert_array_equal(after.codes, before.codes)
    np.testing.assert_array_equal(after.reach.lifts, before.reach.lifts)
    np.testing.assert_array_equal(ids_of(collection), found)
    assert share(collection, N, recall=0.99) >= 0.98
    collection.close()
    assert check_collection(collection.path).problems == []


def test_a_measurement_that_is_lost_is_made_again(collection):
    """A trained state of a version that did not keep it."""
    with collection._store.writing() as connection:
        (content,) = connection.execute("SELECT knowledge FROM generations").fetchone()
        model = _model_files.parse_model(content, "knowledge")
        kept = {name: array for name, array in model.arrays.items() if "tun" not in name}
        kept = {name: array for name, array in kept.items() if "calibration" not in name}
        content = _model_files.dump_model("Knowledge", model.params, kept)
        connection.execute("UPDATE generations SET knowledge = ?", (content,))
    collection = reopened(collection, saved_index=False)
    assert tuning(collection).n_docs == N
    assert share(collection, N, recall=0.99) >= 0.98
    collection.close()


def test_growing_measures_again_and_then_trains_again(collection):
    first = collection._store.snapshot
    collection.upsert(range(N, 7000), X[N:7000])
    assert tuning(collection).n_docs == N
    collection.upsert(range(7000, 9500), X[7000:9500])
    grown = collection._store.snapshot
    assert (tuning(collection).n_docs, grown.n_trained, first.n_trained) == (9500, N, N)
    collection = reopened(collection, saved_index=False)
    assert tuning(collection).n_docs == 9500
    assert share(collection, 9500) >= 0.89
    collection.upsert(range(9500, 12_500), X[9500:12_500])
    trained = collection._store.snapshot
    assert (tuning(collection).n_docs, trained.n_trained) == (12_500, 12_500)
    assert share(collection, 12_500) >= 0.89
    collection.close()
    assert check_collection(collection.path).problems == []


def test_a_saved_index_of_an_older_measurement_does_not_count(collection, monkeypatch):
    """It was being saved while a write measured again."""
    write = indexing.save_index

    def slow(folder, snapshot):
        monkeypatch.setattr(indexing, "save_index", write)
        name = write(folder, snapshot)
        collection.upsert(range(N, 9500), X[N:9500])
        return name

    collection.upsert([N], X[N : N + 1])
    monkeypatch.setattr(indexing, "save_index", slow)
    collection.compact()
    collection = reopened(collection)
    assert tuning(collection).n_docs == 9500
    collection.close()


@pytest.fixture
def measured_in_background(monkeypatch):
    """Collections of any size are measured like large ones."""
    monkeypatch.setattr(indexing, "AT_ONCE", 0)


def test_a_large_collection_is_measured_in_the_background(collection, measured_in_background, monkeypatch):
    """Searches and writes go on; the measurement is of the state when it began."""
    begun, go_on, measure = threading.Event(), threading.Event(), NearestSnapshot.measure_if_due

    def slow(self, *args):
        begun.set()
        assert go_on.wait(60)
        return measure(self, *args)

    monkeypatch.setattr(NearestSnapshot, "measure_if_due", slow)
    collection.upsert(range(N, 7500), X[N:7500])
    assert begun.wait(60)
    collection.upsert(range(7500, 7600), X[7500:7600])
    collection.delete([0, 1])
    assert tuning(collection).n_docs == N
    assert share(collection, 7600) >= 0.85
    go_on.set()
    collection._store.wait_until_measured()
    assert (tuning(collection).n_docs, collection.report().n_written) == (7500, 102)
    assert share(collection, 7600) >= 0.88
    found = ids_of(collection)
    collection = reopened(collection, saved_index=False)
    assert (tuning(collection).n_docs, collection.report().n_written) == (7500, 102)
    np.testing.assert_array_equal(ids_of(collection), found)
    collection.close()
    assert check_collection(collection.path).problems == []


def test_lists_that_are_trained_in_the_background_hold_later_writes(collection, measured_in_background):
    """Documents of another kind, written before and while the lists are trained."""
    other = np.ascontiguousarray(X[:, ::-1])
    collection.upsert(range(2500), other[:2500])
    collection._store.wait_until_measured()
    before = collection._store.snapshot
    collection.upsert(range(2500, 2600), other[2500:2600])
    collection.delete([2599])
    index = before.index.measure_if_due()
    lists = index.lists._train_again()
    measured = replace(index, lists=lists)
    now = collection._store.snapshot.index.with_measurements(before.index, measured)
    assert now.lists.space is lists.space
    hits = now.search_slots(Q, NearestParams(10, exact=True))
    found = now.search_slots(Q, NearestParams(10))
    assert found_share_of(found.slots, hits.slots) >= 0.88
    assert len(now) == N - 1


def test_lists_that_are_split_in_the_background_hold_later_writes(
    collection, measured_in_background, monkeypatch
):
    """A new topic, in the largest lists at first; nothing is trained again."""
    begun, go_on, measure = threading.Event(), threading.Event(), NearestSnapshot.measure_if_due

    def slow(self, *args):
        begun.set()
        assert go_on.wait(60)
        return measure(self, *args)

    monkeypatch.setattr(NearestSnapshot, "measure_if_due", slow)
    monkeypatch.setattr(Lists, "_train_again", None)
    before = collection._store.snapshot.index.lists
    topic = X[0] + 0.2 * np.random.default_rng(0).standard_normal((3000, 24), np.float32)
    collection.upsert(range(N, N + 2900), topic[:2900])
    assert begun.wait(60)
    collection.upsert(range(N + 2900, N + 3000), topic[2900:])
    collection.delete(range(10))
    assert collection._store.snapshot.index.lists.space is before.space
    go_on.set()
    collection._store.wait_until_measured()
    for saved in (True, False):
        lists = collection._store.snapshot.index.lists
        sizes, _ = lists.blocks.count_documents()
        assert sizes.sum() == N + 2990
        assert abs(lists.space.n_lists - (N + 2990) // 128) <= 4
        assert sizes.max() <= 1000  # one or two lists would hold the topic if they were not split
        queries = np.concatenate([Q[:100], topic[:100] + 0.01])
        found, exact = (collection.search(queries, 10, exact=e).ids for e in (False, True))
        shares = [np.isin(*pair).mean() for pair in zip(found, exact, strict=True)]
        assert np.mean(shares) >= 0.88
        collection = reopened(collection, saved_index=saved)
    collection.close()
    assert check_collection(collection.path).problems == []


def test_a_measurement_is_dropped_if_another_came_first(collection, measured_in_background):
    before = collection._store.snapshot.index
    measured = replace(before, lists=before.lists.calibrate())
    assert before.with_measurements(before, measured) is not None
    assert measured.with_measurements(before, measured) is None


def test_a_measurement_that_fails_is_logged(collection, measured_in_background, monkeypatch, caplog):
    monkeypatch.setattr(NearestSnapshot, "measure_if_due", lambda self: 1 / 0)
    collection.upsert(range(N, 7500), X[N:7500])
    collection._store.wait_until_measured()
    assert "the index was not measured again (division by zero)" in caplog.text
    assert share(collection, 7500) >= 0.85


def test_closing_stops_a_measurement(collection, measured_in_background, monkeypatch):
    begun = threading.Event()

    def endless(self):
        begun.set()
        for _ in track_progress(itertools.count(), "measuring"):
            pass

    monkeypatch.setattr(NearestSnapshot, "measure_if_due", endless)
    collection.upsert(range(N, 7500), X[N:7500])
    assert begun.wait(60)
    collection.close()
    collection._store._measuring.join(60)
    assert not collection._store._measuring.is_alive()


def test_a_write_that_replaces_most_items_measures_before_it_returns(collection, measured_in_background):
    other = np.ascontiguousarray(X[:, ::-1])
    collection.upsert(range(N), other[:N])
    assert tuning(collection).n_docs == N
    assert collection.report().n_written == 0
    expected = np.argsort(-unit(Q[:, ::-1]) @ unit(other[:N]).T, axis=1, kind="stable")[:, :10]
    found = collection.search(np.ascontiguousarray(Q[:, ::-1]), 10, recall=0.95).ids.astype(np.int64)
    assert found_share_of(found, expected) >= 0.93


def test_items_that_come_one_by_one(tmp_path):
    """The calibration of 2,049 documents must not rest on the one that came last."""
    with posh.Collection(tmp_path / "a", metric="cosine", recall=0.9) as collection:
        collection.upsert(range(2040), X[:2040])
        for i in range(2040, 2060):
            collection.upsert([i], X[i : i + 1])
        assert collection._store.snapshot.index.n_measured == 2049
        assert share(collection, 2060) >= 0.89
        assert collection.report().n_measured > 100


def test_a_write_that_trains_is_not_cancelled(collection, monkeypatch):
    """Else every write that follows would begin the same training and be cancelled as well."""
    stop, train = threading.Event(), indexing.train_index

    def cancelled(*args):
        stop.set()
        return train(*args)

    monkeypatch.setattr(indexing, "train_index", cancelled)
    with cancel_on(stop):
        collection.upsert(range(N, 2 * N), X[N : 2 * N])
    assert stop.is_set()
    assert (len(collection), collection._store.snapshot.n_trained) == (2 * N, 2 * N)


def test_deleted_and_replaced_items(collection):
    collection.delete(list(range(0, 2000)))
    collection.upsert(range(2000, 2500), X[2000:2500])
    rest = np.arange(2000, N)
    expected = rest[np.argsort(-unit(Q) @ unit(X[rest]).T, axis=1, kind="stable")[:, :10]]
    found = ids_of(collection)
    assert found_share_of(found, expected) >= 0.89
    np.testing.assert_array_equal(np.sort(ids_of(collection, exact=True)), np.sort(expected))
    collection = reopened(collection, saved_index=False)
    assert found_share_of(ids_of(collection), expected) >= 0.89
    collection.close()


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def found_share_of(found: np.ndarray, expected: np.ndarray) -> float:
    return np.mean([len(np.intersect1d(*pair)) / 10 for pair in zip(found, expected, strict=True)])


def test_reindex_changes_the_recall_the_metric_and_back_to_plain_codes(collection):
    collection.reindex(recall=0.99)
    assert share(collection, N) >= 0.98
    assert collection.report().asked == 0.99
    collection.reindex(metric="euclidean", n_lists=1)
    assert collection.search(Q[:2], 3).kind == "euclidean"
    assert (collection.report().n_lists, collection.report().asked) == (1, 0.99)
    collection = reopened(collection, saved_index=False)
    assert tuning(collection).n_docs == N
    plain = posh.POSH(64, 8, random_state=0).fit(X)
    collection.reindex(plain, refine="vectors")
    assert collection.search(Q[:2], 3).kind == "euclidean"
    assert "metric" not in collection.index_options
    np.testing.assert_array_equal(collection.hasher.weights_, plain.weights_)
    collection.reindex(metric="cosine")
    assert collection.hasher is None
    assert collection.index_options["recall"] == 0.95  # options of the other kind are not kept
    assert share(collection, N, exact=True) == 1.0
    collection.close()


def test_reindex_of_an_empty_collection(tmp_path):
    with posh.Collection(tmp_path / "a") as collection:
        with pytest.raises(ValueError, match="expected a collection with a hasher or a metric"):
            collection.search(Q, 3)
        collection.reindex(metric="cosine", recall=0.8)
        assert collection.search(Q, 3).ids.shape == (300, 3)
    with posh.Collection(tmp_path / "a") as collection:
        collection.upsert(range(50), X[:50])
        assert collection.report().asked == 0.8
        collection.delete(range(50))
        collection.reindex(metric="dot")
        assert (collection.search(Q[:1], 1).ids[0, 0], collection.search(Q[:1], 1).kind) == (None, "dot")
        collection.upsert([7], X[:1])
        assert collection.search(Q[:1], 1).ids[0, 0] == 7


def test_items_of_an_older_version_get_their_index(tmp_path):
    """It kept a metric without a hasher, and no index, until somebody fitted one."""
    with posh.Collection(tmp_path / "a") as collection:
        collection.upsert(range(100), X[:100])
    connection = sqlite3.connect(tmp_path / "a" / "collection.sqlite3")
    options = json.dumps({"metric": "cosine"})
    checksum = tables.checksum_meta("options", options)
    connection.execute("UPDATE meta SET value = ?, sum = ? WHERE key = 'options'", (options, checksum))
    connection.commit()
    connection.close()
    with pytest.raises(
        posh.FormatError, match="found none, as older versions left it: open it once for writ"
    ):
        posh.open(tmp_path / "a", read_only=True)
    with posh.Collection(tmp_path / "a") as collection:
        assert share(collection, 100) == 1.0
        assert collection.report().asked == 0.95
    assert check_collection(tmp_path / "a").problems == []


KILLED = """
import os, sys
import numpy as np
import posh
from posh.collection.database import Database
X = np.random.default_rng(0).standard_normal((4000, 8)).astype(np.float32)
collection = posh.Collection(sys.argv[1], metric="cosine", recall=0.9)
if sys.argv[2] != "first":
    collection.upsert(range(3000), X[:3000])
os.write(1, b"written\\n")
import posh.collection.tables as tables
put_meta = tables.put_meta
def killed(connection, values):
    put_meta(connection, values)
    if sys.argv[3] in values:
        os.kill(os.getpid(), 9)
tables.put_meta = killed
collection.upsert(range(3000, 3000 + int(sys.argv[4])), X[: int(sys.argv[4])])
"""


@pytest.mark.parametrize(
    ("before", "n", "key"),
    [
        ("first", 500, "generation"),
        ("first", 500, "version"),
        ("later", 1800, "version"),
        ("later", 3500, "version"),
    ],
)
def test_killed_while_the_index_is_made_measured_or_trained(tmp_path, before, n, key):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    done = subprocess.run(
        [sys.executable, script, tmp_path / "a", before, key, str(n)],
        env=os.environ | {"TQDM_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "written\n"), done.stderr
    n_before = 0 if before == "first" else 3000
    with posh.Collection(tmp_path / "a") as collection:
        assert len(collection) == n_before
        if n_before:
            assert tuning(collection).n_docs == 3000
        collection.upsert(range(3000, 3000 + n), np.random.default_rng(1).standard_normal((n, 8)))
        assert len(collection) == n_before + n
        assert collection.search(np.ones(8), 5, recall=0.99).ids.shape == (1, 5)
    assert check_collection(tmp_path / "a").problems == []


def test_parameters_with_zero_are_arguments_too():
    assert NearestParams(3, slack=0.0).as_arguments() == {"k": 3, "slack": 0.0}


# Queries of the user --------------------------------------------------------------------------------------

OWN = 2 * np.random.default_rng(8).standard_normal((450, X.shape[1])).astype(np.float32)


def test_searches_are_calibrated_with_queries(collection):
    assert collection.calibrate(OWN) is collection
    assert (collection.report().n_queries, collection.report().n_given) == (150, 450)
    assert collection.memory_usage() > 450 * X.shape[1] * 4
    expected = ids_of(collection)
    for saved_index in (True, False):
        collection = reopened(collection, saved_index=saved_index)
        assert collection.report().n_given == 450
        np.testing.assert_array_equal(ids_of(collection), expected)
    collection.reindex(recall=0.8)
    assert (collection.report().asked, collection.report().n_given) == (0.8, 450)
    collection.reindex(recall=0.9).upsert(range(N, N + 3000), X[N : N + 3000])
    assert (tuning(collection).n_docs, collection.report().n_given) == (N + 3000, 450)
    collection.delete(range(N, N + 3000))
    assert collection.calibrate(None).report().n_given == 0
    with pytest.warns(posh.RecallWarning, match="60 queries leave the recall uncertain") as caught:
        collection.calibrate(OWN[:60])
    assert caught[0].filename == __file__
    assert collection.calibrate(None).report().n_given == 0
    collection.close()


def test_other_processes_see_the_calibration_after_refresh(collection):
    with posh.Collection(collection.path, read_only=True) as reader:
        collection.calibrate(OWN)
        assert reader.report().n_given == 0
        assert reader.refresh().report().n_given == 450
        with pytest.raises(posh.StorageError, match="open for writing"):
            reader.calibrate(OWN)


def test_few_items_keep_the_queries_until_they_are_many(tmp_path):
    with posh.Collection(tmp_path / "few", metric="cosine") as few:
        with pytest.raises(ValueError, match="expected a collection with a metric and items to calibrate"):
            few.calibrate(OWN)
        few.upsert(range(500), X[:500]).calibrate(OWN)
        with reopened(few) as other:
            other.upsert(range(500, N), X[500:N])
            assert (tuning(other).n_queries, other.report().n_given) == (150, 450)


@pytest.mark.parametrize("n", [100, 5000])
def test_writes_during_a_calibration_count(collection, monkeypatch, n):
    calibrate = NearestSnapshot.calibrate

    def calibrate_and_write(snapshot, queries):
        if len(snapshot) == N:  # the first call; many writes are measured themselves
            collection.upsert(range(N, N + n), X[N : N + n])
        return calibrate(snapshot, queries)

    monkeypatch.setattr(NearestSnapshot, "calibrate", calibrate_and_write)
    collection.calibrate(OWN)
    assert len(collection) == N + n
    assert collection.report().n_given == 450
    assert share(collection, N + n, exact=True) == 1.0
    with reopened(collection) as other:
        assert (len(other), other.report().n_given) == (N + n, 450)
        assert other.report().n_written == (n if n == 100 else 0)
