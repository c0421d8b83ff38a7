"""A snapshot of :class:`posh.Index`: options, ids and lists."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from posh import _validate
from posh._durable import MappedFile
from posh._model_files import Arrays
from posh._runtime import track_progress
from posh.hashers.base import Hasher
from posh.hashers.hadamard import Hadamard
from posh.index import files
from posh.index.arrays import Mask, Slots, cached, get_fields
from posh.index.base import IndexSnapshot
from posh.index.hits import Hits, RadiusHits, SlotHits, SlotScores, pad_results
from posh.index.ids import NO_IDS, IdColumn, Ids, IdsLike
from posh.index.nearest.lists import ROWS_AT_ONCE, Lists, training_size
from posh.index.nearest.options import NearestOptions, NearestParams, RadiusParams
from posh.index.nearest.prepared import PreparedSearches
from posh.index.nearest.queries import OwnQueries
from posh.index.nearest.radius import RadiusSlots, search_radius
from posh.index.params import SearchParams

__all__ = ["NearestSnapshot"]


@dataclass(frozen=True, eq=False)
class NearestSnapshot(IndexSnapshot):
    """An immutable state of :class:`posh.Index`; ``lists`` is None until the first addition trains them.

    >>> import posh
    >>> data = posh.datasets.load("digits")
    >>> index = posh.Index().add(data.base[:100])
    >>> snapshot = index.snapshot()
    >>> len(index.add(data.base[100:])), len(snapshot)
    (1597, 100)
    >>> snapshot.search(data.queries, k=5).ids.shape
    (200, 5)
    """

    options: NearestOptions
    lists: Lists | None = None
    id_column: IdColumn = NO_IDS
    mapped: tuple[MappedFile, ...] = ()

    # Searching -------------------------------------------------------------------------------------

    def make_params(self, k: int, **options: Any) -> NearestParams:
        """Return validated parameters of a search."""
        return NearestParams(k, **options)

    def search_ids(self, X: npt.ArrayLike, params: SearchParams, filter: IdsLike | None) -> Hits:  # noqa: A002
        """Validate vectors, (d,) or (m, d), and search; see ``Index.search``."""
        if filter is None and self.lists is not None:
            if self.mapped:
                self.require_files()
            searches = self._id_searches
            found = searches.search(X, params)
            if found is not None:
                ids, scores = found
                if searches.ids is None:
                    ids = self.id_column.at(ids)
                hits = Hits(ids, scores, self.options.metric)
                return hits if params.min_score is None else hits.above(params.min_score)
        array = self.validate_vectors(_validate.validate_queries(X))
        allowed = None if filter is None else self.id_column.make_mask(filter, self.live)
        slots, scores = self._search(array, params, allowed)
        padded = pad_results(self.id_column.at(slots), scores, params.k)
        return Hits(*padded, self.options.metric).above(params.min_score)

    def search_slots(
        self, X: npt.NDArray[Any], params: SearchParams, allowed: Mask | None = None
    ) -> SlotHits:
        """Search for valid vectors (m, d); ``allowed`` is a mask over slots."""
        if allowed is None and self.lists is not None:
            if self.mapped:
                self.require_files()
            found = self._slot_searches.search(X, params)
            if found is not None:
                slots, scores = found
                return SlotHits(slots, scores, self.options.metric)
        return SlotHits(*pad_results(*self._search(X, params, allowed), params.k), self.options.metric)

    @cached
    def _slot_searches(self) -> PreparedSearches:
        assert self.lists is not None
        return PreparedSearches(self.lists, None)

    @cached
    def _id_searches(self) -> PreparedSearches:
        """Searches that find ids, unless these are slots or objects."""
        assert self.lists is not None
        numbers = self.id_column.numbers
        return self._slot_searches if numbers is None else PreparedSearches(self.lists, numbers)

    def _search(self, X: npt.NDArray[Any], params: SearchParams, allowed: Mask | None) -> SlotScores:
        """Return up to k columns: fewer if there are fewer documents."""
        k = min(params.k, len(self))
        if self.lists is None or k == 0:
            return SlotScores.allocate(len(X), 0)
        self.require_files()
        return self.lists.search(X, cast(NearestParams, params).with_k(k), allowed)

    def search_radius_ids(self, X: npt.ArrayLike, params: RadiusParams, filter: IdsLike | None) -> RadiusHits:  # noqa: A002
        """Validate vectors, (d,) or (m, d), and find all within a radius; see ``Index.search_radius``."""
        array = self.validate_vectors(_validate.validate_queries(X))
        allowed = None if filter is None else self.id_column.make_mask(filter, self.live)
        found = self.search_radius_slots(array, params, allowed)
        ids = self.id_column.at(found.slots)
        return RadiusHits(found.offsets, ids, found.scores, self.options.metric, found.is_cut)

    def search_radius_slots(
        self, X: npt.NDArray[Any], params: RadiusParams, allowed: Mask | None = None
    ) -> RadiusSlots:
        """Find all documents within a radius, for valid vectors (m, d); ``allowed`` is a mask over slots."""
        if self.lists is None or not len(self):
            return RadiusSlots.none(len(X))
        self.require_files()
        return search_radius(self.lists, X, params, allowed)

    def compares_all(self, params: NearestParams) -> bool:
        """Return whether a search compares all vectors: as asked, or because its recall needs it."""
        if self.lists is None or self.lists.choose_graph_effort(params) is not None:
            return False
        return self.lists.choose_effort(params) is None

    # State -----------------------------------------------------------------------------------------

    @property
    def live(self) -> Mask:
        """The mask of slots with documents that were not deleted, (n_slots,)."""
        return np.empty(0, bool) if self.lists is None else self.lists.live.rows

    def __len__(self) -> int:
        return 0 if self.lists is None else self.lists.n_live

    @property
    def n_features(self) -> int | None:
        """The number of columns of vectors; None until the first addition."""
        return None if self.lists is None else self.lists.space.n_features

    @property
    def is_trained(self) -> bool:
        """Whether there are lists."""
        return self.lists is not None

    @property
    def needs_training(self) -> bool:
        """Always True: lists are trained on documents."""
        return True

    def memory_usage(self) -> dict[str, int]:
        """Return bytes in use by part, and in total."""
        lists = self.lists
        parts = {
            "lists": 0 if lists is None else lists.blocks.nbytes,
            "graph": 0 if lists is None or lists.graph is None else lists.graph.nbytes,
            "vectors": 0 if lists is None else lists.stored.rows.buffer.nbytes,
            "ids": 0 if lists is None else self.id_column.nbytes + lists.live.buffer.nbytes,
            "queries": 0 if lists is None or lists.queries is None else lists.queries.nbytes,
        }
        return parts | {"total": sum(parts.values())}

    # Changing --------------------------------------------------------------------------------------

    def training_size(self, n: int) -> int:
        """Return the number of vectors that training uses for ``n`` documents."""
        return training_size(self.options, n)

    def train(self, X: npt.NDArray[Any], n: int | None = None) -> NearestSnapshot:
        """Return an index without documents, with lists for ``n`` (by default m) documents like X (m, d)."""
        lists = Lists.train(self.options, X, len(X) if n is None else n)
        return NearestSnapshot(self.options, replace(lists, queries=self.queries))

    def trained_state(self) -> Arrays:
        """Return lists and measurements, by name."""
        return {} if self.lists is None else self.lists.trained_state()

    def with_trained_state(self, state: Arrays) -> NearestSnapshot:
        """Return an index without documents from a trained state; raise ValueError or KeyError if wrong."""
        return NearestSnapshot(self.options, Lists.from_trained_state(self.options, state))

    def with_documents(
        self, ids: Ids, X: npt.NDArray[Any] | None, *, more_follow: bool = False
    ) -> NearestSnapshot:
        """Add documents with valid vectors (n, d); an index that is not trained is trained on them.

        If ``more_follow``, call :meth:`measure_if_due` after the last addition and before the first search.
        """
        assert X is not None
        trained = self if self.is_trained else self.train(X)
        lists, column = trained.lists, trained.id_column
        assert lists is not None
        for start in track_progress(range(0, len(ids), ROWS_AT_ONCE), "adding", "block"):
            rows = slice(start, start + ROWS_AT_ONCE)
            lists, column = lists.with_vectors(X[rows]), column.with_ids(ids[rows])
        if not more_follow and len(ids):
            lists = lists.measure_if_due(X[rows])
        return replace(trained, lists=lists, id_column=column)

    def without(self, slots: Slots) -> NearestSnapshot:
        """Delete the documents at these slots."""
        if self.lists is None or not len(slots):
            return self
        return replace(self, lists=self.lists.without(slots))

    def compact(self) -> NearestSnapshot:
        """Return the same documents in new slots, without gaps."""
        if self.lists is None or self.lists.n_live == self.n_slots:
            return self
        return replace(self, lists=self.lists.compact(), id_column=self.id_column.select(self.live))

    def detach(self) -> NearestSnapshot:
        """Return a copy whose later additions do not affect this snapshot."""
        if self.lists is None:
            return self
        return replace(self, lists=self.lists.detach(), id_column=self.id_column.detach())

    # Measuring -------------------------------------------------------------------------------------

    def measure_if_due(self) -> Self:
        """Measure the documents again if they have changed enough."""
        return self if self.lists is None else replace(self, lists=self.lists.measure_if_due())

    @property
    def is_due(self) -> bool:
        """Whether :meth:`measure_if_due` would measure."""
        return self.lists is not None and self.lists.is_due

    @property
    def is_overdue(self) -> bool:
        """Whether so much has changed that the last measurement is worthless."""
        return self.lists is not None and self.lists.is_overdue

    @property
    def n_measured(self) -> int:
        """Documents at the last measurement; 0 if there was none."""
        return 0 if self.lists is None else self.lists.n_measured

    def has_measurements_of(self, other: NearestSnapshot) -> bool:
        """Return whether both have the same measurements."""
        if self.lists is None or other.lists is None:
            return self.lists is other.lists
        is_same = self.lists.calibration is other.lists.calibration
        return is_same and self.lists.queries is other.lists.queries

    @property
    def queries(self) -> OwnQueries | None:
        """The queries of the user that searches are calibrated with; None if these are documents."""
        return None if self.lists is None else self.lists.queries

    def with_queries(self, queries: OwnQueries | None) -> NearestSnapshot:
        """Return the trained index, to be measured with these queries when there are documents."""
        assert self.lists is not None
        return replace(self, lists=replace(self.lists, queries=queries))

    def calibrate(self, queries: OwnQueries | None) -> NearestSnapshot:
        """Calibrate and measure searches with these queries; see :meth:`posh.Index.calibrate`."""
        return replace(self, lists=self.require_documents().calibrate_with(queries))

    def require_documents(self) -> Lists:
        """Return the lists; raise ValueError if there are no documents to calibrate searches with."""
        if self.lists is None or not self.lists.n_live:
            raise ValueError("expected documents to calibrate searches with, got none: add some first")
        return self.lists

    def with_measurements(self, before: NearestSnapshot, measured: NearestSnapshot) -> NearestSnapshot | None:
        """Take over the measurements of ``measured``, which was made from the earlier state ``before``.

        Returns None if they do not suit this snapshot any more.
        """
        if self.lists is None or before.lists is None or measured.lists is None:
            return None
        lists = self.lists.with_measurements(before.lists, measured.lists)
        return None if lists is None else replace(self, lists=lists)

    def with_writes(self, n_added: int, n_deleted: int) -> Self:
        """Count these as the writes since the last measurement."""
        return self if self.lists is None else replace(self, lists=self.lists.with_writes(n_added, n_deleted))

    # Files -----------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write the index to a folder, replacing a saved index there in one step."""
        arrays: Arrays = {}
        if self.lists is not None:
            arrays = self.id_column.to_arrays(self.live) | self.lists.to_arrays()
            arrays["removed"] = np.flatnonzero(~self.live)
        files.write_index(path, "nearest", asdict(self.options), arrays, {})

    @classmethod
    def load(cls, saved: files.SavedIndex) -> NearestSnapshot:
        """Return the index of a folder; raise FormatError if it is not consistent."""
        saved.require_kind("nearest")
        return files.convert_errors(saved.path, lambda: cls._load(saved))

    @classmethod
    def _load(cls, saved: files.SavedIndex) -> NearestSnapshot:
        options, arrays = _read_options(saved), dict(saved.arrays)
        if "ids" not in arrays:
            return cls(options)
        if saved.version == 1:
            arrays["code_shape"] = _read_old_shape(saved)
        column = IdColumn.from_arrays(arrays)
        lists = Lists.from_arrays(options, len(column), arrays)
        column.require_distinct_strings(lists.live.rows)
        return cls(options, lists, column, saved.mapped)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, without prepared searches."""
        return get_fields(self)


def _read_options(saved: files.SavedIndex) -> NearestOptions:
    params = saved.params
    if saved.version == 1:
        if params["structure"] == "exact":
            params = params | {"n_lists": 1}
        params = {name: params[name] for name in NearestOptions.names() if params.get(name) is not None}
    return NearestOptions(**params)


def _read_old_shape(saved: files.SavedIndex) -> npt.NDArray[np.int64]:
    """Return the shape of the codes of format version 1, which a hasher gave."""
    hasher = Hasher.from_bytes(saved.files[files.HASHER], saved.path / files.HASHER)
    if not isinstance(hasher, Hadamard):
        raise ValueError(
            f"an index with a metric and the codes of {type(hasher).__name__}, which this version does not "
            "read: build it again with posh.Index.build"
        )
    return np.array([hasher.n_bits, saved.params["document_active"] or hasher.n_active], np.int64)
