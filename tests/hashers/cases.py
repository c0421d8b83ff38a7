"""All hashers, small: one list for every conformance test."""

from __future__ import annotations

import posh
from posh.hashers import HASHERS

SPARSE = [
    posh.POSH(64, 6, n_epochs=4, random_state=0),
    posh.SphericalHash(64, 6, n_epochs=4, random_state=0),
    posh.PowerHash(64, 6, n_epochs=4, random_state=0),
    posh.BioHash(64, 6, n_epochs=8, random_state=0),
    posh.BOSL(64, 6, n_steps=8, random_state=0),
    posh.OSL(64, 6, n_epochs=8, random_state=0),
    posh.FruitFly(64, 6, random_state=0),
    posh.FruitFly(64, 6, weights="orthogonal", random_state=0),
]
DENSE = [
    posh.ITQ(12, n_epochs=5, random_state=0),
    posh.KNNH(12, n_epochs=5, random_state=0),
]
for _class in HASHERS.values():  # those without parameters that need a word
    _cases, _n_bits = (SPARSE, (64, 6)) if issubclass(_class, posh.SparseHasher) else (DENSE, (12,))
    if not any(type(hasher) is _class for hasher in _cases):
        _cases.append(_class(*_n_bits, random_state=0))
ALL = SPARSE + DENSE


def name(hasher: posh.Hasher) -> str:
    orthogonal = getattr(hasher, "weights", "") == "orthogonal"
    return type(hasher).__name__ + ("-orthogonal" if orthogonal else "")
