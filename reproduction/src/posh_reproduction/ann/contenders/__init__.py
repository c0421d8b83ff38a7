"""The contenders of the comparison by name: ours, and libraries from PyPI behind the same protocol."""

from __future__ import annotations

from collections.abc import Iterable

from posh_reproduction.ann.contenders.base import BuiltIndex, Contender, Params, Search
from posh_reproduction.ann.contenders.brute import BruteForce
from posh_reproduction.ann.contenders.faiss import (
    FaissGraph,
    FaissLists,
    FaissPanorama,
    FaissRabitq,
    FaissSmallGraph,
)
from posh_reproduction.ann.contenders.graphs import Hnswlib, PyNNDescent, Usearch, Vsag
from posh_reproduction.ann.contenders.ours import PoshDefault, PoshExact, PoshGraph, PoshLists
from posh_reproduction.ann.contenders.rabitq import RabitqLists, SymphonyQG
from posh_reproduction.ann.contenders.scann import Scann

__all__ = ["CONTENDERS", "DEFAULT", "OURS", "BuiltIndex", "Contender", "Params", "Search", "chosen"]

_OURS: tuple[Contender, ...] = (PoshDefault(), PoshGraph(), PoshLists(), PoshExact())
_RIVALS: tuple[Contender, ...] = (
    SymphonyQG(),
    RabitqLists(),
    Scann(),
    FaissLists(),
    FaissRabitq(),
    FaissPanorama(),
    FaissGraph(),
    FaissSmallGraph(),
    Hnswlib(),
    Usearch(),
    Vsag(),
    PyNNDescent(),
    BruteForce(),
)
CONTENDERS: dict[str, Contender] = {contender.name: contender for contender in _OURS + _RIVALS}
OURS = tuple(contender.name for contender in _OURS)
# Left out: one that takes longer than all others, and one that compiles for a minute and sometimes crashes.
DEFAULT = tuple(name for name in CONTENDERS if name not in ("brute-force", "pynndescent"))


def chosen(names: Iterable[str]) -> list[Contender]:
    """Return the contenders of these names; raise an error that names missing packages.

    >>> [contender.name for contender in chosen(["posh-ivf", "brute-force"])]
    ['posh-ivf', 'brute-force']
    """
    found = []
    for name in names:
        if name not in CONTENDERS:
            raise ValueError(f"unknown contender {name!r}; choose from {', '.join(CONTENDERS)}")
        CONTENDERS[name].version()  # imports the library
        found.append(CONTENDERS[name])
    return found
