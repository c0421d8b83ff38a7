"""POSH: sparse binary codes for vectors, and exact search over them."""

from posh import datasets, kernels, metrics
from posh.codes import Codes, PackedCodes
from posh.decode import SBIHT, LinearDecoder
from posh.errors import DataUnavailableError, FormatError, MissingExtraError, PoshError
from posh.hashers import ITQ, KNNH, LSH, POSH, DenseHasher, FruitFly, Hasher, SparseHasher, SphericalHash

__all__ = [
    "ITQ",
    "KNNH",
    "LSH",
    "POSH",
    "SBIHT",
    "Codes",
    "DataUnavailableError",
    "DenseHasher",
    "FormatError",
    "FruitFly",
    "Hasher",
    "LinearDecoder",
    "MissingExtraError",
    "PackedCodes",
    "PoshError",
    "SparseHasher",
    "SphericalHash",
    "datasets",
    "kernels",
    "metrics",
]
