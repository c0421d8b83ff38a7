"""Fit, encode and build: steps that read vectors shard by shard."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from posh._durable import write_atomically
from posh._model_files import read_model_digest
from posh._runtime import track_progress
from posh._validate import validate_integer
from posh.batch.jobs import Outcome, is_finished, make_parts, open_job, read_job, read_manifest, write_part
from posh.batch.shards import GUESSED, Columns, Shard, find_shards, read_ids, read_rows, read_shard
from posh.batch.workers import Workers
from posh.codes import Codes, PackedCodes
from posh.errors import FormatError
from posh.hashers.base import Hasher
from posh.index.base import IndexSnapshot
from posh.index.codes.index import CodeIndex
from posh.index.nearest.index import Index
from posh.index.open import load_index
from posh.preprocess import Float32

__all__ = ["INDEX", "TEMPLATE", "build", "encode", "fit", "list_parts", "read_codes"]

CODES, INDEX = "posh-batch-codes", "posh-batch-index"
TEMPLATE, SHARDS = "template", "shards.json"
_TRAINING_ROWS = 65_536  # for a decoder or a default hasher


def fit(
    shards: Sequence[str | Path],
    hasher: Hasher[Any],
    output: str | Path,
    workers: Workers,
    *,
    n_sample: int = 100_000,
    random_state: int = 0,
    columns: Columns = GUESSED,
) -> Outcome:
    """Fit a copy of a hasher on ``n_sample`` random vectors of all shards and write it to a file.

    The file ``<output>.json`` describes the inputs of the model; if they have not changed, nothing is done.
    Workers read the shards; the fit runs in this process.
    """
    output = Path(output).absolute()
    files = find_shards(shards, columns)
    made_from = {
        "hasher": _hash_hasher(hasher),
        "n_sample": validate_integer("n_sample", n_sample, 1),
        "random_state": random_state,
        "columns": list(columns),
        "shards": [shard.identity() for shard in files],
    }
    manifest = output.with_name(f"{output.name}.json")
    if output.exists() and _is_up_to_date(manifest, made_from, output):
        return Outcome(output, len(files), len(files), 0, 0.0, 0.0)
    start, cpu_start = time.perf_counter(), time.process_time()
    sample = output.with_name(f".{output.name}.sample")
    vectors = _sample(files, columns, n_sample, random_state, sample, workers)
    clone(hasher).fit(vectors).save(output)
    with write_atomically(manifest) as temporary:
        content = {"made_from": made_from, "sha256": _hash_file(output)}
        temporary.write_text(json.dumps(content, indent=1) + "\n")
    shutil.rmtree(sample, ignore_errors=True)
    return Outcome(
        output, len(files), 0, len(vectors), time.perf_counter() - start, time.process_time() - cpu_start
    )


def _is_up_to_date(manifest: Path, made_from: dict[str, Any], output: Path) -> bool:
    try:
        content = json.loads(manifest.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return bool(content == json.loads(json.dumps({"made_from": made_from, "sha256": _hash_file(output)})))


def _hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _hash_hasher(hasher: Hasher[Any]) -> str:
    """Return a text that identifies a hasher, fitted or not."""
    if hasattr(hasher, "weights_"):
        return read_model_digest(hasher.to_bytes(), "model")
    return f"{type(hasher).__name__} {sorted(hasher.get_params().items())}"


# Sampling ----------------------------------------------------------------------------------------------


class _SampleTask(NamedTuple):
    """Some rows of a shard to read."""

    shard: Shard
    columns: Columns
    rows: tuple[int, ...]
    part: Path

    @property
    def made_from(self) -> dict[str, Any]:
        return {"shard": self.shard.identity()}

    @property
    def n_rows(self) -> int:
        return len(self.rows)


def _sample(
    shards: Sequence[Shard], columns: Columns, n: int, random_state: int, folder: Path, workers: Workers
) -> Float32:
    """Return n random vectors (n, d) of all shards in their order, or all vectors if there are fewer.

    The parts of the sample stay in ``folder`` for a resumed job, until the caller removes it.
    """
    n_rows = sum(shard.n_rows for shard in shards)
    # random.sample needs memory for n numbers, NumPy's choice without replacement for all of them.
    rows = np.array(sorted(random.Random(random_state).sample(range(n_rows), min(n, n_rows))), np.int64)
    ends = np.cumsum([shard.n_rows for shard in shards])
    rows_of_shards = np.split(rows, np.searchsorted(rows, ends[:-1]))
    tasks = [
        _SampleTask(shard, columns, tuple((some - end + shard.n_rows).tolist()), folder / f"part-{i:05d}")
        for i, (shard, some, end) in enumerate(zip(shards, rows_of_shards, ends.tolist(), strict=True))
        if len(some)
    ]
    parameters = {"n": n, "random_state": random_state, "columns": list(columns)}
    with open_job(folder, "posh-batch-sample", parameters):
        make_parts(folder, _sample_shard, tasks, workers, "sampling")
        return _concatenate(tasks)


def _sample_shard(task: _SampleTask) -> int:
    vectors = read_rows(task.shard, task.columns, np.array(task.rows, np.int64))
    with write_part(task.part, task.made_from) as folder:
        np.save(folder / "vectors.npy", vectors)
    return len(vectors)


def _concatenate(tasks: Sequence[_SampleTask]) -> Float32:
    vectors: list[Float32] = []
    for task in tasks:
        vectors.append(np.load(task.part / "vectors.npy", allow_pickle=False))
        if vectors[-1].shape[1] != vectors[0].shape[1]:
            raise FormatError(
                f"{task.shard.path}: expected vectors of {vectors[0].shape[1]} numbers, as in other shards, "
                f"got {vectors[-1].shape[1]}"
            )
    return np.concatenate(vectors)


# Encoding ----------------------------------------------------------------------------------------------


class _ShardTask(NamedTuple):
    """A shard to encode or to index with a model: a file of a hasher, or a folder of an empty index."""

    shard: Shard
    columns: Columns
    part: Path
    model: Path
    digest: str

    @property
    def made_from(self) -> dict[str, Any]:
        return {"shard": self.shard.identity(), "columns": list(self.columns), "model": self.digest}

    @property
    def n_rows(self) -> int:
        return self.shard.n_rows


def encode(
    model: str | Path,
    shards: Sequence[str | Path],
    output: str | Path,
    workers: Workers,
    *,
    columns: Columns = GUESSED,
) -> Outcome:
    """Encode each shard with a model file to a part of the folder ``output``; see :func:`read_codes`.

    A part that was made from the same file with the same model is not made again.
    """
    model, output = Path(model).absolute(), Path(output).absolute()
    hasher = Hasher.load(model)
    digest = _hash_hasher(hasher)
    files = find_shards(shards, columns)
    _require_width(files, hasher.n_features_in_, str(model))
    with open_job(output, CODES, {"model": digest, "columns": list(columns)}):
        tasks = [_ShardTask(s, columns, output / f"part-{i:05d}", model, digest) for i, s in enumerate(files)]
        _write_shards(output, files)
        return make_parts(output, _encode_shard, tasks, workers, "encoding")


def read_codes(folder: str | Path) -> Iterator[tuple[npt.NDArray[np.int64], Codes | PackedCodes]]:
    """Yield the ids (n,) and codes of each shard that :func:`encode` has encoded, in order."""
    folder = Path(folder)
    read_job(folder, CODES)
    for part in list_parts(folder):
        manifest = read_manifest(part)
        assert manifest is not None
        ids = np.load(part / "ids.npy", allow_pickle=False)
        codes = np.load(part / "codes.npy", allow_pickle=False)
        yield ids, (PackedCodes if manifest["dense"] else Codes)(codes, manifest["n_bits"])


@lru_cache(maxsize=1)
def _load_hasher(model: Path, digest: str) -> Hasher[Any]:
    hasher: Hasher[Any] = Hasher.load(model)
    if _hash_hasher(hasher) != digest:
        raise FormatError(f"{model}: expected the model with which the job began, got another: resume it")
    return hasher


def _encode_shard(task: _ShardTask) -> int:
    hasher = _load_hasher(task.model, task.digest)
    content = read_shard(task.shard, task.columns, hasher.n_features_in_)
    codes = hasher.encode(content.vectors)
    is_dense = isinstance(codes, PackedCodes)
    with write_part(task.part, task.made_from, dense=is_dense, n_bits=hasher.n_bits) as folder:
        np.save(folder / "codes.npy", codes.bits if isinstance(codes, PackedCodes) else codes.active)
        np.save(folder / "ids.npy", content.ids)
    return len(content.ids)


# Building ----------------------------------------------------------------------------------------------


def build(
    shards: Sequence[str | Path],
    output: str | Path,
    index: Index | CodeIndex,
    workers: Workers,
    *,
    columns: Columns = GUESSED,
) -> Outcome:
    """Build an index of each shard with the options of ``index``, which must be empty.

    Lists, projections and decoders are trained once, on vectors of all shards, for indexes as large as the
    largest shard, and saved as ``template`` in the folder ``output``. The scores of all shards are therefore
    comparable. Each part has a saved index, which :meth:`posh.Index.load` opens; :func:`search` searches all
    of them. Raises :class:`posh.FormatError` if two shards have the same id.
    """
    if len(index):
        raise ValueError(f"expected an index without documents, got {len(index):,}: create a new one")
    output = Path(output).absolute()
    files = find_shards(shards, columns)
    if isinstance(index, CodeIndex):
        _require_width(files, index.hasher.n_features_in_, type(index.hasher).__name__)
    _require_distinct_ids(files, columns)
    parameters = {
        "options": asdict(index.options),
        "hasher": _hash_index_hasher(index),
        "columns": list(columns),
    }
    with open_job(output, INDEX, parameters):
        digest = _make_template(index, files, columns, output, workers)
        model = output / TEMPLATE / "index"
        tasks = [_ShardTask(s, columns, output / f"part-{i:05d}", model, digest) for i, s in enumerate(files)]
        _write_shards(output, files)
        return make_parts(output, _build_shard, tasks, workers, "building")


def _require_distinct_ids(shards: Sequence[Shard], columns: Columns) -> None:
    """Raise FormatError if two shards have the same id; reads the columns of ids only.

    Results of shards can be merged without a further check: consecutive ids are distinct, reading a shard
    refuses equal ids within it, and a shard that changes before it is indexed is refused.
    """
    if columns.id is None or len(shards) == 1:
        return
    ids, n = np.empty(sum(shard.n_rows for shard in shards), np.int64), 0
    for shard in track_progress(shards, "comparing ids", "shard"):
        shard_ids = read_ids(shard, columns.id)
        ids[n : n + len(shard_ids)] = shard_ids
        n += len(shard_ids)
    ids = ids[:n]
    ids.sort()  # in place, so that this array is all the memory needed
    repeated = ids[1:][ids[1:] == ids[:-1]]
    if len(repeated):
        holders = [shard.path for shard in shards if repeated[0] in read_ids(shard, columns.id)]
        raise FormatError(
            f"expected each id in one shard only, got {repeated[0]} in {holders[0]} and in {holders[1]}: "
            "give documents other ids"
        )


def _hash_index_hasher(index: Index | CodeIndex) -> str | None:
    return _hash_hasher(index.hasher) if isinstance(index, CodeIndex) else None


def _make_template(
    index: Index | CodeIndex, shards: Sequence[Shard], columns: Columns, output: Path, workers: Workers
) -> str:
    """Train an empty index and save it; return the digest of its manifest."""
    part, snapshot = output / TEMPLATE, cast(IndexSnapshot, index.snapshot())
    made_from = {"options": asdict(index.options), "hasher": _hash_index_hasher(index)}
    if not is_finished(part, made_from):
        if snapshot.needs_training:
            n = max(shard.n_rows for shard in shards)
            # Every 16th vector is held out from training.
            n_sample = max(_TRAINING_ROWS, snapshot.training_size(n) * 16 // 15 + 16)
            seed, folder = index.options.random_state, output / "sample"
            snapshot = snapshot.train(_sample(shards, columns, n_sample, seed, folder, workers), n)
            shutil.rmtree(folder, ignore_errors=True)
        with write_part(part, made_from) as folder:
            snapshot.save(folder / "index")
    return _hash_file(part / "index" / "manifest.json")


@lru_cache(maxsize=1)
def _load_template(model: Path, digest: str) -> Index | CodeIndex:
    """Load the template of a job, once for all tasks of a worker."""
    if _hash_file(model / "manifest.json") != digest:
        raise FormatError(f"{model}: expected the template with which the job began, got another: resume it")
    return load_index(model)


def _build_shard(task: _ShardTask) -> int:
    index = copy.copy(_load_template(task.model, task.digest))
    n_features = index.snapshot().n_features
    assert n_features is not None
    content = read_shard(task.shard, task.columns, n_features)
    index.add(content.vectors, content.ids)
    with write_part(task.part, task.made_from, n_rows=len(index)) as folder:
        index.save(folder / "index")
    return len(index)


# Folders of shards -------------------------------------------------------------------------------------


def _require_width(shards: Sequence[Shard], n_features: int, model: str) -> None:
    for shard in shards:
        if shard.width not in (None, n_features):
            raise FormatError(
                f"{shard.path}: expected vectors of {n_features} numbers, as {model} has, got {shard.width}"
            )


def _write_shards(output: Path, shards: Sequence[Shard]) -> None:
    with write_atomically(output / SHARDS) as temporary:
        temporary.write_text(json.dumps([shard.identity() for shard in shards], indent=1) + "\n")


def list_parts(folder: Path) -> list[Path]:
    """Return the parts of a job in the order of their shards; raise FormatError if one is missing."""
    shards = json.loads((folder / SHARDS).read_bytes())
    parts = [folder / f"part-{i:05d}" for i in range(len(shards))]
    for part, shard in zip(parts, shards, strict=True):
        manifest = read_manifest(part)
        if manifest is None or manifest["made_from"]["shard"] != shard:
            raise FormatError(
                f"{part}: expected the part of {shard['path']}, which is not finished: resume the job"
            )
    return parts
