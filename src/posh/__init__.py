"""POSH: sparse binary codes for vectors, and exact search over them.

``import posh`` is quick: each public name is imported when it is first used.

>>> import posh
>>> data = posh.datasets.load("digits")
>>> hasher = posh.POSH(n_bits=256, n_active=16, random_state=0).fit(data.base)
>>> hasher.encode(data.queries)
Codes(n=200, n_active=16, n_bits=256)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as in _HOMES, for type checkers and editors
    from posh import batch, datasets, kernels, metrics
    from posh._open import create, open  # noqa: A004
    from posh.codes import Codes, PackedCodes
    from posh.collection.base import BaseCollection, Item
    from posh.collection.embedded import Collection
    from posh.decode import SBIHT, LinearDecoder
    from posh.errors import DataUnavailableError, FormatError, MissingExtraError, PoshError, StorageError
    from posh.hashers import (
        BOSL,
        ITQ,
        KNNH,
        LSH,
        OSL,
        POSH,
        BioHash,
        DenseHasher,
        EpochHasher,
        FruitFly,
        Hadamard,
        Hasher,
        PowerHash,
        SparseHasher,
        SphericalHash,
    )
    from posh.index.exact import search
    from posh.index.hits import Hit, Hits
    from posh.index.index import Index

__all__ = [
    "BOSL",
    "ITQ",
    "KNNH",
    "LSH",
    "OSL",
    "POSH",
    "SBIHT",
    "BaseCollection",
    "BioHash",
    "Codes",
    "Collection",
    "DataUnavailableError",
    "DenseHasher",
    "EpochHasher",
    "FormatError",
    "FruitFly",
    "Hadamard",
    "Hasher",
    "Hit",
    "Hits",
    "Index",
    "Item",
    "LinearDecoder",
    "MissingExtraError",
    "PackedCodes",
    "PoshError",
    "PowerHash",
    "SparseHasher",
    "SphericalHash",
    "StorageError",
    "batch",
    "create",
    "datasets",
    "kernels",
    "metrics",
    "open",
    "search",
]

_HOMES = {
    "create": "posh._open",
    "open": "posh._open",
    "batch": "posh.batch",
    "Codes": "posh.codes",
    "PackedCodes": "posh.codes",
    "BaseCollection": "posh.collection.base",
    "Item": "posh.collection.base",
    "Collection": "posh.collection.embedded",
    "datasets": "posh.datasets",
    "LinearDecoder": "posh.decode",
    "SBIHT": "posh.decode",
    "DataUnavailableError": "posh.errors",
    "FormatError": "posh.errors",
    "MissingExtraError": "posh.errors",
    "PoshError": "posh.errors",
    "StorageError": "posh.errors",
    "BOSL": "posh.hashers",
    "BioHash": "posh.hashers",
    "DenseHasher": "posh.hashers",
    "EpochHasher": "posh.hashers",
    "FruitFly": "posh.hashers",
    "Hadamard": "posh.hashers",
    "Hasher": "posh.hashers",
    "ITQ": "posh.hashers",
    "KNNH": "posh.hashers",
    "LSH": "posh.hashers",
    "OSL": "posh.hashers",
    "POSH": "posh.hashers",
    "PowerHash": "posh.hashers",
    "SparseHasher": "posh.hashers",
    "SphericalHash": "posh.hashers",
    "search": "posh.index.exact",
    "Hit": "posh.index.hits",
    "Hits": "posh.index.hits",
    "Index": "posh.index.index",
    "kernels": "posh.kernels",
    "metrics": "posh.metrics",
}
"""The module of each public name; a public module is its own."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'posh' has no attribute {name!r}") from None
    module = import_module(home)
    value = module if home == f"posh.{name}" else getattr(module, name)
    globals()[name] = value  # from now on without this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
