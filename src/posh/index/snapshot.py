"""A snapshot of an index, with all that a search needs: immutable, so that it needs no lock."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from posh import _validate
from posh._progress import progress
from posh.codes import Codes, PackedCodes
from posh.hashers._units import directions
from posh.hashers.base import Hasher, SparseHasher
from posh.index import files
from posh.index.code_index import CodeIndex, Queries, SlotScores, encode
from posh.index.documents import Documents
from posh.index.hits import Hits, SlotHits
from posh.index.options import IndexOptions
from posh.index.params import SearchParams
from posh.index.refine import Refiner
from posh.index.search import Searched, allowed_slots, find, padded
from posh.index.sliced import Mask, Slots
from posh.index.string_ids import Ids, IdsLike
from posh.model_files import Arrays

__all__ = ["IndexSnapshot"]

_ROWS = 65_536  # documents that a hasher or a refiner is fitted on


@dataclass(frozen=True, eq=False)
class IndexSnapshot:
    """An :class:`~posh.index.index.Index` as it was when ``Index.snapshot()`` was called.

    It can be searched for as long as one likes, whatever happens to the index. A change makes another
    snapshot, which shares what did not change. Of snapshots made from one another only the newest may be
    changed again, or one that is :meth:`detached`.

    ``documents`` is None until the index is trained, which the first addition does.

    >>> import posh
    >>> data = posh.datasets.load("digits")
    >>> index = posh.Index(posh.LSH(64, random_state=0).fit(data.base)).add(data.base[:100])
    >>> snapshot = index.snapshot()
    >>> len(index.add(data.base[100:])), len(snapshot)
    (1597, 100)
    >>> snapshot.search(data.queries, SearchParams(k=5)).ids.shape
    (200, 5)
    """

    hasher: Hasher[Any]
    options: IndexOptions
    refiner: Refiner | None = None
    documents: Documents | None = None

    # Asking ----------------------------------------------------------------------------------------

    def search(self, X: npt.ArrayLike, params: SearchParams, filter: IdsLike | None = None) -> Hits:  # noqa: A002
        """Find the nearest documents of one vector (d,) or of many (m, d), see ``Index.search``."""
        documents = self.documents
        if filter is None and documents is not None:
            documents.require_files()
            found = documents.structure.found_directly(X, params)
            if found is not None:
                hits = Hits(documents.ids_of(found.slots), found.scores, self._kind(params))
                return hits.above(params.min_score)
        if self.refiner is not None:
            self.refiner.warn_of_few()
        array = self.checked(_validate.queries(X))
        allowed = None if filter is None or documents is None else allowed_slots(filter, documents)
        complete = params.completed(self.options, self.hasher)
        slots, scores = self._find(array, complete, allowed)
        ids = slots if documents is None else documents.ids_of(slots)
        return Hits(*padded(ids, scores, params.k), self._kind(complete)).above(params.min_score)

    def nearest(self, X: npt.NDArray[Any], params: SearchParams, allowed: Mask | None = None) -> SlotHits:
        """The nearest documents of checked vectors (m, d) by slot; ``allowed`` is a mask over slots."""
        complete = params.completed(self.options, self.hasher)
        return SlotHits(*padded(*self._find(X, complete, allowed), params.k), self._kind(complete))

    def checked(self, X: Any) -> npt.NDArray[Any]:
        """Vectors (n, d) if they fit the hasher."""
        d = self.hasher.n_features_in_ if self._has_fitted_hasher else None
        return _validate.vectors(X, d, min_rows=0, model=type(self.hasher).__name__)

    def __len__(self) -> int:
        return 0 if self.documents is None else self.documents.n_live

    @property
    def n_slots(self) -> int:
        """Slots in use, those of deleted documents included."""
        return 0 if self.documents is None else self.documents.n_slots

    @property
    def ids_by_slot(self) -> Ids:
        """The ids of all slots, (n_slots,)."""
        return np.empty(0, np.int64) if self.documents is None else self.documents.ids.rows

    @property
    def n_measured(self) -> int:
        """Documents that the structure had when it last measured; 0 if it never did."""
        return 0 if self.documents is None else self.documents.structure.n_measured

    @property
    def ids(self) -> Ids:
        """The ids of all documents, in order of addition."""
        documents = self.documents
        return np.empty(0, np.int64) if documents is None else np.asarray(documents.ids.rows[documents.live])

    def about(self) -> str:
        """Documents, hasher and options in a few words."""
        hasher, o = self.hasher, self.options
        active = f"{o.document_active} of " if isinstance(hasher, SparseHasher) else ""
        order = f"metric={o.metric!r}" if o.metric else f"scoring={o.scoring!r}, refine={o.refine!r}"
        codes = f"{type(hasher).__name__} {active}{hasher.n_bits} bits"
        return f"{len(self):,} documents, {codes}, structure={o.structure!r}, {order}"

    @property
    def refiner_row_width(self) -> int:
        """Numbers that the refiner has of each document."""
        refiner = self._new_refiner()
        return 0 if refiner is None else refiner.row_width()

    def memory_usage(self) -> dict[str, int]:
        """Bytes in use by part, and in total."""
        documents = self.documents
        if documents is None:
            return dict.fromkeys(("structure", "codes", "vectors", "ids", "refiner", "total"), 0)
        return documents.memory_usage()

    def compares_all(self, params: SearchParams) -> bool:
        """Whether a search compares all vectors: because it is asked to, or because its recall needs it."""
        if self.documents is None or self.options.metric is None:
            return False
        return self.documents.structure.compares_all(params.completed(self.options, self.hasher))

    @property
    def needs_training(self) -> bool:
        """Whether something is trained on documents: the centroids of lists, a decoder."""
        refiner = self.options.refiner_class
        return self._structure.needs_training or (refiner is not None and refiner.needs_training)

    @property
    def needs_vectors(self) -> bool:
        """Whether documents cannot be added by their codes alone."""
        refiner = self.options.refiner_class
        return self._structure.needs_vectors or (refiner is not None and refiner.needs_vectors)

    def n_lists_for(self, n: int) -> int:
        """How many lists ``n`` documents would have."""
        return self._structure.n_lists_for(self.options, n)

    def training_size(self, n: int) -> int:
        """How many vectors the training of the structure makes use of, for ``n`` documents."""
        return self._structure.training_size(self.options, n)

    # Changing --------------------------------------------------------------------------------------

    def train(self, X: npt.NDArray[Any], n: int | None = None, *, fit_refiner: bool = True) -> IndexSnapshot:
        """Without documents, trained on vectors (m, d) for ``n`` (by default m) documents to come.

        A refiner that is not fitted here learns from documents as they are added.
        """
        if not self._has_fitted_hasher:
            return self.with_fitted_hasher(X).train(X, n, fit_refiner=fit_refiner)
        refiner = self._new_refiner()
        if refiner is not None and refiner.needs_training and fit_refiner:
            first = X[:_ROWS]
            refiner.fit(self.encode(first), first)
        structure = self._structure.train(self.hasher, self.options, X, len(X) if n is None else n)
        return self._empty(structure, refiner)

    def with_fitted_hasher(self, X: npt.NDArray[Any]) -> IndexSnapshot:
        """With its hasher fitted, the default for a metric, whose matrix does not depend on lengths."""
        units = directions(X[:_ROWS])
        several = np.concatenate([units, np.zeros_like(units)]) if len(units) < 2 else units
        return replace(self, hasher=clone(self.hasher).fit(several))

    def trained_state(self) -> Arrays:
        """What was trained on documents, by name."""
        state = {} if self.refiner is None else self.refiner.trained_state()
        return state if self.documents is None else state | self.documents.structure.trained_state()

    def with_trained_state(self, state: Arrays) -> IndexSnapshot:
        """Without documents, with the trained state of another one; a ValueError or KeyError if wrong."""
        refiner = self._new_refiner()
        if refiner is not None:
            refiner.restore(state)
        return self._empty(self._structure.with_trained_state(self.hasher, self.options, state), refiner)

    def with_documents(
        self,
        ids: Ids,
        X: npt.NDArray[Any] | None,
        codes: Codes | PackedCodes | None = None,
        *,
        more_follow: bool = False,
    ) -> IndexSnapshot:
        """Add documents by checked vectors (n, d), or by codes if vectors are not needed.

        Codes that are given are not computed again. A snapshot that is not trained is trained on these. If
        ``more_follow``, call :meth:`measured` after the last addition and before the first search.
        """
        trained = self
        if trained.documents is None:
            known = np.empty((0, self.hasher.n_features_in_)) if X is None else X
            trained = trained.train(known, fit_refiner=X is None)
        documents, refiner = trained.documents, trained.refiner
        assert documents is not None
        at_once = self._structure.rows_at_once
        for start in progress(range(0, len(ids), at_once), "adding", "block"):
            rows = slice(start, start + at_once)
            own = None if X is None else X[rows]
            block = trained._codes(own) if codes is None else codes[rows]
            documents, refiner = documents.with_documents(block, own, ids[rows], refiner)
        added = replace(trained, documents=documents, refiner=refiner)
        return added if more_follow or not len(ids) else added.measured(own)

    def measured(self, added: npt.NDArray[Any] | None = None) -> IndexSnapshot:
        """Measure the documents again if they have changed enough; ``added`` (n, d) came last."""
        return self if self.documents is None else replace(self, documents=self.documents.measured(added))

    @property
    def is_due(self) -> bool:
        """Whether :meth:`measured` would measure the documents again."""
        return self.documents is not None and self.documents.structure.is_due

    @property
    def is_overdue(self) -> bool:
        """Whether so much has changed that the last measurement says nothing any more."""
        return self.documents is not None and self.documents.structure.is_overdue

    def with_measurements(self, before: IndexSnapshot, measured: IndexSnapshot) -> IndexSnapshot | None:
        """Take over the measurements that an earlier snapshot, with the same slots, was given.

        Returns None if they do not suit this snapshot any more.
        """
        now, then, after = self.documents, before.documents, measured.documents
        if now is None or then is None or after is None:
            return None
        structure = now.structure.with_measurements(then.structure, after.structure)
        return None if structure is None else replace(self, documents=replace(now, structure=structure))

    def with_writes(self, n_added: int, n_deleted: int) -> IndexSnapshot:
        """Count these as the writes since the last measurement."""
        if self.documents is None:
            return self
        structure = self.documents.structure.with_writes(n_added, n_deleted)
        return replace(self, documents=replace(self.documents, structure=structure))

    def without(self, slots: Slots) -> IndexSnapshot:
        """Remove the documents at these slots."""
        if self.documents is None or not len(slots):
            return self
        return replace(self, documents=self.documents.without(slots))

    def compacted(self) -> IndexSnapshot:
        """The same documents in new slots, without those of deleted ones."""
        if self.documents is None or self.documents.n_live == self.documents.n_slots:
            return self
        return replace(self, documents=self.documents.compacted())

    def detached(self) -> IndexSnapshot:
        """The same documents, to which one may add what this snapshot and those made from it never see."""
        return self if self.documents is None else replace(self, documents=self.documents.detached())

    def encode(self, X: Any) -> Any:
        """Codes of documents (n, d)."""
        return encode(self.hasher, X, self.options.document_active)

    # Files -----------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write it to a folder, replacing a saved index there in one step."""
        if not self._has_fitted_hasher:
            raise ValueError(
                "expected documents in an index that was made without a hasher, got none: add some"
            )
        files.save(path, asdict(self.options), self.hasher, self.refiner, self.documents)

    def restored(self, opened: files.Opened) -> IndexSnapshot:
        """The same index with the content of a folder."""
        refiner = self._new_refiner()
        documents = opened.restore(self._structure, self.options, refiner)
        return self if documents is None else replace(self, refiner=refiner, documents=documents)

    # How it is done ------------------------------------------------------------------------------------

    def _find(self, X: npt.NDArray[Any], params: SearchParams, allowed: Mask | None) -> SlotScores:
        if self.documents is None:
            return SlotScores.none(len(X))
        self.documents.require_files()
        queries = Queries(X, self.hasher, self.options.query_active, params.threads)
        return find(Searched(self.documents, self.refiner, allowed), queries, params)

    def _kind(self, params: SearchParams) -> str:
        refiner = self.options.refiner_class
        if refiner is not None:
            return refiner.kind
        structure = self._structure if self.documents is None else self.documents.structure
        return structure.kind(self.options, params.scoring)

    @property
    def _has_fitted_hasher(self) -> bool:
        return hasattr(self.hasher, "weights_")

    @property
    def _structure(self) -> type[CodeIndex]:
        return self.options.structure_class(self.hasher)

    def _new_refiner(self) -> Refiner | None:
        refiner = self.options.refiner_class
        return None if refiner is None else refiner(self.hasher)

    def _empty(self, structure: CodeIndex, refiner: Refiner | None) -> IndexSnapshot:
        rows = np.empty((0, refiner.row_width() if refiner else 0), np.float32)
        documents = Documents.of(structure, np.empty(0, np.int64), rows)
        return replace(self, refiner=refiner, documents=documents)

    def _codes(self, X: Any) -> Any:
        return self.encode(X) if self._structure.has_codes else None
