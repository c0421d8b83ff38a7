"""What is wrong is named with its shard, and nothing half-written stays."""

from __future__ import annotations

import importlib
import json
import re

import numpy as np
import pytest

import posh
from posh import batch
from posh.errors import FormatError, MissingExtraError, ServiceError, StorageError, find_install_command
from tests.batch.doing import DIGITS, Here, write_npy, write_parquet


@pytest.fixture
def shards(tmp_path):
    write_npy(tmp_path / "shards")
    return tmp_path / "shards"


@pytest.fixture
def model(tmp_path):
    posh.POSH(64, 4, n_epochs=1, random_state=0).fit(DIGITS.base).save(tmp_path / "model")
    return tmp_path / "model"


def damage(shards, how):
    path = shards / "2.npy"
    if how == "nan":
        wrong = DIGITS.base[:100].copy()
        wrong[42, 7] = np.nan
        np.save(path, wrong)
    elif how == "cut off":
        path.write_bytes(path.read_bytes()[:-1000])
    elif how == "other bytes":
        path.write_bytes(b"this is not an array of any kind" * 100)
    elif how == "other dimensions":
        np.save(path, DIGITS.base[:100, :50])
    elif how == "empty":
        path.write_bytes(b"")
    else:  # Parquet whose head says nothing about the width
        path.unlink()
        write_parquet(shards / "2.parquet", DIGITS.base[:100, :50], fixed=False)


PROBLEMS = {
    "nan": r"2\.npy: row 42: expected finite numbers, got nan in place 7",
    "cut off": r"2\.npy: expected a complete \.npy file",
    "other bytes": r"2\.npy: expected a complete \.npy file",
    "other dimensions": r"2\.npy: expected vectors of 64 numbers, as in .*0\.npy, got 50",
    "empty": r"2\.npy: expected a complete \.npy file",
    "lists of other dimensions": r"2\.parquet: row 0: expected a vector of 64 numbers, got 50",
}


@pytest.mark.parametrize("how", PROBLEMS)
def test_a_wrong_shard_is_named_and_the_others_stay(shards, model, tmp_path, how):
    damage(shards, how)
    with pytest.raises(FormatError, match=PROBLEMS[how]):
        batch.encode(model, [shards], tmp_path / "codes", Here())
    with pytest.raises(FormatError, match=PROBLEMS[how]):
        batch.build([shards], tmp_path / "index", posh.CodeIndex(posh.Hasher.load(model)), Here())
    for folder in ("codes", "index"):
        parts = [part for part in (tmp_path / folder).glob("*") if part.name.startswith("part-")]
        assert len(parts) in (0, 2)  # those before the wrong one, unless the heads of files tell it at once
        assert all((part / "manifest.json").exists() for part in parts)
        assert list((tmp_path / folder).glob(".unfinished*")) == []
    write_npy(shards)
    (shards / "2.parquet").unlink(missing_ok=True)
    assert batch.encode(model, [shards], tmp_path / "codes", Here()).n_parts == 4
    assert sum(len(ids) for ids, _ in batch.read_codes(tmp_path / "codes")) == len(DIGITS.base)


def test_a_fit_names_the_wrong_shard_and_writes_nothing(shards, tmp_path):
    damage(shards, "lists of other dimensions")
    with pytest.raises(
        FormatError, match=r"2\.parquet: expected vectors of 64 numbers, as in other shards, got 50"
    ):
        batch.fit([shards], posh.POSH(64, 4), tmp_path / "model", Here(), n_sample=500)
    assert not (tmp_path / "model").exists()


def test_a_model_for_other_dimensions(shards, tmp_path):
    posh.POSH(64, 4, n_epochs=1).fit(DIGITS.base[:, :50]).save(tmp_path / "model")
    with pytest.raises(FormatError, match=r"0\.npy: expected vectors of 50 numbers, as .*model has, got 64"):
        batch.encode(tmp_path / "model", [shards], tmp_path / "codes", Here())
    assert not (tmp_path / "codes").exists()


