"""POSH: sparse binary codes for vectors, and exact search over them.

>>> import posh
>>> data = posh.datasets.load("digits")
>>> hasher = posh.POSH(n_bits=256, n_active=16, random_state=0).fit(data.base)
>>> hasher.encode(data.queries)
Codes(n=200, n_active=16, n_bits=256)
"""

from posh import datasets, kernels, metrics
from posh.codes import Codes, PackedCodes
from posh.collection.base import BaseCollection, Item, Matches
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
    Hasher,
    SparseHasher,
    SphericalHash,
)
from posh.index.exact import search
from posh.index.hits import Hits
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
    "Hasher",
    "Hits",
    "Index",
    "Item",
    "LinearDecoder",
    "Matches",
    "MissingExtraError",
    "PackedCodes",
    "PoshError",
    "SparseHasher",
    "SphericalHash",
    "StorageError",
    "datasets",
    "kernels",
    "metrics",
    "search",
]
