"""What an index is asked to be: checked once, then fixed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from posh import _validate
from posh.hashers.base import Hasher, SparseHasher
from posh.hashers.hadamard import Hadamard
from posh.index.code_index import CodeIndex
from posh.index.metric import METRICS
from posh.index.params import SCORINGS, needs_sparse_codes, require_scoring
from posh.index.refine import REFINERS, Refiner
from posh.index.stored import STORES
from posh.index.structures import STRUCTURES, structure_for

__all__ = ["IndexOptions", "default_hasher", "default_oversample"]


def default_oversample(metric: str | None) -> float:
    """Candidates per result: with a metric, few are needed for the last step."""
    return 2.0 if metric is None else 1.4


def default_hasher(metric: str | None, structure: str, random_state: int) -> Hasher[Any]:
    """A hasher for a metric, not fitted. Without lists codes are longer: they must exclude more documents."""
    if metric is None:
        raise TypeError("expected a fitted hasher or a metric, got neither: give one, Index(metric='cosine')")
    _validate.integer("random_state", random_state, 0)
    n_bits, n_active = (1024, 384) if structure == "exact" else (256, 128)
    return Hadamard(n_bits, n_active, random_state=random_state)


@dataclass(frozen=True)
class IndexOptions:
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
    metric: str | None = None
    store: str = "float32"
    recall: float | None = None

    def __post_init__(self) -> None:
        _validate.choice("structure", self.structure, STRUCTURES)
        _validate.choice("metric", self.metric, (None, *METRICS))
        _validate.choice("store", self.store, STORES)
        _validate.choice("scoring", self.scoring, SCORINGS)
        _validate.choice("refine", self.refine, (None, *REFINERS))
        if self.n_lists is not None:
            _validate.integer("n_lists", self.n_lists, 1, 65_536)
        _validate.integer("n_probe", self.n_probe, 1)
        _validate.real("oversample", self.oversample, 1.0)
        _validate.integer("random_state", self.random_state, 0)
        if self.recall is not None:
            _validate.real("recall", self.recall, 0.0, 1.0, open_low=True)
            if self.metric is None:
                raise ValueError(f"recall={self.recall!r} needs a metric: Index(..., metric='cosine')")

    def for_hasher(self, hasher: Hasher[Any]) -> IndexOptions:
        """The same options with the hasher's numbers of active bits where none are given."""
        self._require_one_order()
        self.structure_class(hasher)
        require_scoring(self.scoring, hasher)
        if not isinstance(hasher, SparseHasher):
            self._require_dense_codes(hasher)
            return self
        active = {}
        for name in ("document_active", "query_active"):
            value = getattr(self, name)
            active[name] = hasher.n_active if value is None else value
            _validate.integer(name, active[name], 1, hasher.n_bits, " (n_bits)")
        return IndexOptions(**asdict(self) | active)

    def _require_one_order(self) -> None:
        if self.metric is None:
            return
        for name, value, default in (("refine", self.refine, None), ("scoring", self.scoring, "overlap")):
            if value != default:
                raise ValueError(
                    f"expected {name} or metric, got {name}={value!r} and metric={self.metric!r}: "
                    "a metric puts documents in order by itself, leave one of them out"
                )

    def structure_class(self, hasher: Hasher[Any]) -> type[CodeIndex]:
        """The structure for the codes of a hasher."""
        return structure_for(self.structure, hasher, self.metric)

    @property
    def refiner_class(self) -> type[Refiner] | None:
        """The refiner, if there is one."""
        return None if self.refine is None else REFINERS[self.refine]

    def _require_dense_codes(self, hasher: Hasher[Any]) -> None:
        wrong = {
            "refine": self.refiner_class is not None and self.refiner_class.sparse_only,
            "document_active": self.document_active is not None,
            "query_active": self.query_active is not None,
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            raise ValueError(needs_sparse_codes(name, getattr(self, name), hasher))
