"""The data of a unit: loaded, cut to size, checked, and named so that other data is noticed."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from posh import datasets
from posh.datasets import Dataset
from posh.experiments.guard import check_data

__all__ = ["fingerprint", "load"]

_SAMPLE = 256  # rows whose content is in the fingerprint


@lru_cache(maxsize=1)  # units come one data set after the other
def load(name: str, n_base: int | None = None, n_queries: int | None = None) -> Dataset:
    """A data set with the first ``n_base`` vectors and ``n_queries`` queries of its fixed random order.

    >>> load("digits", n_base=1000, n_queries=50)
    Dataset('digits', base=(1000, 64), queries=(50, 64), classes=10)
    """
    data = datasets.load(name, n_base=n_base)
    labels = None if data.query_labels is None else data.query_labels[:n_queries]
    return check_data(replace(data, queries=data.queries[:n_queries], query_labels=labels, query_names=None))


@cache
def fingerprint(name: str, n_base: int | None = None, n_queries: int | None = None) -> dict[str, Any]:
    """Name, shapes and a checksum of a sample of the vectors and of all labels.

    >>> fingerprint("digits")["base"]
    [1597, 64]
    """
    data = load(name, n_base, n_queries)
    digest = hashlib.sha256()
    for vectors in (data.base, data.queries):
        rows = np.linspace(0, len(vectors) - 1, _SAMPLE).astype(np.int64)
        digest.update(np.ascontiguousarray(vectors[rows]).tobytes())
    for labels in (data.base_labels, data.query_labels):
        digest.update(np.ascontiguousarray(labels).tobytes())
    shapes = {"base": list(data.base.shape), "queries": list(data.queries.shape)}
    return {"name": name, **shapes, "sha256": digest.hexdigest()}
