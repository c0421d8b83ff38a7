"""Embeddings of the glosses and words of WordNet by all-MiniLM-L6-v2. They take minutes, once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from posh._runtime import one_blas_thread, resolve_threads, track_progress
from posh.datasets._fetch import Arrays, is_stored, read_array, store, write_arrays
from posh.datasets._recipes import Stored, permute, split_at_random
from posh_reproduction.datasets.minilm import MINILM, Encoder
from posh_reproduction.datasets.wordnet import WORDNET, WORDS, read_texts

__all__ = ["N_FEATURES", "N_QUERIES", "N_TEXTS", "build_sentences", "build_words", "embed"]

N_TEXTS, N_QUERIES, N_FEATURES = 117_033, 2000, 384
_GLOSSES, _WORDS = "wordnet-minilm.v1", "wordnet-ood.v1"
_CHUNK = 2048  # texts stored at a time: an interrupted run resumes after them
_TOKENS = 4096  # tokens encoded at a time: more do not fit in the cache


def build_sentences() -> Stored:
    """Build the recipe for vectors of all glosses: 2,000 random ones are queries."""

    def make(root: Path) -> None:
        _embed_to(root, _GLOSSES, read_texts(WORDNET.fetch(root)))

    def arrange(folder: Path) -> Arrays:
        vectors = read_array(folder / "vectors.npy", mmap=True)
        split = split_at_random(len(vectors), N_QUERIES)
        return {"base": vectors[split.base], "queries": vectors[split.queries]}

    return Stored(_GLOSSES, make, arrange)


def build_words() -> Stored:
    """Build the recipe for vectors of all glosses as base, and of 2,000 random words as queries.

    Words are unlike glosses, so these queries are not distributed as the base is.
    """
    glosses = build_sentences()

    def make(root: Path) -> None:
        glosses.prepare(root)
        words = read_texts(WORDS.fetch(root))
        _embed_to(root, _WORDS, [words[row] for row in permute(len(words))[:N_QUERIES]])

    def arrange(folder: Path) -> Arrays:
        vectors = read_array(folder.parent / _GLOSSES / "vectors.npy", mmap=True)
        return {"base": vectors[permute(len(vectors))], "queries": read_array(folder / "vectors.npy")}

    return _Words(_WORDS, make, arrange)


class _Words(Stored):
    """Embedded words, which need those of the glosses."""

    def is_ready(self, root: Path) -> bool:
        """Whether both sub-folders are complete."""
        return super().is_ready(root) and is_stored(root / _GLOSSES)


def _embed_to(root: Path, folder: str, texts: list[str]) -> None:
    """Store the vectors of texts; an interrupted run resumes."""
    encoder = Encoder.read(MINILM.fetch(root))
    chunks = root / f"{folder}.chunks"
    vectors = embed(texts, encoder, chunks)
    store(root / folder, lambda work: write_arrays(work, {"vectors": vectors}))
    shutil.rmtree(chunks)


def embed(texts: list[str], encoder: Encoder, chunks: Path) -> npt.NDArray[np.float32]:
    """Return vectors (n, d) of texts. The folder ``chunks`` stores finished ones: runs can resume."""
    numbers = [encoder.tokens(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda row: len(numbers[row]))  # equal lengths need no padding
    vectors: npt.NDArray[np.float32] | None = None
    for start in track_progress(range(0, len(texts), _CHUNK), "sentences", "chunk"):
        rows = order[start : start + _CHUNK]
        folder = chunks / f"{start:08d}"
        if not folder.is_dir():
            _store_chunk(folder, _encode_by_length([numbers[row] for row in rows], encoder.encode))
        chunk = read_array(folder / "vectors.npy")
        if vectors is None:
            vectors = np.empty((len(texts), chunk.shape[1]), np.float32)
        vectors[rows] = chunk
    assert vectors is not None
    return vectors


def _store_chunk(folder: Path, vectors: npt.NDArray[np.float32]) -> None:
    store(folder, lambda work: write_arrays(work, {"vectors": vectors}))


def _encode_by_length(
    numbers: list[list[int]], encode: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float32]]
) -> npt.NDArray[np.float32]:
    """Return vectors (n, d) of texts in ascending order of length, batched by equal lengths."""
    batches = []
    for length, group in groupby(numbers, len):
        same = np.array(list(group), np.int64)
        step = max(1, _TOKENS // length)
        batches += [same[start : start + step] for start in range(0, len(same), step)]
    with one_blas_thread, ThreadPoolExecutor(resolve_threads()) as pool:
        return np.concatenate(list(pool.map(encode, batches)))
