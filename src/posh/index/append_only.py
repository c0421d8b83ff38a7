"""An array that grows at the end while others read the beginning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["AppendOnlyArray"]


@dataclass(frozen=True, eq=False)
class AppendOnlyArray:
    """The first ``n`` rows of a buffer. Rows are added behind them, where no earlier reader looks.

    Only the newest of a family of these may be grown: the index does so under its lock. A family of its own
    begins with :meth:`detached`.

    >>> import numpy as np
    >>> AppendOnlyArray.of(np.array([1, 2])).with_rows(np.array([3])).rows
    array([1, 2, 3])
    """

    buffer: npt.NDArray[Any]
    n: int

    @classmethod
    def of(cls, rows: npt.NDArray[Any]) -> AppendOnlyArray:
        """Take over an array as it is; the first addition copies it."""
        return cls(rows, len(rows))

    def detached(self) -> AppendOnlyArray:
        """The same rows without the room behind them: the first addition copies them."""
        return AppendOnlyArray.of(self.rows)

    @property
    def rows(self) -> npt.NDArray[Any]:
        """The rows, (n, ...), not to be written to."""
        return self.buffer[: self.n]

    def with_rows(self, rows: npt.NDArray[Any]) -> AppendOnlyArray:
        """The same rows and some more."""
        n = self.n + len(rows)
        buffer = self.buffer
        if n > len(buffer):
            buffer = np.empty((max(n, self.n + self.n // 2), *buffer.shape[1:]), buffer.dtype)
            buffer[: self.n] = self.rows
        buffer[self.n : n] = rows
        return AppendOnlyArray(buffer, n)
