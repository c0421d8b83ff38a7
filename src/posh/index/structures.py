"""The one table of structures, and the one place that chooses among them."""

from __future__ import annotations

from typing import Any, NamedTuple

from posh.hashers.base import Hasher, SparseHasher
from posh.index.blocks import BlockIndex
from posh.index.code_index import CodeIndex
from posh.index.lists import ListIndex
from posh.index.packed import PackedIndex
from posh.index.params import needs_sparse_codes
from posh.index.segments import SegmentIndex

__all__ = ["STRUCTURES", "Structure", "structure_for"]


class Structure(NamedTuple):
    """A way to lay out documents: for sparse codes, for dense codes if there is one, for a metric."""

    about: str
    sparse: type[CodeIndex]
    dense: type[CodeIndex] | None
    metric: type[CodeIndex]


STRUCTURES = {
    "exact": Structure("scan everything", SegmentIndex, PackedIndex, BlockIndex),
    "ivf": Structure("scan only the nearest lists", ListIndex, None, BlockIndex),
}


def structure_for(name: str, hasher: Hasher[Any], metric: str | None = None) -> type[CodeIndex]:
    """The structure of this name for the codes of a hasher, or for a metric; a ValueError if there is none.

    >>> import posh
    >>> structure_for("exact", posh.POSH()).__name__, structure_for("exact", posh.LSH()).__name__
    ('SegmentIndex', 'PackedIndex')
    """
    structure = STRUCTURES[name]
    if metric is not None and not isinstance(hasher, SparseHasher):
        raise ValueError(needs_sparse_codes("metric", metric, hasher))
    if metric is not None:
        return structure.metric
    chosen = structure.sparse if isinstance(hasher, SparseHasher) else structure.dense
    if chosen is None:
        raise ValueError(needs_sparse_codes("structure", name, hasher))
    return chosen
