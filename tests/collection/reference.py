"""A plain collection: a dictionary, NumPy and ``filters.passes``, to compare real ones with."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

import posh
from posh.collection.base import NO_HASHER, BaseCollection, Id, Include, Item, Payload
from posh.collection.filters import Filter, passes
from posh.index.codes.options import CodeParams
from posh.index.hits import Hits
from posh.index.nearest.report import IndexReport
from posh.index.params import SearchParams
from tests.index.test_metric import plain_scores


class ReferenceCollection(BaseCollection):
    """Keeps every promise of a collection but durability, in the simplest way."""

    def __init__(
        self,
        hasher: posh.Hasher | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        metric: str | None = None,
        recall: float | None = None,  # all vectors are compared: that is 1
    ):
        self._by_id: dict[Id, Item] = {}  # in the order of writing: what is replaced moves to the end
        self._closed = False
        self._features: int | None = None
        self._hasher: posh.Hasher | None = None
        self._scoring = "overlap"
        self._metric = metric
        self._metadata: Payload = {}
        self.set_metadata(metadata or {})
        if hasher is not None and metric is not None:
            raise ValueError("expected a hasher or a metric, got both")
        if hasher is not None:
            self.reindex(hasher)

    @property
    def n_features(self) -> int | None:
        self._require_open()
        return self._features

    @property
    def hasher(self) -> posh.Hasher | None:
        self._require_open()
        return self._hasher

    @property
    def metadata(self) -> Payload:
        self._require_open()
        return copy.deepcopy(self._metadata)

    @property
    def index_options(self) -> dict[str, Any]:
        self._require_open()
        return {"scoring": self._scoring} if self._metric is None else {"metric": self._metric}

    def memory_usage(self) -> int | None:
        self._require_open()
        return None

    def _set_metadata(self, metadata: Payload) -> None:
        self._require_open()
        self._metadata = metadata

    def _upsert(self, ids: list[Id], vectors: np.ndarray, payloads: list[Payload]) -> None:
        self._features = vectors.shape[1]
        for item_id, vector, payload in zip(ids, vectors, payloads, strict=True):
            self._by_id.pop(item_id, None)
            self._by_id[item_id] = Item(item_id, vector.copy(), payload)

    def _delete(self, ids: list[Id]) -> int:
        self._require_open()
        return sum(self._by_id.pop(item_id, None) is not None for item_id in ids)

    def _delete_where(self, where: Filter, limit: int | None) -> int:
        self._require_open()
        found = [item.id for item in self._by_id.values() if self._passes(where, item)][:limit]
        return self._delete(found)

    def _update_payload(self, ids: list[Id], payloads: list[Payload], *, replace: bool) -> None:
        self._require_open()
        for item_id in ids:
            if item_id not in self._by_id:
                raise KeyError(f"expected ids of stored items, got {item_id!r}, which is not there")
        for item_id, payload in zip(ids, payloads, strict=True):
            item = self._by_id.pop(item_id)
            self._by_id[item_id] = item._replace(payload=payload if replace else item.payload | payload)

    def _get(self, ids: list[Id]) -> list[Item | None]:
        self._require_open()
        return [copy.deepcopy(self._by_id.get(item_id)) for item_id in ids]

    def _search(
        self, vectors: np.ndarray, params: SearchParams, where: Filter | None, include: Include
    ) -> Hits:
        found = [item for item in self._by_id.values() if self._passes(where, item)]
        scoring = (params.scoring if isinstance(params, CodeParams) else None) or self._scoring
        ids = np.full((len(vectors), params.k), None, object)
        scores = np.full((len(vectors), params.k), -np.inf, np.float32)
        if found:
            similarity = self._similarity(vectors, np.array([item.vector for item in found]), scoring)
            order = np.argsort(-similarity, axis=1, kind="stable")[:, : params.k]
            ids[:, : order.shape[1]] = np.array([item.id for item in found], object)[order]
            scores[:, : order.shape[1]] = np.take_along_axis(similarity, order, axis=1)
        if params.min_score is not None:
            ids[scores < params.min_score], scores[scores < params.min_score] = None, -np.inf
        rows = [[self._by_id[number] for number in row if number is not None] for row in ids]
        return Hits(
            ids,
            scores,
            self._kind(scoring),
            [[copy.deepcopy(item.payload) for item in row] for row in rows] if include.payloads else None,
            [[item.vector for item in row] for row in rows] if include.vectors else None,
        )

    def _kind(self, scoring: str) -> str:
        if self._metric is not None or scoring == "asymmetric":
            return self._metric or scoring
        return "overlap" if isinstance(self._hasher, posh.SparseHasher) else "equal-bits"

    def _similarity(self, queries: np.ndarray, vectors: np.ndarray, scoring: str) -> np.ndarray:
        if self._metric is not None:
            return plain_scores(self._metric, queries, vectors).astype(np.float32)
        base = self._hasher.encode(vectors).to_dense(np.float32)
        if scoring == "asymmetric":
            return self._hasher.project(queries) @ base.T
        codes = self._hasher.encode(queries).to_dense(np.float32)
        if isinstance(self._hasher, posh.SparseHasher):
            return codes @ base.T
        return (codes[:, None] == base[None]).sum(axis=2)

    def _count(self, where: Filter | None) -> int:
        self._require_open()
        return sum(self._passes(where, item) for item in self._by_id.values())

    def _items(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        self._require_open()
        return self._iterate(where, after, limit)

    def _iterate(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        everything = list(self._by_id.values())
        if after is not None:
            if after not in self._by_id:
                raise KeyError(f"expected after to be the id of an item, got {after!r}, which is not there")
            everything = everything[list(self._by_id).index(after) + 1 :]
        for item in [item for item in everything if self._passes(where, item)][:limit]:
            self._require_open()
            yield copy.deepcopy(item)

    def _sample(self, n: int) -> np.ndarray:
        self._require_open()
        vectors = np.array([item.vector for item in self._by_id.values()], np.float32)
        return vectors[np.sort(np.random.default_rng(0).permutation(len(vectors))[:n])]

    def _calibrate(self, queries: np.ndarray | None) -> None:
        raise ValueError("expected a collection with a metric and items to calibrate, got one without")

    def _report(self) -> IndexReport:
        raise ValueError("expected a collection with a metric and items to report on, got one without")

    def _reindex(self, hasher: posh.Hasher | None, options: Mapping[str, Any]) -> None:
        options = dict(options)
        metric = options.pop("metric", None)
        if hasher is not None:
            self._hasher, self._features, self._metric = copy.deepcopy(hasher), hasher.n_features_in_, None
        elif metric is not None:
            self._hasher, self._metric = None, metric
        elif self._hasher is None and self._metric is None:
            raise ValueError(NO_HASHER)
        options.pop("recall", None)
        for name, value in options.items():
            if name != "scoring":
                raise TypeError(f"the reference knows the option scoring only, got {name!r}")
            self._scoring = value

    def compact(self) -> Self:
        self._require_open()
        return self

    def close(self) -> None:
        self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("expected an open collection, got a closed one: open it again")

    @staticmethod
    def _passes(where: Filter | None, item: Item) -> bool:
        return where is None or passes(where.tree, item.payload)
