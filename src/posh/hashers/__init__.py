"""Hashers: one method per module, one contract for all (:mod:`posh.hashers.base`)."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import isabstract
from typing import Any

from posh.hashers.base import DenseHasher, EpochHasher, Hasher, SparseHasher
from posh.hashers.biohash import BioHash
from posh.hashers.fruitfly import FruitFly
from posh.hashers.hadamard import Hadamard
from posh.hashers.itq import ITQ
from posh.hashers.knnh import KNNH
from posh.hashers.lifting import BOSL, OSL
from posh.hashers.lsh import LSH
from posh.hashers.posh import POSH
from posh.hashers.power import PowerHash
from posh.hashers.spherical import SphericalHash

__all__ = [
    "BOSL",
    "HASHERS",
    "ITQ",
    "KNNH",
    "LSH",
    "OSL",
    "POSH",
    "BioHash",
    "DenseHasher",
    "EpochHasher",
    "FruitFly",
    "Hadamard",
    "Hasher",
    "PowerHash",
    "SparseHasher",
    "SphericalHash",
    "make_hasher",
]

HASHERS: dict[str, type[Hasher[Any]]] = {
    name: found
    for name in __all__
    if isinstance(found := globals().get(name), type) and not isabstract(found)
}
"""All hashers by name, for the command line, the service and experiments."""


def make_hasher(name: str, params: Mapping[str, Any]) -> Hasher[Any]:
    """Build an unfitted hasher by the name of its class; raise ValueError for unknown names and parameters.

    >>> make_hasher("POSH", {"n_bits": 256, "n_active": 16})
    POSH(n_active=16, n_bits=256)
    """
    if name not in HASHERS:
        raise ValueError(f"expected method to be one of {', '.join(HASHERS)}, got {name!r:.80}")
    known = HASHERS[name]().get_params()
    unknown = params.keys() - known.keys()
    if unknown:
        raise ValueError(f"expected params among {', '.join(sorted(known))}, got {min(unknown)!r:.80}")
    return HASHERS[name](**params)
