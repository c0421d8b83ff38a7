"""From ids to slots: a dictionary that is made when first needed and then kept up to date."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import numpy.typing as npt

from posh.index import string_ids
from posh.index.documents import LAST_ID, Documents
from posh.index.sliced import Slots
from posh.index.string_ids import Ids, IdsLike

__all__ = ["IdTable"]


class IdTable:
    """Slots of the live documents by id. Used under the index's lock."""

    def __init__(self) -> None:
        self._slots: dict[int | str, int] | None = None

    def forget(self) -> None:
        """Slots have been renumbered: make the table again when it is needed."""
        self._slots = None

    def add(self, ids: Ids, first_slot: int) -> None:
        """Documents were added with slots from ``first_slot`` on."""
        if self._slots is not None:
            self._slots.update(zip(ids.tolist(), range(first_slot, first_slot + len(ids)), strict=True))

    def delete(self, ids: Ids) -> None:
        """Documents were deleted."""
        if self._slots is not None:
            for value in ids.tolist():
                del self._slots[value]

    def has(self, value: object, documents: Documents | None) -> bool:
        """Whether an id is present."""
        return (str(value) if isinstance(value, UUID) else value) in self._table(documents)

    def slots_of(self, ids: Ids, documents: Documents | None) -> Slots:
        """Slots of present ids; an absent one is a KeyError."""
        table = self._table(documents)
        try:
            return np.array([table[value] for value in ids.tolist()], np.int64)
        except KeyError as error:
            raise KeyError(f"expected ids of the index, got {error.args[0]!r}, which is not in it") from None

    def new_ids(self, ids: IdsLike | None, n: int, documents: Documents | None) -> Ids:
        """The ids of n new documents, by default the next numbers; a ValueError if one is present."""
        if ids is None:
            return _automatic_ids(0 if documents is None else documents.next_id, n)
        checked, table = string_ids.checked(ids, n), self._table(documents)
        for value in checked.tolist():
            if value in table:
                raise ValueError(
                    f"expected new ids, got {value!r}, which is in the index: use update to replace it"
                )
        return checked

    def _table(self, documents: Documents | None) -> dict[int | str, int]:
        if self._slots is None:
            slots = np.empty(0, np.int64) if documents is None else np.flatnonzero(documents.live)
            ids = slots if documents is None else documents.ids.rows[slots]
            self._slots = dict(zip(ids.tolist(), slots.tolist(), strict=True))
        return self._slots


def _automatic_ids(start: int, n: int) -> npt.NDArray[np.int64]:
    """The next n ids from ``start`` on, if there are so many."""
    if start + n > LAST_ID:
        raise ValueError(
            f"expected room for {n} more automatic ids below {LAST_ID}, got {start} as the next one: "
            "give ids yourself"
        )
    return np.arange(start, start + n, dtype=np.int64)
