"""Parameters of one search, validated once where the call enters and passed down to the scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from posh import _validate
from posh._runtime import resolve_threads

__all__ = ["SearchParams"]


@dataclass(frozen=True)
class SearchParams:
    """The parameters that every search has; each kind of index adds its own.

    ``min_score`` omits lower scores, ``n_threads`` is by default the number of cores. Optional parameters
    that are None take the default of the index.
    """

    k: int = 10
    min_score: float | None = None
    n_threads: int | None = None

    def __post_init__(self) -> None:
        fields = vars(self)  # numbers become plain int and float
        fields["k"] = _validate.validate_integer("k", self.k, 1)
        if self.min_score is not None:
            fields["min_score"] = _validate.validate_real("min_score", self.min_score, -np.inf)
        if self.n_threads is not None:
            fields["n_threads"] = _validate.validate_integer("n_threads", self.n_threads, 1)

    @property
    def threads(self) -> int:
        """The number of threads."""
        return self.n_threads or resolve_threads()

    def with_k(self, k: int) -> Self:
        """Return the same parameters with another k."""
        return self if k == self.k else self.change(k=k)

    def as_arguments(self) -> dict[str, Any]:
        """Return the arguments of ``search`` by name, without those that have no value."""
        return {name: value for name, value in vars(self).items() if value is not None and value is not False}

    def change(self, **fields: Any) -> Self:
        """Return a copy with other, valid fields: ``replace`` would validate all of them again."""
        copy = object.__new__(type(self))
        vars(copy).update(vars(self), **fields)
        return copy
