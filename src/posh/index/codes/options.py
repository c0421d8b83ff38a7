"""Parameters of :class:`posh.CodeIndex` and of its searches."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any

from posh import _validate
from posh.hashers.base import Hasher, SparseHasher
from posh.index.choices import REFINER_NAMES, SCORINGS, STRUCTURE_NAMES
from posh.index.params import SearchParams

__all__ = [
    "CodeOptions",
    "CodeParams",
    "make_params",
    "needs_sparse_codes",
    "require_scoring",
]


_SPARSE_REFINERS = ("decoder", "sbiht")


@dataclass(frozen=True)
class CodeOptions:
    """The parameters of :class:`posh.CodeIndex` but for the hasher."""

    structure: str = "exact"
    scoring: str = "overlap"
    refine: str | None = None
    document_active: int | None = None
    query_active: int | None = None
    n_lists: int | None = None
    n_probe: int = 20
    oversample: float = 2.0
    random_state: int = 0

    def __post_init__(self) -> None:
        _validate.validate_choice("structure", self.structure, STRUCTURE_NAMES)
        _validate.validate_choice("scoring", self.scoring, SCORINGS)
        _validate.validate_choice("refine", self.refine, (None, *REFINER_NAMES))
        for name in ("document_active", "query_active"):
            if getattr(self, name) is not None:
                _validate.validate_integer(name, getattr(self, name), 1)
        if self.n_lists is not None:
            _validate.validate_integer("n_lists", self.n_lists, 1, 65_536)
        _validate.validate_integer("n_probe", self.n_probe, 1)
        _validate.validate_real("oversample", self.oversample, 1.0)
        _validate.validate_integer("random_state", self.random_state, 0)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all options."""
        return tuple(field.name for field in fields(cls))

    def for_hasher(self, hasher: Hasher[Any]) -> CodeOptions:
        """Return the options with the hasher's numbers of set bits; raise if they do not suit it."""
        require_scoring(self.scoring, hasher)
        if not isinstance(hasher, SparseHasher):
            self._require_dense_codes(hasher)
            return self
        active = {}
        for name in ("document_active", "query_active"):
            value = getattr(self, name)
            active[name] = hasher.n_active if value is None else value
            _validate.validate_integer(name, active[name], 1, hasher.n_bits, " (n_bits)")
        return CodeOptions(**asdict(self) | active)

    def _require_dense_codes(self, hasher: Hasher[Any]) -> None:
        is_wrong = {
            "structure": self.structure == "ivf",
            "refine": self.refine in _SPARSE_REFINERS,
            "document_active": self.document_active is not None,
            "query_active": self.query_active is not None,
        }
        for name in (name for name, wrong in is_wrong.items() if wrong):
            raise ValueError(needs_sparse_codes(name, getattr(self, name), hasher))


@dataclass(frozen=True)
class CodeParams(SearchParams):
    """The parameters of one search of :class:`posh.CodeIndex`; None takes the default of the index.

    >>> CodeParams(k=5, oversample=3)
    CodeParams(k=5, min_score=None, n_threads=None, scoring=None, oversample=3.0, n_probe=None)
    """

    scoring: str | None = None
    oversample: float | None = None
    n_probe: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        values = vars(self)
        if self.scoring is not None:
            _validate.validate_choice("scoring", self.scoring, SCORINGS)
        if self.oversample is not None:
            values["oversample"] = _validate.validate_real("oversample", self.oversample, 1.0)
        if self.n_probe is not None:
            values["n_probe"] = _validate.validate_integer("n_probe", self.n_probe, 1)

    def complete(self, options: CodeOptions, hasher: Hasher[Any]) -> CodeParams:
        """Return the parameters with the defaults of an index; raise ValueError if the hasher forbids one."""
        require_scoring(self.scoring, hasher)
        return self.change(
            scoring=self.scoring or options.scoring,
            oversample=self.oversample or options.oversample,
            n_probe=self.n_probe or options.n_probe,
        )

    def n_candidates(self, n_documents: int) -> int:
        """Return the number of candidates for k results, at most one for each document."""
        return math.ceil(min(self.k * (self.oversample or 1.0), n_documents))

    def for_candidates(self, n_documents: int) -> CodeParams:
        """Return the parameters with k as the number of candidates."""
        return self.with_k(self.n_candidates(n_documents))


def make_params(*values: Any) -> CodeParams:
    """Return ``CodeParams(*values)``, validated once for repeated values."""
    try:
        return _cached_params(*values)
    except TypeError:  # a value that cannot be hashed is a wrong one
        return CodeParams(*values)


_cached_params = lru_cache(maxsize=1024, typed=True)(CodeParams)


def require_scoring(scoring: str | None, hasher: Hasher[Any]) -> None:
    """Raise ValueError for a scoring that the codes of a hasher do not allow."""
    if scoring is not None and SCORINGS[scoring].sparse_only and not isinstance(hasher, SparseHasher):
        raise ValueError(needs_sparse_codes("scoring", scoring, hasher))


def needs_sparse_codes(name: str, value: object, hasher: Hasher[Any]) -> str:
    """Return the message for an option that dense codes do not allow."""
    return f"{name}={value!r} needs sparse codes, got {type(hasher).__name__}: leave it out"
