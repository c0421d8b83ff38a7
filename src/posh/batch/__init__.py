"""Vectors in many files: fit, encode, build and search shard by shard, on one machine or on a Ray cluster.

Each step writes a folder with one part for each shard. A part is complete when it appears. A step that was
interrupted makes only the missing parts when it is called again. Tasks of killed workers go to other workers.

>>> import pathlib, tempfile
>>> import numpy as np
>>> import posh
>>> from posh import batch
>>> data = posh.datasets.load("digits")
>>> with tempfile.TemporaryDirectory() as name, batch.Processes(1) as workers:
...     folder = pathlib.Path(name)
...     for i, vectors in enumerate(np.array_split(data.base, 3)):
...         np.save(folder / f"{i}.npy", vectors)
...     shards = [folder / "*.npy"]
...     _ = batch.fit(shards, posh.POSH(256, 16, random_state=0), folder / "model.safetensors", workers)
...     index = posh.CodeIndex(posh.Hasher.load(folder / "model.safetensors"))
...     print(batch.build(shards, folder / "index", index, workers).n_rows)
...     _ = batch.search(folder / "index", data.queries, folder / "hits", workers, k=5)
...     batch.read_hits(folder / "hits").ids.shape
1597
(200, 5)
"""

from posh.batch.jobs import Outcome
from posh.batch.serving import ShardedCollection
from posh.batch.shard_search import merge_hits, read_hits, search
from posh.batch.shards import Columns, Shard, find_shards
from posh.batch.steps import build, encode, fit, read_codes
from posh.batch.workers import Processes, RayWorkers, Workers

__all__ = ["Columns", "Outcome", "Processes", "RayWorkers", "Shard", "ShardedCollection", "Workers"]
__all__ += ["build", "encode", "find_shards", "fit", "merge_hits", "read_codes", "read_hits", "search"]
