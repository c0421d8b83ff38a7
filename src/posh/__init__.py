"""POSH: sparse binary codes for vectors, and exact search over them."""

from posh import datasets, kernels, metrics
from posh.codes import Codes, PackedCodes
from posh.decode import SBIHT, LinearDecoder
from posh.hashers import ITQ, KNNH, LSH, POSH, DenseHasher, FruitFly, Hasher, SparseHasher, SphericalHash

__all__ = [
    "ITQ",
    "KNNH",
    "LSH",
    "POSH",
    "SBIHT",
    "Codes",
    "DenseHasher",
    "FruitFly",
    "Hasher",
    "LinearDecoder",
    "PackedCodes",
    "SparseHasher",
    "SphericalHash",
    "datasets",
    "kernels",
    "metrics",
]
