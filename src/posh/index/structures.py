"""The one table of structures, and the one place that chooses among them."""

from __future__ import annotations

from typing import Any

from posh.hashers.base import Hasher, SparseHasher
from posh.index.code_index import CodeIndex
from posh.index.lists import ListIndex
from posh.index.packed import PackedIndex
from posh.index.params import needs_sparse_codes
from posh.index.segments import SegmentIndex

__all__ = ["STRUCTURES", "structure_for"]

STRUCTURES: dict[str, tuple[type[CodeIndex], type[CodeIndex] | None]] = {
    "exact": (SegmentIndex, PackedIndex),
    "ivf": (ListIndex, None),
}
"""By name: the structure of sparse codes, and that of dense codes if there is one."""


def structure_for(name: str, hasher: Hasher[Any]) -> type[CodeIndex]:
    """The structure of this name for the codes of a hasher; a ValueError if there is none.

    >>> import posh
    >>> structure_for("exact", posh.POSH()).__name__, structure_for("exact", posh.LSH()).__name__
    ('SegmentIndex', 'PackedIndex')
    """
    sparse, dense = STRUCTURES[name]
    chosen = sparse if isinstance(hasher, SparseHasher) else dense
    if chosen is None:
        raise ValueError(needs_sparse_codes("structure", name, hasher))
    return chosen
