"""Hashers: one paper per file, one contract for all (:mod:`posh.hashers.base`)."""

from posh.hashers.base import DenseHasher, Hasher, SparseHasher
from posh.hashers.fruitfly import FruitFly
from posh.hashers.itq import ITQ
from posh.hashers.knnh import KNNH
from posh.hashers.lsh import LSH
from posh.hashers.posh import POSH
from posh.hashers.spherical import SphericalHash

__all__ = ["ITQ", "KNNH", "LSH", "POSH", "DenseHasher", "FruitFly", "Hasher", "SparseHasher", "SphericalHash"]
