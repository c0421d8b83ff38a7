"""The value type that every loader returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dataset"]

Floats: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]
Names: TypeAlias = NDArray[np.str_]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Vectors to search in, vectors to search for, and what is known about them.

    All arrays are read-only. The base is in a random order that never changes, so that its first
    rows are a fair sample and ties broken by position favour no class.

    Attributes
    ----------
    name : the name under which the data set is loaded.
    base : float32 (n, d), the vectors to search in.
    queries : float32 (m, d), the vectors to search for; none of them is a row of the base.
    base_labels : int64 (n,), the class of each base vector, or None.
    query_labels : int64 (m,), the class of each query, or None.
    base_names : str (n,), what each base vector stands for (e.g. a word), or None.
    query_names : str (m,), what each query stands for, or None.
    description : one sentence on what the vectors are and where they come from.

    Examples
    --------
    >>> import numpy as np
    >>> from posh.datasets import Dataset
    >>> Dataset("toy", np.eye(4)[:3], np.eye(4)[3:])
    Dataset('toy', base=(3, 4), queries=(1, 4))

    """

    name: str
    base: Floats
    queries: Floats
    base_labels: Labels | None = None
    query_labels: Labels | None = None
    base_names: Names | None = None
    query_names: Names | None = None
    description: str = ""

    def __post_init__(self) -> None:
        for side in ("base", "queries"):
            self._freeze(side, np.float32, 2)
        if self.base.shape[1] != self.queries.shape[1]:
            raise ValueError(
                f"{self.name}: base has {self.base.shape[1]} features but queries have "
                f"{self.queries.shape[1]}; both must have the same width"
            )
        for kind, dtype in (("labels", np.int64), ("names", np.str_)):
            self._freeze_pair(f"base_{kind}", f"query_{kind}", dtype)

    def head(self, n_base: int) -> Dataset:
        """Return the same data set with only the first ``n_base`` vectors of the base.

        Examples
        --------
        >>> from posh.datasets import load
        >>> load("digits").head(100).base.shape
        (100, 64)

        """
        if not 1 <= n_base <= len(self.base):
            raise ValueError(f"{self.name}: n_base must be in 1..{len(self.base)}, got {n_base}")
        labels = None if self.base_labels is None else self.base_labels[:n_base]
        names = None if self.base_names is None else self.base_names[:n_base]
        return replace(self, base=self.base[:n_base], base_labels=labels, base_names=names)

    def __repr__(self) -> str:
        parts = [repr(self.name), f"base={self.base.shape}", f"queries={self.queries.shape}"]
        if self.base_labels is not None:
            parts.append(f"classes={np.unique(self.base_labels).size}")
        if self.base_names is not None:
            parts.append("named")
        return f"Dataset({', '.join(parts)})"

    def _freeze(self, field: str, dtype: Any, ndim: int) -> None:
        array = np.asarray(getattr(self, field), dtype=dtype).view()
        if array.ndim != ndim:
            raise ValueError(f"{self.name}: {field} must be {ndim}-D, got shape {array.shape}")
        array.flags.writeable = False
        object.__setattr__(self, field, array)

    def _freeze_pair(self, base_field: str, query_field: str, dtype: Any) -> None:
        given = [getattr(self, field) is not None for field in (base_field, query_field)]
        if not any(given):
            return
        if not all(given):
            raise ValueError(f"{self.name}: give both {base_field} and {query_field}, or neither")
        for field, rows in ((base_field, len(self.base)), (query_field, len(self.queries))):
            self._freeze(field, dtype, 1)
            if len(getattr(self, field)) != rows:
                raise ValueError(
                    f"{self.name}: {field} must have one entry per vector: expected {rows}, "
                    f"got {len(getattr(self, field))}"
                )
