"""Collections that are open while the disk fails: they go on, or say that they must be opened again."""

from __future__ import annotations

from pathlib import Path

import posh
from tests.adversary.power_loss.collection_subject import FOLDER, Collections, done, small_limits
from tests.adversary.power_loss.faults import paused
from tests.adversary.power_loss.subjects import Subject


class LiveCollections(Collections):
    """Only the calls of the step itself fail; those of opening and closing do not."""

    def prepare(self, root: Path, number: int) -> None:
        with paused():
            Subject.prepare(self, root, number)  # closed: without a log to recover from

    def step(self, root: Path, number: int) -> None:
        if self.script[number][0] in ("create", "reopen"):
            super().step(root, number)
            return
        small_limits()
        with paused():
            collection = posh.Collection(root / FOLDER)
        try:
            done(collection, number, self.script[number])
        except posh.StorageError:
            with paused():
                self._require_usable(collection, number)
            raise
        finally:
            with paused():
                collection.close()

    def _require_usable(self, collection: posh.Collection, number: int) -> None:
        """Raise unless a collection whose write failed has its content, and now does the write or refuses."""
        self.require_content(collection, number)
        try:
            done(collection, number, self.script[number])
        except posh.StorageError as error:
            if "close this collection, open it again" not in str(error):
                raise AssertionError(f"expected an error that says what to do, got {error}") from error
            self.require_content(collection, number)
        else:
            self.require_content(collection, number + 1)
