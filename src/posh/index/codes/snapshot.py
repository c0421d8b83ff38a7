"""A snapshot of :class:`posh.CodeIndex`: hasher, structure, refiner and ids."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from posh import _validate, kernels
from posh._durable import MappedFile
from posh._model_files import Arrays, require_array
from posh._runtime import track_progress
from posh.codes import Codes, PackedCodes
from posh.hashers.base import Hasher, SparseHasher
from posh.index import files
from posh.index.arrays import AppendOnlyArray, Mask, Slots, zero_deleted
from posh.index.base import IndexSnapshot
from posh.index.codes.lists import ListStructure
from posh.index.codes.options import CodeOptions, CodeParams
from posh.index.codes.refine import REFINERS, CandidateDocuments, Refiner
from posh.index.codes.structures import PackedStructure, Queries, SegmentStructure, Structure, encode
from posh.index.hits import Hits, SlotHits, SlotScores, pad_results
from posh.index.ids import NO_IDS, IdColumn, Ids, IdsLike
from posh.index.params import SearchParams

__all__ = ["CodeSnapshot", "choose_structure"]

_TRAINING_ROWS = 65_536  # documents that a refiner is fitted on
_ROWS_AT_ONCE = 65_536  # documents that are added at a time
_REFINED_AT_ONCE = 8192  # documents whose refiner rows are computed together
_QUERIES = 4096  # with projections in memory, which this bounds
_VALUES = 1 << 24  # numbers gathered together by a refiner
_NO_ROWS = AppendOnlyArray.of(np.empty((0, 0), np.float32))


def choose_structure(name: str, hasher: Hasher[Any]) -> type[Structure]:
    """Return the structure of this name for the codes of a hasher.

    >>> import posh
    >>> choose_structure("exact", posh.POSH()).__name__, choose_structure("exact", posh.LSH()).__name__
    ('SegmentStructure', 'PackedStructure')
    """
    if not isinstance(hasher, SparseHasher):
        return PackedStructure
    return ListStructure if name == "ivf" else SegmentStructure


@dataclass(frozen=True, eq=False)
class CodeSnapshot(IndexSnapshot):
    """An immutable state of :class:`posh.CodeIndex`.

    ``structure`` holds the codes and is None until the index is trained, which the first addition does.
    ``refiner_rows`` are the numbers that the refiner needs of each document.

    >>> import posh
    >>> data = posh.datasets.load("digits")
    >>> index = posh.CodeIndex(posh.LSH(64, random_state=0).fit(data.base)).add(data.base[:100])
    >>> snapshot = index.snapshot()
    >>> len(index.add(data.base[100:])), len(snapshot)
    (1597, 100)
    >>> snapshot.search(data.queries, k=5).ids.shape
    (200, 5)
    """

    hasher: Hasher[Any]
    options: CodeOptions
    structure: Structure | None = None
    refiner: Refiner | None = None
    refiner_rows: AppendOnlyArray = _NO_ROWS
    id_column: IdColumn = NO_IDS
    mapped: tuple[MappedFile, ...] = ()

    # Searching -------------------------------------------------------------------------------------

    def make_params(self, k: int, **options: Any) -> CodeParams:
        """Return validated parameters of a search."""
        return CodeParams(k, **options)

    def search_ids(self, X: npt.ArrayLike, params: SearchParams, filter: IdsLike | None) -> Hits:  # noqa: A002
        """Validate vectors, (d,) or (m, d), and search; see ``CodeIndex.search``."""
        if self.refiner is not None:
            self.refiner.warn_if_few()
        array = self.validate_vectors(_validate.validate_queries(X))
        allowed = None if filter is None else self.id_column.make_mask(filter, self.live)
        complete = cast(CodeParams, params).complete(self.options, self.hasher)
        slots, scores = self._search(array, complete, allowed)
        kind = self.score_kind(complete.scoring)
        return Hits(*pad_results(self.id_column.at(slots), scores, params.k), kind).above(params.min_score)

    def search_slots(
        self, X: npt.NDArray[Any], params: SearchParams, allowed: Mask | None = None
    ) -> SlotHits:
        """Search for valid vectors (m, d); ``allowed`` is a mask over slots."""
        complete = cast(CodeParams, params).complete(self.options, self.hasher)
        return SlotHits(
            *pad_results(*self._search(X, complete, allowed), params.k), self.score_kind(complete.scoring)
        )

    def score_kind(self, scoring: str | None = None) -> str:
        """Return the kind of scores of a search, as in :class:`~posh.Hits`."""
        if self.options.refine is not None:
            return REFINERS[self.options.refine].kind
        return self._structure_class.kind(scoring or self.options.scoring)

    def _search(self, X: npt.NDArray[Any], params: CodeParams, allowed: Mask | None) -> SlotScores:
        """Return up to k columns: fewer if there are fewer documents."""
        m, k = len(X), min(params.k, len(self))
        if self.structure is None or k == 0:
            return SlotScores.allocate(m, 0)
        self.require_files()
        params = params.with_k(k)
        queries = Queries(X, self.hasher, self.options.query_active, params.threads)
        step = self._choose_batch(params, m)
        if m <= step:
            return self._search_batch(queries, params, allowed)
        found = SlotScores.allocate(m, k)
        for start in range(0, m, step):
            rows = slice(start, start + step)
            some = queries._replace(vectors=X[rows])
            found.slots[rows], found.scores[rows] = self._search_batch(some, params, allowed)
        return found

    def _choose_batch(self, params: CodeParams, n_queries: int) -> int:
        """Return the number of queries whose intermediate results fit into memory."""
        if self.refiner is not None:
            numbers = params.n_candidates(len(self)) * max(1, self.refiner.row_width())
            return max(1, min(_QUERIES, _VALUES // numbers))
        return _QUERIES if params.scoring == "asymmetric" else max(1, n_queries)

    def _search_batch(self, queries: Queries, params: CodeParams, allowed: Mask | None) -> SlotScores:
        structure, refiner = self.structure, self.refiner
        assert structure is not None
        if refiner is None:
            return structure.search(queries, params, allowed)
        slots, _ = structure.search(queries, params.for_candidates(len(self)), allowed)
        candidates = CandidateDocuments(slots, structure.codes.rows, self.refiner_rows.rows)
        scores = refiner.scores(queries.vectors, candidates, queries.n_threads)
        slots, scores = kernels.best_candidates(slots, scores, params.k, n_threads=queries.n_threads)
        return SlotScores(slots, refiner.restore_scores(slots, scores))

    # State -----------------------------------------------------------------------------------------

    @property
    def live(self) -> Mask:
        """The mask of slots with documents that were not deleted, (n_slots,)."""
        return np.empty(0, bool) if self.structure is None else self.structure.live.rows

    def __len__(self) -> int:
        return 0 if self.structure is None else self.structure.n_live

    @property
    def n_features(self) -> int:
        """The number of columns of vectors."""
        return self.hasher.n_features_in_

    @property
    def is_trained(self) -> bool:
        """Whether there is a structure."""
        return self.structure is not None

    @property
    def needs_training(self) -> bool:
        """Whether something is trained on documents: the centroids of lists, a decoder."""
        refiner = self._refiner_class
        return self._structure_class.needs_training or (refiner is not None and refiner.needs_training)

    @property
    def needs_vectors(self) -> bool:
        """Whether documents cannot be added by their codes alone."""
        refiner = self._refiner_class
        return self._structure_class.needs_vectors or (refiner is not None and refiner.needs_vectors)

    def describe(self) -> str:
        """Return documents, hasher and options in a few words."""
        hasher, o = self.hasher, self.options
        active = f"{o.document_active} of " if isinstance(hasher, SparseHasher) else ""
        codes = f"{type(hasher).__name__} {active}{hasher.n_bits} bits"
        order = f"scoring={o.scoring!r}, refine={o.refine!r}"
        return f"{len(self):,} documents, {codes}, structure={o.structure!r}, {order}"

    def memory_usage(self) -> dict[str, int]:
        """Return bytes in use by part, and in total."""
        structure = self.structure
        parts = {
            "structure": 0 if structure is None else structure.nbytes,
            "codes": 0 if structure is None else structure.codes.buffer.nbytes,
            "ids": 0 if structure is None else self.id_column.nbytes + structure.live.buffer.nbytes,
            "refiner": 0 if structure is None else self.refiner_rows.buffer.nbytes,
        }
        return parts | {"total": sum(parts.values())}

    def encode(self, X: npt.NDArray[Any]) -> Any:
        """Return the codes of documents (n, d)."""
        return encode(self.hasher, X, self.options.document_active)

    # Changing --------------------------------------------------------------------------------------

    def training_size(self, n: int) -> int:
        """Return the number of vectors that the training of the structure uses for ``n`` documents."""
        return self._structure_class.training_size(self.options, n)

    def train(self, X: npt.NDArray[Any], n: int | None = None, *, fit_refiner: bool = True) -> CodeSnapshot:
        """Return an index without documents, trained on vectors (m, d) for ``n`` (by default m) documents.

        A refiner that is not fitted here learns from documents as they are added.
        """
        refiner = self._new_refiner()
        if refiner is not None and refiner.needs_training and fit_refiner:
            first = X[:_TRAINING_ROWS]
            refiner.fit(self.encode(first), first)
        structure = self._structure_class.train(self.hasher, self.options, X, len(X) if n is None else n)
        return self._empty(structure, refiner)

    def trained_state(self) -> Arrays:
        """Return the arrays that training computed, by name."""
        state = {} if self.refiner is None else self.refiner.trained_state()
        return state if self.structure is None else state | self.structure.trained_state()

    def with_trained_state(self, state: Arrays) -> CodeSnapshot:
        """Return an index without documents from a trained state; raise ValueError or KeyError if wrong."""
        refiner = self._new_refiner()
        if refiner is not None:
            refiner.restore(state)
        structure = self._structure_class.with_trained_state(self.hasher, self.options, state)
        return self._empty(structure, refiner)

    def with_documents(
        self, ids: Ids, X: npt.NDArray[Any] | None, codes: Codes | PackedCodes | None = None
    ) -> CodeSnapshot:
        """Add documents by valid vectors (n, d), or by codes if vectors are not needed.

        Codes that the caller has are not computed again. An index that is not trained is trained on these.
        """
        trained = self
        if not self.is_trained:
            sample = np.empty((0, self.n_features)) if X is None else X
            trained = self.train(sample, fit_refiner=X is None)
        for start in track_progress(range(0, len(ids), _ROWS_AT_ONCE), "adding", "block"):
            rows = slice(start, start + _ROWS_AT_ONCE)
            vectors = None if X is None else X[rows]
            block = trained.encode(vectors) if codes is None else codes[rows]  # type: ignore[arg-type]
            trained = trained._with_block(ids[rows], vectors, block)
        return trained

    def _with_block(self, ids: Ids, X: npt.NDArray[Any] | None, codes: Any) -> CodeSnapshot:
        assert self.structure is not None
        refiner, earlier_rows = self._learn(codes, X)
        rows = np.empty((len(ids), 0), np.float32) if refiner is None else refiner.make_rows(codes, X)
        return replace(
            self,
            structure=self.structure.with_codes(codes, X),
            refiner=refiner,
            refiner_rows=earlier_rows.with_rows(rows),
            id_column=self.id_column.with_ids(ids),
        )

    def _learn(self, codes: Any, X: npt.NDArray[Any] | None) -> tuple[Refiner | None, AppendOnlyArray]:
        """Return the refiner after learning from documents to be added, and its rows of those present.

        If it has learned, the rows of the present documents change, too.
        """
        refiner, structure = self.refiner, self.structure
        n = 0 if refiner is None or X is None else refiner.n_to_learn_from
        if refiner is None or structure is None or X is None or not n:
            return refiner, self.refiner_rows
        grown, has_changed = refiner.with_pairs(codes[:n], X[:n])
        if not has_changed:
            return grown, self.refiner_rows
        present = Codes.wrap(structure.codes.rows, grown.hasher.n_bits)
        rows = np.empty((len(present), grown.row_width()), np.float32)
        for start in range(0, len(present), _REFINED_AT_ONCE):
            some = slice(start, start + _REFINED_AT_ONCE)
            rows[some] = grown.make_rows(present[some], None)
        return grown, AppendOnlyArray.of(rows)

    def without(self, slots: Slots) -> CodeSnapshot:
        """Delete the documents at these slots."""
        if self.structure is None or not len(slots):
            return self
        return replace(self, structure=self.structure.without(slots))

    def compact(self) -> CodeSnapshot:
        """Return the same documents in new slots, without gaps."""
        if self.structure is None or self.structure.n_live == self.n_slots:
            return self
        live = self.live
        return replace(
            self,
            structure=self.structure.compact(),
            refiner_rows=AppendOnlyArray.of(self.refiner_rows.rows[live]),
            id_column=self.id_column.select(live),
        )

    def detach(self) -> CodeSnapshot:
        """Return a copy whose later additions do not affect this snapshot."""
        if self.structure is None:
            return self
        return replace(
            self,
            structure=self.structure.detach(),
            refiner_rows=self.refiner_rows.detach(),
            id_column=self.id_column.detach(),
        )

    # Files -----------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write the index to a folder, replacing a saved index there in one step."""
        arrays: Arrays = {}
        if self.structure is not None:
            live = self.live
            arrays = self.id_column.to_arrays(live) | {
                "codes": zero_deleted(self.structure.codes.rows, live),
                "kept": zero_deleted(self.refiner_rows.rows, live),
                "removed": np.flatnonzero(~live),
            }
            arrays |= self.structure.to_arrays() | (self.refiner.to_arrays() if self.refiner else {})
        hasher = {files.HASHER: self.hasher.to_bytes()}
        files.write_index(path, "codes", asdict(self.options), arrays, hasher)

    @classmethod
    def load(cls, saved: files.SavedIndex) -> CodeSnapshot:
        """Return the index of a folder; raise FormatError if it is not consistent."""
        saved.require_kind("codes")
        return files.convert_errors(saved.path, lambda: cls._load(saved))

    @classmethod
    def _load(cls, saved: files.SavedIndex) -> CodeSnapshot:
        hasher = Hasher.from_bytes(saved.files[files.HASHER], saved.path / files.HASHER)
        params = saved.params
        if saved.version == 1:
            params = {name: params[name] for name in CodeOptions.names() if name in params}
        empty = cls(hasher, CodeOptions(**params).for_hasher(hasher))
        if "ids" not in saved.arrays:
            return empty
        return empty._with_arrays(saved)

    def _with_arrays(self, saved: files.SavedIndex) -> CodeSnapshot:
        """Return the index with the documents of a folder."""
        arrays = saved.arrays
        column = IdColumn.from_arrays(arrays)
        refiner = self._new_refiner()
        width = refiner.row_width() if refiner else 0
        rows = require_array(arrays, "kept", np.float32, (len(column), width), look_inside=saved.verify)
        if refiner:
            refiner.restore(arrays)
        codes = self._read_codes(len(column), arrays, verify=saved.verify)
        structure = self._structure_class.from_arrays(self.hasher, self.options, codes, arrays)
        removed = require_array(arrays, "removed", np.int64, (None,), low=0)
        if len(removed):
            structure = structure.without(removed)
        column.require_distinct_strings(structure.live.rows)
        return replace(
            self,
            structure=structure,
            refiner=refiner,
            refiner_rows=AppendOnlyArray.of(rows),
            id_column=column,
            mapped=saved.mapped,
        )

    def _read_codes(self, n: int, arrays: Arrays, *, verify: bool) -> npt.NDArray[Any]:
        n_bits = self.hasher.n_bits
        if not isinstance(self.hasher, SparseHasher):
            return require_array(arrays, "codes", np.uint8, (n, -(-n_bits // 8)))
        codes = require_array(arrays, "codes", np.uint16, (n, self.options.document_active))
        if verify and codes.size and codes.max() >= n_bits:
            raise ValueError(f"a code with bit {codes.max()} of {n_bits}")
        return codes

    # Parts -----------------------------------------------------------------------------------------

    @property
    def _structure_class(self) -> type[Structure]:
        return choose_structure(self.options.structure, self.hasher)

    @property
    def _refiner_class(self) -> type[Refiner] | None:
        return None if self.options.refine is None else REFINERS[self.options.refine]

    def _new_refiner(self) -> Refiner | None:
        refiner = self._refiner_class
        return None if refiner is None else refiner(self.hasher)

    def _empty(self, structure: Structure, refiner: Refiner | None) -> CodeSnapshot:
        rows = AppendOnlyArray.of(np.empty((0, refiner.row_width() if refiner else 0), np.float32))
        return CodeSnapshot(self.hasher, self.options, structure, refiner, rows)
