"""Sentence embeddings: the glosses of WordNet, encoded by all-MiniLM-L6-v2; takes minutes, once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from posh._progress import progress
from posh._threads import cores, one_blas_thread
from posh.datasets._cache import Arrays, read_array, store, write_arrays
from posh.datasets._recipes import Stored
from posh.datasets._split import split_at_random
from posh_reproduction.datasets.minilm import MINILM, Encoder
from posh_reproduction.datasets.wordnet import WORDNET, glosses

__all__ = ["N_FEATURES", "N_QUERIES", "N_TEXTS", "embedded", "sentences"]

N_TEXTS, N_QUERIES, N_FEATURES = 117_033, 2000, 384
_CHUNK = 2048  # texts that are kept at once: a run that was interrupted goes on after them
_TOKENS = 4096  # tokens that are encoded at once: more would leave the cache


def sentences() -> Stored:
    """Vectors of all glosses: 2,000 at random are queries."""
    folder = "wordnet-minilm.v1"

    def make(root: Path) -> None:
        texts = glosses(WORDNET.fetch(root))
        encoder = Encoder.read(MINILM.fetch(root))
        chunks = root / f"{folder}.chunks"
        vectors = embedded(texts, encoder, chunks)
        store(root / folder, lambda work: write_arrays(work, {"vectors": vectors}))
        shutil.rmtree(chunks)

    def arrange(folder: Path) -> Arrays:
        vectors = read_array(folder / "vectors.npy", mmap=True)
        split = split_at_random(len(vectors), N_QUERIES)
        return {"base": vectors[split.base], "queries": vectors[split.queries]}

    return Stored(folder, make, arrange)


def embedded(texts: list[str], encoder: Encoder, chunks: Path) -> npt.NDArray[np.float32]:
    """Vectors (n, d) of texts; finished chunks are kept in a folder, and are not computed again."""
    numbers = [encoder.tokens(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda row: len(numbers[row]))  # alike lengths need no padding
    vectors: npt.NDArray[np.float32] | None = None
    for start in progress(range(0, len(texts), _CHUNK), "sentences", "chunk"):
        rows = order[start : start + _CHUNK]
        folder = chunks / f"{start:08d}"
        if not folder.is_dir():
            found = _encoded([numbers[row] for row in rows], encoder.encode)
            _keep(folder, found)
        chunk = read_array(folder / "vectors.npy")
        if vectors is None:
            vectors = np.empty((len(texts), chunk.shape[1]), np.float32)
        vectors[rows] = chunk
    assert vectors is not None
    return vectors


def _keep(folder: Path, vectors: npt.NDArray[np.float32]) -> None:
    store(folder, lambda work: write_arrays(work, {"vectors": vectors}))


def _encoded(
    numbers: list[list[int]], encode: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float32]]
) -> npt.NDArray[np.float32]:
    """Vectors (n, d) of texts in ascending order of length, those of one length together."""
    batches = []
    for length, group in groupby(numbers, len):
        same = np.array(list(group), np.int64)
        step = max(1, _TOKENS // length)
        batches += [same[start : start + step] for start in range(0, len(same), step)]
    with one_blas_thread, ThreadPoolExecutor(cores()) as pool:
        return np.concatenate(list(pool.map(encode, batches)))
