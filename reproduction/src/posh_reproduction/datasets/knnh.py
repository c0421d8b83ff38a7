"""The feature files of the KNNH paper, for users who have them.

X. He, P. Wang, J. Cheng, "K-Nearest Neighbors Hashing", CVPR 2019. The authors share the features as
MATLAB files through links that no program can fetch. Users put these files into the data folder themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posh.datasets._cache import Arrays
from posh.datasets._containers import mat_variables, read_mat
from posh.datasets._registry import Entry
from posh.datasets._split import shuffled
from posh.errors import DataUnavailableError, FormatError, PoshError

__all__ = ["MatFiles", "entry", "places205", "train_and_test"]

_FOLDER = "knnh"
HOMEPAGE = "https://github.com/HolmesShuan/K-Nearest-Neighbors-Hashing"


@dataclass(frozen=True)
class MatFiles:
    """A data set in MATLAB files that the user provides.

    Attributes
    ----------
    files : the names they may have, in the sub-folder ``knnh`` of the data folder.
    variables : the names, in any of the files, of base, base labels, queries and query labels.
    by_column : whether a sample is a column of its matrix rather than a row.

    """

    files: tuple[str, ...]
    variables: tuple[str, str, str, str] = ("train_features", "train_labels", "test_features", "test_labels")
    by_column: bool = False

    def is_ready(self, root: Path) -> bool:
        """Whether the files that are there can be read and hold all variables."""
        try:
            return not self._missing(root)
        except PoshError:
            return False

    def prepare(self, root: Path) -> None:
        """Explain what to provide, if anything is missing."""
        if missing := self._missing(root):
            raise DataUnavailableError(
                f"expected the variables {', '.join(self.variables)}, but {', '.join(missing)} not found; "
                f"put {', '.join(self.files)} into {root / _FOLDER}. The authors share them at {HOMEPAGE}"
            )

    def read(self, root: Path) -> Arrays:
        """Return base and queries, each in a fixed random order, with labels."""
        found: Arrays = {}
        for path in self._present(root):
            found |= read_mat(path, self.variables)
        base, base_labels, queries, query_labels = (found[variable] for variable in self.variables)
        return {
            **self._shuffled("base", "base_labels", base, base_labels),
            **self._shuffled("queries", "query_labels", queries, query_labels),
        }

    def _present(self, root: Path) -> list[Path]:
        return [path for name in self.files if (path := root / _FOLDER / name).is_file()]

    def _missing(self, root: Path) -> list[str]:
        found = {name for path in self._present(root) for name in mat_variables(path)}
        return [name for name in self.variables if name not in found]

    def _shuffled(self, key: str, label_key: str, vectors: NDArray[Any], labels: NDArray[Any]) -> Arrays:
        samples = vectors.T if self.by_column else vectors
        if samples.ndim != 2 or len(samples) != labels.size:
            raise FormatError(
                f"{self.files[0]}: expected one label per {'column' if self.by_column else 'row'}, got "
                f"{labels.size} labels for a matrix of shape {vectors.shape}"
            )
        order = shuffled(len(samples))
        return {key: samples[order].astype(np.float32), label_key: labels.ravel()[order].astype(np.int64)}


def entry(n_features: int, content: str, files: MatFiles) -> Entry:
    """Describe a data set of which only the files can tell the number of vectors."""
    return Entry(None, None, n_features, True, f"{content}, from the authors of KNNH", files)


def train_and_test(stem: str) -> MatFiles:
    """Name the pair ``<stem>_train.mat`` and ``<stem>_test.mat``; either may hold everything."""
    return MatFiles((f"{stem}_train.mat", f"{stem}_test.mat"))


def places205() -> MatFiles:
    """Name the four files of Places205, which hold one sample per column."""
    parts = ("train", "train-label", "test", "test-label")
    return MatFiles(
        files=tuple(f"places205-{part}.mat" for part in parts),
        variables=("TRAIN_GIST_MAT", "TRAIN_LABEL_MAT", "TEST_GIST_MAT", "TEST_LABEL_MAT"),
        by_column=True,
    )
