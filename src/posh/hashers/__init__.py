"""Hashers: one paper per file, one contract for all (:mod:`posh.hashers.base`)."""

from posh.hashers.base import DenseHasher, Hasher, SparseHasher
from posh.hashers.biohash import BioHash
from posh.hashers.epochs import EpochHasher
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
]
