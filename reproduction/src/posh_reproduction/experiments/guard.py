"""Checks against mistakes that would make a result worthless.

Experiments give ``fit`` vectors and nothing else, so it never sees labels. These checks make sure that no
feature is the label, that no query is in the base, and that every counted result is a document.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from posh.datasets import Dataset
from posh.errors import PoshError

__all__ = ["LeakError", "check_data", "check_ids", "in_base"]

# So many rankings are checked for an id that comes twice. Sorting all would take longer than the search.
_SAMPLE = 8


class LeakError(PoshError, ValueError):
    """A query is in the base, or a label is among the features: results would be too good."""


def check_data(data: Dataset, *, labelled: bool = True) -> Dataset:
    """Return a data set in which queries are not in the base and no feature is the label.

    Without labels, which ``labelled=False`` allows, results must be judged by true neighbours.

    >>> import posh
    >>> data = posh.datasets.load("digits")
    >>> check_data(data) is data
    True
    """
    shared = int(in_base(data).sum())
    if shared:
        raise LeakError(f"{data.name}: expected no query in the base, got {shared}: split the data again")
    if data.base_labels is None or data.query_labels is None:
        if labelled:
            raise LeakError(f"{data.name}: expected labels to judge results by, got none")
        return data
    for vectors, labels in ((data.base, data.base_labels), (data.queries, data.query_labels)):
        leaking = np.flatnonzero(_is_label(vectors, labels))
        if len(leaking):
            raise LeakError(
                f"{data.name}: expected features, got the label in column {leaking[0]}: remove it"
            )
    return data


def in_base(data: Dataset) -> npt.NDArray[np.bool_]:
    """For each query, whether it is in the base. Only the queries are copied: the base may be large."""
    queries = [row.tobytes() for row in np.ascontiguousarray(data.queries)]
    wanted = set(queries)
    found = {content for row in data.base if (content := row.tobytes()) in wanted}
    return np.array([content in found for content in queries], bool)


def check_ids(ids: npt.NDArray[np.int64], n_base: int) -> npt.NDArray[np.int64]:
    """Return ids (m, k) of which each is a document 0..n_base-1; in a sample of rows, none comes twice."""
    if ids.size and (ids.min() < 0 or ids.max() >= n_base):
        raise ValueError(f"expected ids in 0..{n_base - 1}, got {ids.min()}..{ids.max()}")
    ordered = np.sort(ids[:: max(1, len(ids) // _SAMPLE)], axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        raise ValueError("expected distinct ids for each query, got one twice")
    return ids


def _is_label(vectors: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """For each column, whether it is the label."""
    if len(np.unique(labels)) < 2:
        return np.zeros(vectors.shape[1], bool)
    return np.asarray((vectors == labels[:, None]).all(axis=0))