def test_columns_that_are_not_there(tmp_path):
    write_parquet(tmp_path / "a.parquet", DIGITS.base[:10])
    with pytest.raises(ValueError, match=r"a\.parquet: expected a column 'nr', got vector"):
        batch.find_shards([tmp_path], batch.Columns(id="nr"))
    np.save(tmp_path / "a.npy", DIGITS.base[:10])
    with pytest.raises(ValueError, match=r"a\.npy: expected a Parquet file with the column 'nr'"):
        batch.find_shards([tmp_path / "a.npy"], batch.Columns(id="nr"))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 2, 1], "got 1 more than once"),
        ([1, -2, 3], "expected ids in 0"),
        (["a", "b", "c"], "1-D integer array"),
    ],
)
def test_wrong_ids_name_the_shard(tmp_path, model, ids, message):
    write_parquet(tmp_path / "a.parquet", DIGITS.base[:3], ids)
    with pytest.raises(FormatError, match=rf"a\.parquet: .*{message}"):
        batch.encode(
            model, [tmp_path / "a.parquet"], tmp_path / "codes", Here(), columns=batch.Columns(id="number")
        )


def test_shards_that_are_not_there_or_there_twice(shards, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\*: no such shard"):
        batch.find_shards([tmp_path / "nothing*"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="expected shards"):
        batch.find_shards([tmp_path / "empty"])
    with pytest.raises(ValueError, match=r"expected each shard once, got .*1\.npy again"):
        batch.find_shards([shards, shards / "1.npy"])
    (tmp_path / "a.csv").touch()
    with pytest.raises(ValueError, match=r"a\.csv: expected a shard that ends in \.parquet or \.npy"):
        batch.find_shards([tmp_path / "a.csv"])


def test_a_shard_that_shrinks_while_the_job_runs(shards, model, tmp_path):
    class Cutting(Here):
        def results(self, function, tasks):
            np.save(shards / "3.npy", DIGITS.base[:5])
            yield from super().results(function, tasks)

    with pytest.raises(FormatError, match=r"3\.npy: expected 394 rows, as its header says, got 5"):
        batch.encode(model, [shards], tmp_path / "codes", Cutting())


def test_a_shard_that_gets_an_id_of_another_while_the_job_runs(tmp_path):
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, first in zip(paths, (1, 20), strict=True):
        write_parquet(path, DIGITS.base[:5], np.arange(first, first + 5))

    class Changing(Here):
        def results(self, function, tasks):
            write_parquet(paths[1], DIGITS.base[:5], np.arange(5, 10))
            yield from super().results(function, tasks)

    columns, index = batch.Columns(id="number"), posh.Index(metric="cosine")
    with pytest.raises(FormatError, match=r"b\.parquet: expected an unchanged file, but it was written"):
        batch.build(paths, tmp_path / "out", index, Changing(), columns=columns)


def test_other_parameters_are_refused(shards, model, tmp_path):
    batch.encode(model, [shards], tmp_path / "codes", Here())
    posh.POSH(64, 4, n_epochs=1, random_state=1).fit(DIGITS.base).save(model)
    with pytest.raises(ValueError, match=r"codes: expected model=.*with which the job began"):
        batch.encode(model, [shards], tmp_path / "codes", Here())
    with pytest.raises(FormatError, match="expected a job of the format 'posh-batch-index'"):
        batch.search(tmp_path / "codes", DIGITS.queries, tmp_path / "hits", Here())
    hasher = posh.Hasher.load(model)
    with pytest.raises(FormatError, match="expected a job of the format 'posh-batch-index'"):
        batch.build([shards], tmp_path / "codes", posh.CodeIndex(hasher), Here())
    with pytest.raises(ValueError, match="expected an index without documents, got 3"):
        batch.build([shards], tmp_path / "index", posh.CodeIndex(hasher).add(DIGITS.base[:3]), Here())


def test_other_files_and_another_process(shards, model, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(FileExistsError, match=r"found other files \(notes.txt\)"):
        batch.encode(model, [shards], tmp_path / "full", Here())

    class Twice(Here):
        def results(self, function, tasks):
            with pytest.raises(StorageError, match="another process works on this job"):
                batch.encode(model, [shards], tmp_path / "codes", Here())
            yield from super().results(function, tasks)

    batch.encode(model, [shards], tmp_path / "codes", Twice())


def test_a_search_of_unfinished_parts_and_with_wrong_queries(shards, model, tmp_path):
    batch.build([shards], tmp_path / "index", posh.CodeIndex(posh.Hasher.load(model)), Here())
    with pytest.raises(ValueError, match="64 features"):
        batch.search(tmp_path / "index", DIGITS.queries[:, :5], tmp_path / "hits", Here())
    with pytest.raises(
        ValueError, match="exact=True needs indexes with a metric, got a hasher: leave it out"
    ):
        batch.search(tmp_path / "index", DIGITS.queries, tmp_path / "hits", Here(), exact=True)
    assert not (tmp_path / "hits").exists()
    (tmp_path / "index" / "part-00002" / "manifest.json").unlink()
    with pytest.raises(
        FormatError, match=r"part-00002: expected the part of .*2\.npy, which is not finished"
    ):
        batch.search(tmp_path / "index", DIGITS.queries, tmp_path / "hits", Here())
    with pytest.raises(FileNotFoundError, match=r"found no hits\.parquet"):
        batch.read_hits(tmp_path)


def test_a_damaged_index_shard_is_named(shards, model, tmp_path):
    batch.build([shards], tmp_path / "index", posh.CodeIndex(posh.Hasher.load(model)), Here())
    (codes,) = (tmp_path / "index" / "part-00002").rglob("planes.npy")
    codes.write_bytes(codes.read_bytes()[:-100])
    with pytest.raises(FormatError, match=r"part-00002.*planes\.npy"):
        batch.search(tmp_path / "index", DIGITS.queries, tmp_path / "hits", Here())
    assert not (tmp_path / "hits" / "hits.parquet").exists()


def test_a_damaged_manifest_is_named(shards, model, tmp_path):
    batch.encode(model, [shards], tmp_path / "codes", Here())
    (tmp_path / "codes" / "part-00001" / "manifest.json").write_text("{")
    with pytest.raises(FormatError, match=r"part-00001/manifest\.json: not readable .* remove .*part-00001"):
        batch.encode(model, [shards], tmp_path / "codes", Here())
    (tmp_path / "codes" / "job.json").write_text(json.dumps([1]))
    with pytest.raises(FormatError, match=r"job\.json: expected a job of the format"):
        batch.encode(model, [shards], tmp_path / "codes", Here())


def test_missing_packages_and_unreachable_addresses(monkeypatch):
    real = importlib.import_module

    def without(name, package=None):
        if name.partition(".")[0] in ("ray", "fsspec"):
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    install = find_install_command("ray")
    with pytest.raises(MissingExtraError, match=re.escape(f"needs ray: {install}")):
        batch.RayWorkers(2)
    with pytest.raises(MissingExtraError, match=re.escape(f"s3://b/a.npy needs fsspec: {install}")):
        batch.find_shards(["s3://b/a.npy"])


def test_an_address_at_which_nobody_listens(monkeypatch):
    monkeypatch.setattr("posh.batch.workers._import_ray", lambda on_loopback: None)
    with pytest.raises(ServiceError, match=r"expected a Ray cluster at 127\.0\.0\.1:9, but none answers"):
        batch.RayWorkers(address="127.0.0.1:9").__enter__()
    with pytest.raises(ValueError, match="expected the address of a cluster as HOST:PORT"):
        batch.RayWorkers(address="nonsense").__enter__()


def test_an_id_of_two_shards_is_refused_before_anything_is_made(tmp_path):
    columns, index = batch.Columns(id="number"), posh.Index(metric="cosine")
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet", tmp_path / "c.parquet"]
    for path, first in zip(paths, (1, 20, 5), strict=True):
        write_parquet(path, DIGITS.base[:5], np.arange(first, first + 5))
    with pytest.raises(FormatError, match=r"got 5 in .*a\.parquet and in .*c\.parquet: give documents other"):
        batch.build(paths, tmp_path / "out", index, Here(), columns=columns)
    assert not (tmp_path / "out").exists()
    write_parquet(paths[2], DIGITS.base[:5], ["6", "7", "8", "9", "10"])
    with pytest.raises(FormatError, match=r"c\.parquet: expected ids as a 1-D integer array"):
        batch.build(paths, tmp_path / "out", index, Here(), columns=columns)
    write_parquet(paths[2], DIGITS.base[:5], [6, 7, 8, 9, 6])
    with pytest.raises(FormatError, match=r"c\.parquet: expected distinct ids, got 6 more than once"):
        batch.build(paths, tmp_path / "out", index, Here(), columns=columns)
    write_parquet(paths[2], DIGITS.base[:5], np.arange(10, 5, -1))
    assert batch.build(paths, tmp_path / "out", index, Here(), columns=columns).n_rows == 15
