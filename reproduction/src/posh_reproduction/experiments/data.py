"""Loads the data of a unit, cuts it to size and checks it; a fingerprint tells other data apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from posh import datasets
from posh.datasets import Dataset
from posh_reproduction.experiments.guard import check_data, in_base
from posh_reproduction.experiments.spec import Unit

__all__ = ["balanced", "fingerprint", "load", "missing_files"]

_SAMPLE = 256  # rows whose content is in the fingerprint


@lru_cache(maxsize=1)  # units come one data set after the other
def load(
    name: str, n_base: int | None = None, n_queries: int | None = None, *, labelled: bool = True
) -> Dataset:
    """A data set with the first ``n_base`` vectors and ``n_queries`` queries of its fixed random order.

    ``labelled=False`` allows data sets without labels. Of these, queries that are in the base are left out:
    two patches of images may be equal, and such a query would be its own neighbour.

    >>> load("digits", n_base=1000, n_queries=50)
    Dataset('digits', base=(1000, 64), queries=(50, 64), classes=10)
    """
    data = datasets.load(name, n_base=n_base)
    labels = None if data.query_labels is None else data.query_labels[:n_queries]
    queries = data.queries[:n_queries]
    if labels is None and not labelled:
        queries = queries[~in_base(replace(data, queries=queries, query_names=None, base_names=None))]
    data = replace(data, queries=queries, query_labels=labels, base_names=None, query_names=None)
    return check_data(data, labelled=labelled)


def missing_files(units: Iterable[Unit]) -> list[str]:
    """Names of the data sets that the units need but whose files are missing, and that no program can fetch.

    >>> missing_files([{"kind": "trial", "data": "digits", "seed": 0}])
    []
    """
    wanted = {unit["data"] for unit in units if "data" in unit}
    return [
        info.name
        for info in datasets.catalogue()
        if info.name in wanted and info.n_base is None and not info.cached
    ]


def balanced(data: Dataset, n_base: int, n_queries: int) -> Dataset:
    """The first ``n_base`` vectors and ``n_queries`` queries of each class, in their order.

    >>> balanced(load("digits"), n_base=20, n_queries=5)
    Dataset('digits', base=(200, 64), queries=(50, 64), classes=10)
    """
    assert data.base_labels is not None
    assert data.query_labels is not None
    base, queries = _first(data.base_labels, n_base), _first(data.query_labels, n_queries)
    return replace(
        data,
        base=data.base[base],
        base_labels=data.base_labels[base],
        queries=data.queries[queries],
        query_labels=data.query_labels[queries],
    )


def _first(labels: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    """Rows of the first n of each class, ascending."""
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:n] for label in np.unique(labels)]))


@cache
def fingerprint(
    name: str, n_base: int | None = None, n_queries: int | None = None, *, labelled: bool = True
) -> dict[str, Any]:
    """Name, shapes and a checksum of a sample of the vectors and of all labels.

    >>> fingerprint("digits")["base"]
    [1597, 64]
    """
    data = load(name, n_base, n_queries, labelled=labelled)
    digest = hashlib.sha256()
    for vectors in (data.base, data.queries):
        rows = np.linspace(0, len(vectors) - 1, _SAMPLE).astype(np.int64)
        digest.update(np.ascontiguousarray(vectors[rows]).tobytes())
    for labels in (data.base_labels, data.query_labels):
        if labels is not None:
            digest.update(np.ascontiguousarray(labels).tobytes())
    shapes = {"base": list(data.base.shape), "queries": list(data.queries.shape)}
    return {"name": name, **shapes, "sha256": digest.hexdigest()}
