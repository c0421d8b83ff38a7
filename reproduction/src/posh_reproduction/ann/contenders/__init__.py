"""The contenders of the comparison by name: ours, and libraries from PyPI behind the same protocol."""

from __future__ import annotations

from collections.abc import Iterable

from posh_reproduction.ann.contenders.base import BuiltIndex, Contender, Params, Search
from posh_reproduction.ann.contenders.brute import BruteForce
from posh_reproduction.ann.contenders.graphs import FaissGraph, Hnswlib, Usearch
from posh_reproduction.ann.contenders.ours import PoshExact, PoshLists
from posh_reproduction.ann.contenders.trees import FaissLists, Scann

__all__ = ["CONTENDERS", "DEFAULT", "OURS", "BuiltIndex", "Contender", "Params", "Search", "chosen"]

_ALL: tuple[Contender, ...] = (
    PoshLists(),
    PoshExact(),
    Scann(),
    FaissLists(),
    FaissGraph(),
    Hnswlib(),
    Usearch(),
    BruteForce(),
)
CONTENDERS: dict[str, Contender] = {contender.name: contender for contender in _ALL}
OURS = ("posh-ivf", "posh-exact")
DEFAULT = tuple(name for name in CONTENDERS if name != "brute-force")  # that takes longer than all others


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
