"""One moment of an index, with all that a search needs: immutable, so that it needs no lock."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import _validate
from posh._progress import progress
from posh._threads import cores
from posh.codes import Codes, PackedCodes
from posh.hashers.base import DenseHasher, Hasher, SparseHasher
from posh.index import files
from posh.index.hits import Hits
from posh.index.ivf import Lists, train_centroids
from posh.index.options import Options, scoring_for
from posh.index.refine import REFINERS, Refiner
from posh.index.search import Found, Plan, allowed_slots, padded, run, scan_kind
from posh.index.segments import Mask, Segments, Slots
from posh.index.state import State
from posh.preprocess import Float32
from posh.store import Arrays, expect

__all__ = ["Nearest", "View"]

_ROWS = 65_536  # documents encoded, quantized and stored in one go
_SAMPLE_PER_LIST = 50


class Nearest(NamedTuple):
    """The best slots and their scores, both (m, k), and what the scores are."""

    slots: Slots
    scores: Float32
    kind: str


@dataclass(frozen=True, eq=False)
class View:
    """One moment of an :class:`~posh.index.index.Index`: what ``Index.view()`` gives.

    It can be searched for as long as one likes, whatever happens to the index. Changes make another view,
    which shares what did not change; of views made from one another only the newest may be changed again,
    or one that is :meth:`detached`.

    ``state`` is None until the index has learned what it must from its first documents.

    >>> import posh
    >>> data = posh.datasets.load("digits")
    >>> index = posh.Index(posh.LSH(64, random_state=0).fit(data.base)).add(data.base[:100])
    >>> view = index.view()
    >>> len(index.add(data.base[100:])), len(view)
    (1597, 100)
    >>> view.search(data.queries, k=5).ids.shape
    (200, 5)
    """

    hasher: Hasher[Any]
    options: Options
    refiner: Refiner | None = None
    state: State | None = None

    # Asking ----------------------------------------------------------------------------------------

    def search(
        self,
        X: npt.ArrayLike,
        k: int = 10,
        *,
        filter: npt.ArrayLike | None = None,  # noqa: A002  # the word that users expect
        scoring: str | None = None,
        oversample: float | None = None,
        n_probe: int | None = None,
        n_threads: int | None = None,
    ) -> Hits:
        """Find the k nearest documents, see ``Index.search``."""
        array = self.checked(np.atleast_2d(np.asarray(X)))
        plan = self.plan(k, scoring, oversample, n_probe, n_threads)
        state = self.state
        allowed = None if filter is None or state is None else allowed_slots(filter, state)
        slots, scores = self._found(array, plan, allowed)
        ids = slots if state is None else state.ids_of(slots)
        return Hits(*padded(ids, scores, plan.k), self._kind(plan))

    def plan(
        self,
        k: int,
        scoring: str | None = None,
        oversample: float | None = None,
        n_probe: int | None = None,
        n_threads: int | None = None,
    ) -> Plan:
        """What is asked for, checked; None stands for the options of the index."""
        own = self.options
        return Plan(
            k=_validate.integer("k", k, 1),
            oversample=own.oversample
            if oversample is None
            else _validate.real("oversample", oversample, 1.0),
            n_probe=own.n_probe if n_probe is None else _validate.integer("n_probe", n_probe, 1),
            n_threads=cores(n_threads),
            scoring=own.scoring if scoring is None else scoring_for(self.hasher, scoring),
            query_active=own.query_active,
        )

    def nearest(self, X: npt.NDArray[Any], plan: Plan, allowed: Mask | None = None) -> Nearest:
        """The nearest documents of checked vectors (m, d) by slot; ``allowed`` is a mask over slots."""
        return Nearest(*padded(*self._found(X, plan, allowed), plan.k), self._kind(plan))

    def checked(self, X: Any) -> npt.NDArray[Any]:
        """Vectors (n, d) if they fit the hasher."""
        d = self.hasher.n_features_in_
        return _validate.vectors(X, d, min_rows=0, model=type(self.hasher).__name__)

    def __len__(self) -> int:
        return 0 if self.state is None else self.state.n_live

    @property
    def n_kept(self) -> int:
        """Numbers that the refiner keeps of each document."""
        return 0 if self._refines is None else self._refines(self.hasher).n_kept()

    def memory_usage(self) -> dict[str, int]:
        """Bytes in use by part, and in total."""
        state = self.state
        if state is None:
            return {"structure": 0, "codes": 0, "ids": 0, "refiner": 0, "total": 0}
        parts = {
            "structure": 0 if state.structure is None else state.structure.nbytes,
            "codes": state.codes.buffer.nbytes,
            "ids": state.ids.buffer.nbytes + state.live.buffer.nbytes,
            "refiner": state.kept.buffer.nbytes,
        }
        return parts | {"total": sum(parts.values())}

    @property
    def learns(self) -> bool:
        """Whether something is learned from documents: the centroids of lists, a decoder."""
        return self.options.structure == "ivf" or (self._refines is not None and self._refines.learns)

    @property
    def needs_vectors(self) -> bool:
        """Whether documents cannot be added by their codes alone."""
        keeps = self._refines is not None and self._refines.keeps_vectors
        return self.options.structure == "ivf" or keeps

    # Changing --------------------------------------------------------------------------------------

    def learned(self, X: npt.NDArray[Any], n: int | None = None) -> View:
        """Without documents, but knowing what it must from vectors (m, d), as if ``n`` (m) were to come."""
        refiner = None if self._refines is None else self._refines(self.hasher)
        if refiner is not None and refiner.learns:
            first = X[:_ROWS]
            refiner.fit(self.encode(first), first)
        lists = self._new_lists(X, len(X) if n is None else n) if self.options.structure == "ivf" else None
        return self._begun(refiner, lists)

    def knowledge(self) -> Arrays:
        """What was learned from documents."""
        known = {} if self.refiner is None else self.refiner.state()
        if self.state is not None and isinstance(self.state.structure, Lists):
            known["centroids"] = self.state.structure.centroids
        return known

    def taught(self, knowledge: Arrays) -> View:
        """Without documents, but knowing what another one has learned; a ValueError or KeyError if wrong."""
        refiner, lists = None if self._refines is None else self._refines(self.hasher), None
        if refiner is not None:
            refiner.restore(knowledge)
        if self.options.structure == "ivf":
            shape = (None, self.hasher.preprocess_.n_features_out)
            lists = Lists.empty(self.hasher.n_bits, expect(knowledge, "centroids", np.float32, shape))
        return self._begun(refiner, lists)

    def with_documents(
        self, ids: npt.NDArray[np.int64], X: npt.NDArray[Any] | None, codes: Codes | PackedCodes | None = None
    ) -> View:
        """Add documents by checked vectors (n, d), or by codes if vectors are not needed.

        Codes that are given are not computed again. What has not learned yet does so from these.
        """
        n = len(ids)
        view = self
        if view.state is None:
            view = view.learned(np.empty((0, self.hasher.n_features_in_)) if X is None else X)
        state = view.state
        assert state is not None
        for start in progress(range(0, n, _ROWS), "adding", "block"):
            rows = slice(start, start + _ROWS)
            own = None if X is None else X[rows]
            block = view.encode(own) if codes is None else codes[rows]
            state = state.with_documents(block, ids[rows], view._kept(block, own), view._lists_of(own))
        return replace(view, state=state)

    def without(self, slots: Slots) -> View:
        """Remove the documents at these slots."""
        if self.state is None or not len(slots):
            return self
        return replace(self, state=self.state.without(slots))

    def compacted(self) -> View:
        """The same documents in new slots, without those of removed ones."""
        if self.state is None or self.state.n_live == self.state.ids.n:
            return self
        return replace(self, state=self.state.compacted())

    def detached(self) -> View:
        """The same documents, to which one may add what this view and those made from it never see."""
        state = self.state
        if state is None:
            return self
        codes, ids, kept, live = (
            part.detached() for part in (state.codes, state.ids, state.kept, state.live)
        )
        return replace(self, state=replace(state, codes=codes, ids=ids, kept=kept, live=live))

    def encode(self, X: Any) -> Any:
        """Codes of documents (n, d)."""
        if isinstance(self.hasher, SparseHasher):
            return self.hasher.encode(X, n_active=self.options.document_active)
        return self.hasher.encode(X)

    # Files -----------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write it to a folder, replacing a saved index there in one step."""
        files.save(path, asdict(self.options), self.hasher, self.refiner, self.state)

    def restored(self, opened: files.Opened) -> View:
        """The same index with the content of a folder."""
        refiner = None if self._refines is None else self._refines(self.hasher)
        state = opened.restore(refiner)
        return self if state is None else replace(self, refiner=refiner, state=state)

    # How it is done ------------------------------------------------------------------------------------

    def _found(self, X: npt.NDArray[Any], plan: Plan, allowed: Mask | None) -> Found:
        if self.state is None:
            return np.empty((len(X), 0), np.int64), np.empty((len(X), 0), np.float32)
        self.state.require_files()
        return run(plan, self.state, self.hasher, self.refiner, X, allowed)

    def _kind(self, plan: Plan) -> str:
        return scan_kind(plan, self.hasher) if self._refines is None else self._refines.kind

    @property
    def _refines(self) -> type[Refiner] | None:
        return None if self.options.refine is None else REFINERS[self.options.refine]

    def _new_lists(self, X: npt.NDArray[Any], n: int) -> Lists:
        n_lists = min(self.options.n_lists or min(65_536, -(-n // 1000)), n) or 1
        rng = np.random.default_rng(self.options.random_state)
        rows = np.sort(rng.permutation(len(X))[: _SAMPLE_PER_LIST * n_lists])
        Z: Float32 = self.hasher.preprocess_(X[rows])
        return Lists.empty(self.hasher.n_bits, train_centroids(Z, n_lists, rng))

    def _begun(self, refiner: Refiner | None, lists: Lists | None) -> View:
        width = -(-self.hasher.n_bits // 8)
        structure: Segments | Lists | None = lists
        if not isinstance(self.hasher, DenseHasher):
            structure = Segments(self.hasher.n_bits) if lists is None else lists
            width = self.options.document_active or 0
        state = State.empty(structure, width, refiner.n_kept() if refiner else 0)
        return replace(self, refiner=refiner, state=state)

    def _kept(self, codes: Any, X: npt.NDArray[Any] | None) -> Float32:
        if self.refiner is None:
            return np.empty((len(codes), 0), np.float32)
        return self.refiner.keep(codes, X)

    def _lists_of(self, X: npt.NDArray[Any] | None) -> npt.NDArray[np.int32] | None:
        structure = None if self.state is None else self.state.structure
        if X is None or not isinstance(structure, Lists):
            return None
        return structure.nearest(X, self.hasher.preprocess_)
