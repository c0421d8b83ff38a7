"""Fit, encode and build: steps that read vectors shard by shard."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from posh import _validate
from posh._files import atomic_write
from posh.batch.jobs import Outcome, digest_of, forget, make_parts, require_distinct_ids, sampled
from posh.batch.parts import is_finished, job_folder, making, read_job, read_manifest
from posh.batch.shards import GUESSED, Columns, Shard, find_shards, read_shard
from posh.batch.workers import Workers
from posh.codes import Codes, PackedCodes
from posh.errors import FormatError
from posh.hashers.base import Hasher
from posh.index.index import Index

__all__ = ["INDEX", "build", "encode", "finished_parts", "fit", "read_codes"]

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
    """Fit a hasher on ``n_sample`` vectors of all shards, at random, and write it to a file.

    The file ``<output>.json`` says what the model was made from; if that is the same, nothing is done. The
    hasher that is given is not changed. Workers read the shards; the fit runs in this process.
    """
    output = Path(output).absolute()
    found = find_shards(shards, columns)
    made_from = {
        "hasher": digest_of(hasher),
        "n_sample": _validate.integer("n_sample", n_sample, 1),
        "random_state": random_state,
        "columns": list(columns),
        "shards": [shard.identity() for shard in found],
    }
    manifest = output.with_name(f"{output.name}.json")
    if output.exists() and _says(manifest, made_from, output):
        return Outcome(output, len(found), len(found), 0, 0.0, 0.0)
    start, used = time.perf_counter(), time.process_time()
    sample = output.with_name(f".{output.name}.sample")
    vectors = sampled(found, columns, n_sample, random_state, sample, workers)
    clone(hasher).fit(vectors).save(output)
    with atomic_write(manifest) as temporary:
        temporary.write_text(json.dumps({"made_from": made_from, "sha256": _sha256(output)}, indent=1) + "\n")
    forget(sample)
    return Outcome(
        output, len(found), 0, len(vectors), time.perf_counter() - start, time.process_time() - used
    )


def _says(manifest: Path, made_from: dict[str, Any], output: Path) -> bool:
    try:
        found = json.loads(manifest.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return bool(found == json.loads(json.dumps({"made_from": made_from, "sha256": _sha256(output)})))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class _ShardTask(NamedTuple):
    """A shard to encode or to index with a model, which is a file or an index without documents."""

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


# Encoding ------------------------------------------------------------------------------------------


def encode(
    model: str | Path,
    shards: Sequence[str | Path],
    output: str | Path,
    workers: Workers,
    *,
    columns: Columns = GUESSED,
) -> Outcome:
    """Encode all shards with a model file; each becomes a part of the folder ``output``: :func:`read_codes`.

    A part that is there, and was made from the same file with the same model, is not made again.
    """
    model, output = Path(model).absolute(), Path(output).absolute()
    hasher = Hasher.load(model)
    digest = digest_of(hasher)
    found = find_shards(shards, columns)
    _require_width(found, hasher.n_features_in_, str(model))
    with job_folder(output, CODES, {"model": digest, "columns": list(columns)}):
        tasks = [_ShardTask(s, columns, output / f"part-{i:05d}", model, digest) for i, s in enumerate(found)]
        _write_shards(output, found)
        return make_parts(output, _encode, tasks, workers, "encoding")


def read_codes(folder: str | Path) -> Iterator[tuple[npt.NDArray[np.int64], Codes | PackedCodes]]:
    """Yield ids (n,) and codes of each shard that :func:`encode` has encoded, in their order."""
    folder = Path(folder)
    read_job(folder, CODES)
    for part in finished_parts(folder):
        about = read_manifest(part)
        assert about is not None
        ids = np.load(part / "ids.npy", allow_pickle=False)
        codes = np.load(part / "codes.npy", allow_pickle=False)
        yield ids, (PackedCodes if about["dense"] else Codes)(codes, about["n_bits"])


@lru_cache(maxsize=1)
def _hasher(model: Path, digest: str) -> Hasher[Any]:
    hasher: Hasher[Any] = Hasher.load(model)
    if digest_of(hasher) != digest:
        raise FormatError(f"{model}: expected the model that the job began with, got another")
    return hasher


def _encode(task: _ShardTask) -> int:
    hasher = _hasher(task.model, task.digest)
    content = read_shard(task.shard, task.columns, hasher.n_features_in_)
    codes = hasher.encode(content.vectors)
    dense = isinstance(codes, PackedCodes)
    with making(task.part, task.made_from, dense=dense, n_bits=hasher.n_bits) as folder:
        np.save(folder / "codes.npy", codes.bits if isinstance(codes, PackedCodes) else codes.active)
        np.save(folder / "ids.npy", content.ids)
    return len(content.ids)


# Building ------------------------------------------------------------------------------------------


def build(
    shards: Sequence[str | Path],
    output: str | Path,
    index: Index,
    workers: Workers,
    *,
    columns: Columns = GUESSED,
) -> Outcome:
    """Make one index for each shard, all with what ``index``, which has no documents, is trained to.

    Lists, projections and decoders are trained once, on vectors of all shards, for indexes as large as the
    largest shard, and saved as ``template`` in the folder ``output``. So scores of all shards can be
    compared. Each part has a saved index, which :meth:`posh.Index.load` opens; :func:`search` searches all.
    An id that two shards have is a :class:`posh.FormatError`.
    """
    if len(index):
        raise ValueError(f"expected an index without documents, got {len(index):,}: make a new one")
    output = Path(output).absolute()
    found = find_shards(shards, columns)
    if hasattr(index.hasher, "weights_"):
        _require_width(found, index.hasher.n_features_in_, type(index.hasher).__name__)
    require_distinct_ids(found, columns)
    parameters = {
        "options": asdict(index.options),
        "hasher": digest_of(index.hasher),
        "columns": list(columns),
    }
    with job_folder(output, INDEX, parameters):
        digest = _make_template(index, found, columns, output, workers)
        model = output / TEMPLATE / "index"
        tasks = [_ShardTask(s, columns, output / f"part-{i:05d}", model, digest) for i, s in enumerate(found)]
        _write_shards(output, found)
        return make_parts(output, _build, tasks, workers, "building")


def _make_template(
    index: Index, shards: Sequence[Shard], columns: Columns, output: Path, workers: Workers
) -> str:
    """Train an index without documents and save it; return the digest of its manifest."""
    part, snapshot = output / TEMPLATE, index.snapshot()
    made_from = {"options": asdict(index.options), "hasher": digest_of(index.hasher)}
    if not is_finished(part, made_from):
        if snapshot.needs_training:
            n = max(shard.n_rows for shard in shards)
            # Every 16th vector is held out from training.
            n_sample = max(_TRAINING_ROWS, snapshot.training_size(n) * 16 // 15 + 16)
            seed, folder = index.options.random_state, output / "sample"
            snapshot = snapshot.train(sampled(shards, columns, n_sample, seed, folder, workers), n)
            forget(folder)
        with making(part, made_from) as folder:
            snapshot.save(folder / "index")
    return _sha256(part / "index" / "manifest.json")


def _build(task: _ShardTask) -> int:
    index = Index.load(task.model)
    content = read_shard(task.shard, task.columns, index.hasher.n_features_in_)
    index.add(content.vectors, content.ids)
    with making(task.part, task.made_from, n_rows=len(index)) as folder:
        index.save(folder / "index")
    return len(index)


# What folders have in common -----------------------------------------------------------------------


def _require_width(shards: Sequence[Shard], n_features: int, model: str) -> None:
    for shard in shards:
        if shard.width not in (None, n_features):
            raise FormatError(
                f"{shard.path}: expected vectors of {n_features} numbers, as {model} has, got {shard.width}"
            )


def _write_shards(output: Path, shards: Sequence[Shard]) -> None:
    with atomic_write(output / SHARDS) as temporary:
        temporary.write_text(json.dumps([shard.identity() for shard in shards], indent=1) + "\n")


def finished_parts(folder: Path) -> list[Path]:
    """Return the parts of a job, in the order of their shards; a FormatError names one that is missing."""
    shards = json.loads((folder / SHARDS).read_bytes())
    parts = [folder / f"part-{i:05d}" for i in range(len(shards))]
    for part, shard in zip(parts, shards, strict=True):
        found = read_manifest(part)
        if found is None or found["made_from"]["shard"] != shard:
            raise FormatError(
                f"{part}: expected the part of {shard['path']}, which is not finished: resume the job"
            )
    return parts
