"""What one search asks for: checked once, where the call enters, then passed down to the scan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from posh import _validate
from posh._threads import cores
from posh.hashers.base import Hasher, SparseHasher

__all__ = ["SCORINGS", "Scoring", "SearchParams", "needs_sparse_codes", "require_scoring", "search_params"]


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
    SearchParams(k=5, scoring=None, oversample=3.0, n_probe=None, n_threads=None, slack=None, \
exact=False, recall=None, min_score=None)
    """

    k: int = 10
    scoring: str | None = None
    oversample: float | None = None
    n_probe: int | None = None
    n_threads: int | None = None
    slack: float | None = None
    exact: bool = False
    recall: float | None = None
    min_score: float | None = None

    def __post_init__(self) -> None:
        fields = vars(self)  # where the numbers become plain int and float
        fields["k"] = _validate.integer("k", self.k, 1)
        if self.scoring is not None:
            _validate.choice("scoring", self.scoring, SCORINGS)
        if self.oversample is not None:
            fields["oversample"] = _validate.real("oversample", self.oversample, 1.0)
        if self.slack is not None:
            fields["slack"] = _validate.real("slack", self.slack, 0.0)
        if self.recall is not None:
            fields["recall"] = _validate.real("recall", self.recall, 0.0, 1.0, open_low=True)
        if self.min_score is not None:
            fields["min_score"] = _validate.real("min_score", self.min_score, -np.inf)
        if not isinstance(self.exact, bool):
            raise TypeError(f"expected exact to be True or False, got {self.exact!r}")
        for name in ("n_probe", "n_threads"):
            if fields[name] is not None:
                fields[name] = _validate.integer(name, fields[name], 1)

    def completed(self, defaults: Any, hasher: Hasher[Any]) -> SearchParams:
        """The same with ``scoring``, ``oversample`` and ``n_probe`` of an index where none are given.

        An index with a metric decides about the last two by itself, from the recall.
        """
        require_scoring(self.scoring, hasher)
        if defaults.metric is not None:
            return self.completed_by_metric(defaults)
        self._require_metric(None)
        return self._changed(
            scoring=self.scoring or defaults.scoring,
            oversample=self.oversample or defaults.oversample,
            n_probe=self.n_probe or defaults.n_probe,
        )

    def completed_by_metric(self, defaults: Any) -> SearchParams:
        """The same for an index with a metric: it decides about all but the recall by itself."""
        self._require_metric(defaults.metric)
        if self.recall is not None and defaults.recall is None:
            raise ValueError(
                f"recall={self.recall!r} needs an index that has measured what searches find: "
                "make it with a recall, Index.build(X, recall=0.95)"
            )
        return self if self.recall is not None else self._changed(recall=defaults.recall)

    def _require_metric(self, metric: str | None) -> None:
        if metric is not None and self.scoring is not None:
            raise ValueError(f"scoring={self.scoring!r} is for an index without a metric: leave it out")
        if metric is None and (self.exact or self.slack is not None or self.recall is not None):
            name = "exact" if self.exact else "slack" if self.slack is not None else "recall"
            raise ValueError(
                f"{name}={getattr(self, name)!r} needs an index with a metric: Index(..., metric=)"
            )

    def n_candidates(self, n_documents: int) -> int:
        """The number of candidates for k results, at most one for each document."""
        return math.ceil(min(self.k * (self.oversample or 1.0), n_documents))

    def oversampled(self, n_documents: int) -> SearchParams:
        """The same with k as the number of candidates."""
        return self.with_k(self.n_candidates(n_documents))

    def with_k(self, k: int) -> SearchParams:
        """The same with another k."""
        return self if k == self.k else self._changed(k=k)

    @property
    def threads(self) -> int:
        """The number of threads."""
        return self.n_threads or cores()

    def as_arguments(self) -> dict[str, Any]:
        """The arguments of ``search`` by name, without those that are not given."""
        return {name: value for name, value in vars(self).items() if value is not None and value is not False}

    def _changed(self, **fields: Any) -> SearchParams:
        """The same with other fields, which are right already: ``replace`` would check all of them again."""
        other = object.__new__(SearchParams)
        vars(other).update(vars(self), **fields)
        return other


def search_params(*values: Any) -> SearchParams:
    """``SearchParams(*values)``; made and checked once for values that come again and again."""
    try:
        return _remembered(*values)
    except TypeError:  # a value that cannot be remembered is a wrong one
        return SearchParams(*values)


_remembered = lru_cache(maxsize=1024, typed=True)(SearchParams)


def require_scoring(scoring: str | None, hasher: Hasher[Any]) -> None:
    """Raise a ValueError for a scoring that the codes of a hasher do not allow."""
    if scoring is not None and SCORINGS[scoring].sparse_only and not isinstance(hasher, SparseHasher):
        raise ValueError(needs_sparse_codes("scoring", scoring, hasher))


def needs_sparse_codes(name: str, value: object, hasher: Hasher[Any]) -> str:
    """The message for an option that dense codes do not allow."""
    return f"{name}={value!r} needs sparse codes, got {type(hasher).__name__}: leave it out"
