"""What one search asks for: checked once, where the call enters, then passed down to the scan."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from posh import _validate
from posh._threads import cores
from posh.hashers.base import Hasher, SparseHasher

__all__ = ["SCORINGS", "Scoring", "SearchParams", "needs_sparse_codes", "require_scoring"]


class Scoring(NamedTuple):
    """A way to find candidates."""

    about: str
    sparse_only: bool


SCORINGS = {
    "overlap": Scoring("shared bits", sparse_only=False),
    "asymmetric": Scoring("more accurate, slower", sparse_only=True),
}


@dataclass(frozen=True)
class SearchParams:
    """What one search asks for.

    Until :meth:`completed`, None stands for what the index does by default. For a scan, None means: no
    candidates beyond k (``oversample``), all lists (``n_probe``), all cores (``n_threads``).

    >>> SearchParams(k=5, oversample=3)
    SearchParams(k=5, scoring=None, oversample=3.0, n_probe=None, n_threads=None)
    """

    k: int = 10
    scoring: str | None = None
    oversample: float | None = None
    n_probe: int | None = None
    n_threads: int | None = None

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {"k": _validate.integer("k", self.k, 1)}
        if self.scoring is not None:
            _validate.choice("scoring", self.scoring, SCORINGS)
        if self.oversample is not None:
            checked["oversample"] = _validate.real("oversample", self.oversample, 1.0)
        for name in ("n_probe", "n_threads"):
            if getattr(self, name) is not None:
                checked[name] = _validate.integer(name, getattr(self, name), 1)
        vars(self).update(checked)  # as plain int and float

    def completed(self, defaults: Any, hasher: Hasher[Any]) -> SearchParams:
        """The same with ``scoring``, ``oversample`` and ``n_probe`` of an index where none are given."""
        names = [name for name in ("scoring", "oversample", "n_probe") if getattr(self, name) is None]
        require_scoring(self.scoring, hasher)
        return replace(self, **{name: getattr(defaults, name) for name in names})

    def oversampled(self, n_documents: int) -> SearchParams:
        """The same with k as the number of candidates for k results, at most one for each document."""
        return replace(self, k=math.ceil(min(self.k * (self.oversample or 1.0), n_documents)))

    @property
    def threads(self) -> int:
        """The number of threads."""
        return cores(self.n_threads)

    def as_arguments(self) -> dict[str, Any]:
        """The arguments of ``search`` by name."""
        return asdict(self)


def require_scoring(scoring: str | None, hasher: Hasher[Any]) -> None:
    """Raise a ValueError for a scoring that the codes of a hasher do not allow."""
    if scoring is not None and SCORINGS[scoring].sparse_only and not isinstance(hasher, SparseHasher):
        raise ValueError(needs_sparse_codes("scoring", scoring, hasher))


def needs_sparse_codes(name: str, value: object, hasher: Hasher[Any]) -> str:
    """The message for an option that dense codes do not allow."""
    return f"{name}={value!r} needs sparse codes, got {type(hasher).__name__}: leave it out"
