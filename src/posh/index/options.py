"""What an index is asked to be: checked once, then fixed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from posh import _validate
from posh.hashers.base import Hasher, SparseHasher
from posh.index.refine import REFINERS

__all__ = ["Options", "scoring_for"]

STRUCTURES = ("exact", "ivf")
SCORINGS = ("overlap", "asymmetric")


@dataclass(frozen=True)
class Options:
    """The parameters of :class:`~posh.index.index.Index`, complete and consistent."""

    structure: str
    scoring: str
    refine: str | None
    document_active: int | None
    query_active: int | None
    n_lists: int | None
    n_probe: int
    oversample: float
    random_state: int

    def __post_init__(self) -> None:
        _validate.choice("structure", self.structure, STRUCTURES)
        _validate.choice("scoring", self.scoring, SCORINGS)
        _validate.choice("refine", self.refine, (None, *REFINERS))
        if self.n_lists is not None:
            _validate.integer("n_lists", self.n_lists, 1, 65_536)
        _validate.integer("n_probe", self.n_probe, 1)
        _validate.real("oversample", self.oversample, 1.0)
        _validate.integer("random_state", self.random_state, 0)

    def for_hasher(self, hasher: Hasher[Any]) -> Options:
        """The same options with the hasher's numbers of active bits where none are given."""
        if not isinstance(hasher, SparseHasher):
            return self._for_dense_codes(type(hasher).__name__)
        active = {}
        for name in ("document_active", "query_active"):
            value = getattr(self, name)
            active[name] = hasher.n_active if value is None else value
            _validate.integer(name, active[name], 1, hasher.n_bits, " (n_bits)")
        return Options(**asdict(self) | active)

    def _for_dense_codes(self, hasher: str) -> Options:
        wrong = {
            "structure": self.structure != "exact",
            "scoring": self.scoring != "overlap",
            "refine": self.refine is not None and REFINERS[self.refine].sparse_only,
            "document_active": self.document_active is not None,
            "query_active": self.query_active is not None,
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            raise ValueError(_needs_sparse_codes(name, getattr(self, name), hasher))
        return self


def scoring_for(hasher: Hasher[Any], scoring: str) -> str:
    """Return the scoring of one search if the hasher's codes allow it."""
    _validate.choice("scoring", scoring, SCORINGS)
    if scoring != "overlap" and not isinstance(hasher, SparseHasher):
        raise ValueError(_needs_sparse_codes("scoring", scoring, type(hasher).__name__))
    return scoring


def _needs_sparse_codes(name: str, value: object, hasher: str) -> str:
    return f"{name}={value!r} needs sparse codes, got {hasher}: leave it out"
