"""The feature files of the KNNH paper, for users who have them.

X. He, P. Wang, J. Cheng, "K-Nearest Neighbors Hashing", CVPR 2019. The authors share the features as
MATLAB files through links that need a browser, so users put these files into the data folder themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posh.datasets._fetch import Arrays
from posh.datasets._recipes import permute
from posh.datasets._registry import Entry
from posh.errors import DataUnavailableError, FormatError, PoshError
from posh_reproduction.datasets.matlab import list_variables, read_variables

__all__ = ["MatFiles", "build_entry", "name_places205", "name_train_and_test"]

_FOLDER = "knnh"
HOMEPAGE = "https://github.com/HolmesShuan/K-Nearest-Neighbors-Hashing"


@dataclass(frozen=True)
class MatFiles:
    """A data set in MATLAB files that the user provides.

    Attributes
    ----------
    files : their possible names in the sub-folder ``knnh`` of the data folder.
    variables : the names, in any of the files, of base, base labels, queries and query labels.
    by_column : whether a sample is a column of its matrix rather than a row.

    """

    files: tuple[str, ...]
    variables: tuple[str, str, str, str] = ("train_features", "train_labels", "test_features", "test_labels")
    by_column: bool = False

    def is_ready(self, root: Path) -> bool:
        """Whether the files are readable and contain all variables."""
        try:
            return not self._find_missing(root)
        except PoshError:
            return False

    def prepare(self, root: Path) -> None:
        """Raise DataUnavailableError with the files to provide, if any variable is missing."""
        if missing := self._find_missing(root):
            raise DataUnavailableError(
                f"expected the variables {', '.join(self.variables)}, but {', '.join(missing)} not found; "
                f"put {', '.join(self.files)} into {root / _FOLDER}. The authors share them at {HOMEPAGE}"
            )

    def read(self, root: Path) -> Arrays:
        """Return base and queries with labels, each in a fixed random order."""
        arrays: Arrays = {}
        for path in self._find_files(root):
            arrays |= read_variables(path, self.variables)
        base, base_labels, queries, query_labels = (arrays[variable] for variable in self.variables)
        return {
            **self._shuffle("base", "base_labels", base, base_labels),
            **self._shuffle("queries", "query_labels", queries, query_labels),
        }

    def _find_files(self, root: Path) -> list[Path]:
        return [path for name in self.files if (path := root / _FOLDER / name).is_file()]

    def _find_missing(self, root: Path) -> list[str]:
        found = {name for path in self._find_files(root) for name in list_variables(path)}
        return [name for name in self.variables if name not in found]

    def _shuffle(self, key: str, label_key: str, vectors: NDArray[Any], labels: NDArray[Any]) -> Arrays:
        samples = vectors.T if self.by_column else vectors
        if samples.ndim != 2 or len(samples) != labels.size:
            raise FormatError(
                f"{self.files[0]}: expected one label per {'column' if self.by_column else 'row'}, got "
                f"{labels.size} labels for a matrix of shape {vectors.shape}"
            )
        order = permute(len(samples))
        return {key: samples[order].astype(np.float32), label_key: labels.ravel()[order].astype(np.int64)}


def build_entry(n_features: int, content: str, files: MatFiles) -> Entry:
    """Build the entry of a data set whose number of vectors depends on the files."""
    return Entry(None, None, n_features, True, f"{content}, from the authors of KNNH", files)


def name_train_and_test(stem: str) -> MatFiles:
    """Name the pair ``<stem>_train.mat`` and ``<stem>_test.mat``; either may hold everything."""
    return MatFiles((f"{stem}_train.mat", f"{stem}_test.mat"))


def name_places205() -> MatFiles:
    """Name the four files of Places205, which hold one sample per column."""
    parts = ("train", "train-label", "test", "test-label")
    return MatFiles(
        files=tuple(f"places205-{part}.mat" for part in parts),
        variables=("TRAIN_GIST_MAT", "TRAIN_LABEL_MAT", "TEST_GIST_MAT", "TEST_LABEL_MAT"),
        by_column=True,
    )
