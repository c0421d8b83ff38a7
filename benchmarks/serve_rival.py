"""The service with another search: faiss.IndexBinaryFlat, over the same collection and codes."""

from __future__ import annotations

from typing import Any
from unittest import mock

import faiss
import numpy as np

import posh
from posh.collection.base import Include
from posh.collection.filters import Filter
from posh.index.hits import Hits
from posh.index.params import SearchParams


class FlatCollection(posh.Collection):
    """Searches by faiss the items that it holds when it is opened."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        assert self.hasher is not None
        self._flat = faiss.IndexBinaryFlat(self.hasher.n_bits)
        ids: list[Any] = []
        vectors = []
        for item in self.items():
            ids.append(item.id)
            vectors.append(item.vector)
            if len(vectors) == 10_000:
                self._flat.add(self._packed(np.array(vectors)))
                vectors.clear()
        if vectors:
            self._flat.add(self._packed(np.array(vectors)))
        self._ids = np.array(ids, object)

    def _packed(self, vectors: np.ndarray) -> np.ndarray:
        assert self.hasher is not None
        return np.packbits(self.hasher.encode(vectors).to_dense(), axis=1)

    def _search(
        self, vectors: np.ndarray, params: SearchParams, where: Filter | None, include: Include
    ) -> Hits:
        n_threads = 1 if len(vectors) == 1 else 2  # a second thread only slows a single query down
        faiss.omp_set_num_threads(n_threads)
        distances, slots = self._flat.search(self._packed(vectors), params.k)
        assert isinstance(self.hasher, posh.SparseHasher)
        overlap = self.hasher.n_active - distances / 2  # the paper's eq. 3
        return Hits(self._ids[slots], overlap.astype(np.float32), "overlap")


def main() -> int:
    from posh.cli import main

    with mock.patch("posh.serve.sources.Collection", FlatCollection):
        return main()
