"""A plain index: everything in dictionaries and NumPy, to compare the real one with."""

from __future__ import annotations

import numpy as np

import posh


class PlainIndex:
    """The same promises as ``posh.Index`` with ``structure="exact"``, kept in the simplest way."""

    def __init__(self, hasher, scoring="overlap", document_active=None, query_active=None):
        self.hasher, self.scoring = hasher, scoring
        self.document_active, self.query_active = document_active, query_active
        self.documents: list[tuple[int, np.ndarray]] = []  # id and code, in order of addition
        self.next_id = 0

    def encode(self, X, n_active):
        if isinstance(self.hasher, posh.SparseHasher):
            return self.hasher.encode(X, n_active=n_active).to_dense(np.float32)
        return self.hasher.encode(X).to_dense(np.float32)

    def add(self, X, ids=None):
        ids = range(self.next_id, self.next_id + len(X)) if ids is None else ids
        codes = self.encode(X, self.document_active) if len(X) else []
        self.documents += [(int(number), code) for number, code in zip(ids, codes, strict=True)]
        self.next_id = max([self.next_id, *(int(number) + 1 for number in ids)])

    def delete(self, ids):
        gone = {int(number) for number in ids}
        self.documents = [entry for entry in self.documents if entry[0] not in gone]

    def update(self, X, ids):
        self.delete(ids)
        self.add(X, ids)

    def search(self, X, k, allowed=None):
        documents = [entry for entry in self.documents if allowed is None or entry[0] in allowed]
        ids = np.full((len(X), k), -1)
        scores = np.full((len(X), k), -np.inf, np.float32)
        if documents:
            base = np.array([code for _, code in documents])
            similarity = self.similarity(X, base)
            order = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
            numbers = np.array([number for number, _ in documents])
            ids[:, : order.shape[1]] = numbers[order]
            scores[:, : order.shape[1]] = np.take_along_axis(similarity, order, axis=1)
        return ids, scores

    def similarity(self, X, base):
        if self.scoring == "asymmetric":
            return (self.hasher.project(X).astype(np.float64) @ base.T).round(4)
        queries = self.encode(X, self.query_active)
        if isinstance(self.hasher, posh.SparseHasher):
            return queries @ base.T
        return (queries[:, None] == base[None]).sum(axis=2)
