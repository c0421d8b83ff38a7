"""The hashers of the experiments: with the paper's rules instead of the library's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import posh
from posh.hashers import make_hasher

__all__ = ["identity", "paper_hasher"]

# All records were made with these values. Those of ``reduce`` do not name it: there was no other rule.
_RULES = {"lag": 0.05, "reduce": "paper"}


def paper_hasher(method: str, params: Mapping[str, Any]) -> posh.Hasher[Any]:
    """An unfitted hasher, by the name of its class, with the paper's rules unless ``params`` has others.

    >>> paper_hasher("POSH", {"n_bits": 256}).reduce
    'paper'
    """
    known = make_hasher(method, {}).get_params()
    return make_hasher(method, {key: _RULES[key] for key in _RULES.keys() & known} | dict(params))


def identity(hasher: posh.Hasher[Any]) -> dict[str, Any]:
    """The parameters that a record names: all but the paper's reduction.

    >>> sorted(identity(paper_hasher("Hadamard", {"n_bits": 256})))
    ['n_active', 'n_bits', 'random_state']
    """
    params = hasher.get_params()
    return {key: value for key, value in params.items() if (key, value) != ("reduce", _RULES["reduce"])}
