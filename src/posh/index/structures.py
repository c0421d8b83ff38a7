"""The one table of structures, and the one place that chooses among them."""

from __future__ import annotations

from typing import Any, NamedTuple

from posh.hashers.base import Hasher, SparseHasher
from posh.index.code_index import CodeIndex
from posh.index.lists import ListIndex
from posh.index.packed import PackedIndex
from posh.index.params import needs_sparse_codes
from posh.index.segments import SegmentIndex

__all__ = ["STRUCTURES", "Structure", "structure_for"]


class Structure(NamedTuple):
    """A way to lay out documents: for sparse codes, and for dense codes if there is one."""

    about: str
    sparse: type[CodeIndex]
    dense: type[CodeIndex] | None


STRUCTURES = {
    "exact": Structure("scan everything", SegmentIndex, PackedIndex),
    "ivf": Structure("scan only the nearest lists", ListIndex, None),
}


def structure_for(name: str, hasher: Hasher[Any]) -> type[CodeIndex]:
    """The structure of this name for the codes of a hasher; a ValueError if there is none.

    >>> import posh
    >>> structure_for("exact", posh.POSH()).__name__, structure_for("exact", posh.LSH()).__name__
    ('SegmentIndex', 'PackedIndex')
    """
    structure = STRUCTURES[name]
    chosen = structure.sparse if isinstance(hasher, SparseHasher) else structure.dense
    if chosen is None:
        raise ValueError(needs_sparse_codes("structure", name, hasher))
    return chosen
