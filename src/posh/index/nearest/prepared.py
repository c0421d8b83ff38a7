"""Searches that are prepared once for parameters that come again.

For one query, validation and choices in Python take longer than the kernels need. So the choices are made
once, and then a search is one native call, which notices arrays and numbers that are not plain.
"""

from __future__ import annotations

import contextlib
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh.index.arrays import Slots
from posh.index.nearest.lists import Lists
from posh.index.nearest.options import NearestParams
from posh.index.nearest.vectors import damaged_slot
from posh.index.params import SearchParams

__all__ = ["PreparedSearches"]

_MOST = 100  # prepared searches


class PreparedSearches:
    """The prepared searches of lists by parameters; they find slots, or the ``ids`` (n_slots,) of slots."""

    def __init__(self, lists: Lists, ids: Slots | None) -> None:
        self._lists, self.ids = lists, ids
        self._watch = lists.watch
        self._by_params: dict[tuple[SearchParams, str], _native.PreparedSearch | None] = {}
        self._last: tuple[SearchParams | None, str, _native.PreparedSearch | None] = None, "", None

    def search(
        self, X: Any, params: SearchParams
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]] | None:
        """Search without validation if X is a plain array; None if it needs the general path.

        The general path validates X and raises clear errors, and it can compare all vectors. Returns ids or
        slots, and scores, (m, k).
        """
        kernel = kernels.active()
        last, with_kernel, search = self._last
        if last is not params or with_kernel is not kernel:  # parameters are slow to hash
            search = self._find(params, kernel)
            self._last = params, kernel, search
        if search is None:
            return None
        try:
            found = search.run(X)
        except IndexError as error:
            raise damaged_slot() from error
        if found is None:
            return None
        ids, scores, n_short = found
        if n_short:
            self._lists.complete(X, cast(NearestParams, params), ids, scores, self.ids)
        watch = self._watch
        watch.left -= len(ids)
        if watch.left < 0:
            watch.look(self._lists.space, X)
        return ids, scores

    def _find(self, params: SearchParams, kernel: str) -> _native.PreparedSearch | None:
        searches, key = self._by_params, (params, kernel)
        with contextlib.suppress(KeyError):
            return searches[key]
        search = self._lists.prepare(cast(NearestParams, params), self.ids)
        if len(searches) >= _MOST:
            searches.clear()
        searches[key] = search
        return search
