"""Parameters of :class:`posh.Index` and of its searches."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from posh import _validate
from posh.index.choices import METRICS, OPTIMIZE, STORES
from posh.index.params import SearchParams

__all__ = ["NearestOptions", "NearestParams", "RadiusParams", "make_params"]

_MOST_DIMENSIONS = {"balanced": 29.0, "latency": 30.0, "throughput": 28.0, "memory": 0.0, "build": 0.0}


@dataclass(frozen=True)
class NearestOptions:
    """The parameters of :class:`posh.Index`."""

    metric: str = "cosine"
    recall: float = 0.95
    store: str = "float32"
    n_lists: int | None = None
    random_state: int = 0
    optimize: str = "balanced"

    def __post_init__(self) -> None:
        _validate.validate_choice("metric", self.metric, METRICS)
        _validate.validate_real("recall", self.recall, 0.0, 1.0, open_low=True)
        _validate.validate_choice("store", self.store, STORES)
        if self.n_lists is not None:
            _validate.validate_integer("n_lists", self.n_lists, 1, 65_536)
        _validate.validate_integer("random_state", self.random_state, 0)
        _validate.validate_choice("optimize", self.optimize, OPTIMIZE)
        if self.optimize == "latency" and self.store == "int8":
            raise ValueError(
                "expected another optimize with store='int8', got optimize='latency': a graph compares "
                "stored vectors: use store='float16' or 'float32'"
            )

    @property
    def most_dimensions(self) -> float:
        """The local dimension of the documents up to which a graph serves these options better than lists."""
        return 0.0 if self.store == "int8" else _MOST_DIMENSIONS[self.optimize]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all options."""
        return tuple(field.name for field in fields(cls))


@dataclass(frozen=True)
class NearestParams(SearchParams):
    """The parameters of one search of :class:`posh.Index`.

    ``recall`` is by default that of the index. ``n_probe``, ``slack`` and ``oversample`` set the effort by
    hand, instead of the recall.

    >>> NearestParams(k=5, recall=0.99)
    NearestParams(k=5, min_score=None, n_threads=None, recall=0.99, exact=False, n_probe=None, slack=None, \
oversample=None)
    """

    recall: float | None = None
    exact: bool = False
    n_probe: int | None = None
    slack: float | None = None
    oversample: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        values = vars(self)
        if self.recall is not None:
            values["recall"] = _validate.validate_real("recall", self.recall, 0.0, 1.0, open_low=True)
        if not isinstance(self.exact, bool):
            raise TypeError(f"expected exact to be True or False, got {self.exact!r}")
        if self.n_probe is not None:
            values["n_probe"] = _validate.validate_integer("n_probe", self.n_probe, 1)
        if self.slack is not None:
            values["slack"] = _validate.validate_real("slack", self.slack, 0.0)
        if self.oversample is not None:
            values["oversample"] = _validate.validate_real("oversample", self.oversample, 1.0)

    @property
    def sets_effort(self) -> bool:
        """Whether the effort is set by hand."""
        return (self.n_probe, self.slack, self.oversample) != (None, None, None)


@dataclass(frozen=True)
class RadiusParams:
    """The parameters of one range search of :class:`posh.Index`: see ``Index.search_radius``.

    >>> RadiusParams(0.8, limit=100)
    RadiusParams(min_score=0.8, limit=100, recall=None, exact=False, n_threads=None)
    """

    min_score: float
    limit: int | None = None
    recall: float | None = None
    exact: bool = False
    n_threads: int | None = None

    def __post_init__(self) -> None:
        values = vars(self)
        values["min_score"] = _validate.validate_real("min_score", self.min_score, -np.inf, open_low=True)
        if self.limit is not None:
            values["limit"] = _validate.validate_integer("limit", self.limit, 1)
        search = NearestParams(1, None, self.n_threads, self.recall, self.exact)
        values["recall"], values["n_threads"] = search.recall, search.n_threads

    @property
    def bound(self) -> np.float32:
        """The bound in the precision of scores; infinite if it does not fit."""
        with np.errstate(over="ignore"):
            return np.float32(self.min_score)

    @property
    def as_search(self) -> NearestParams:
        """The parameters of a search for one document with the same recall."""
        return NearestParams(1, None, self.n_threads, self.recall, self.exact)


def make_params(*values: Any) -> NearestParams:
    """Return ``NearestParams(*values)``, validated once for values that come again and again."""
    try:
        return _cached_params(*values)
    except TypeError:  # a value that cannot be hashed is a wrong one
        return NearestParams(*values)


_cached_params = lru_cache(maxsize=1024, typed=True)(NearestParams)
