"""The contract of the contenders in the comparison.

A contender builds and loads indexes, and an index hands out functions that search. The harness alone
measures: a function from :meth:`BuiltIndex.searching` only answers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from posh.errors import MissingExtraError

__all__ = ["LARGE", "BuiltIndex", "Contender", "Floats", "Params", "Rival", "Search"]
__all__ += ["EXPANSION", "LINKS", "list_counts", "probes", "reordered", "visits"]

Params: TypeAlias = dict[str, Any]
"""Parameters of a build or of a search, of types that JSON has."""

Floats: TypeAlias = npt.NDArray[np.float32]

Search: TypeAlias = Callable[[Floats], Any]
"""From queries (m, d) to ids (m, k), best first; rows may be shorter where less was found."""


LARGE = 2_000_000


class BuiltIndex(Protocol):
    """An index of vectors."""

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        """The search for the k nearest with these parameters.

        Parameters are set here, outside of the measured time. The function is valid until the next call.
        """

    def save(self, folder: Path) -> None:
        """Write everything that a search needs, including the vectors if it needs them, to a folder."""


class Contender(Protocol):
    """A library and one of its kinds of index."""

    name: str
    package: str
    """The distribution whose version is recorded."""

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """The parameters of the indexes to try for n vectors of d features."""

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """The parameters of the searches to try with an index that was built so.

        Each list goes from fast to careful. The rest of it is left out once nearly everything is found.
        """

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> BuiltIndex:
        """Index vectors (n, d); for the metric "cosine" they have unit length, and so have the queries."""

    def load(self, folder: Path, d: int, metric: str, **params: Any) -> BuiltIndex:
        """Read an index of vectors with d features that was saved to a folder."""

    def version(self) -> str:
        """The version of the code that is measured."""

    def limit(self, kernel: str) -> bool:
        """Restrict this process to the instructions of a kernel; return False if that is impossible."""


class Rival:
    """Base class of contenders from PyPI."""

    name: str
    package: str
    module: str
    extra = "bench-ann"
    """The extra of ``posh-ann`` that installs it."""

    def imported(self) -> Any:
        """The module of the library; without it, an error with the pip line."""
        try:
            return importlib.import_module(self.module)
        except ImportError as error:
            raise MissingExtraError(self.package, self.extra, f"the contender {self.name!r}") from error

    def version(self) -> str:
        """The version of the distribution."""
        self.imported()
        return version(self.package)

    def limit(self, kernel: str) -> bool:
        """Return False: most libraries choose instructions by the CPU alone."""
        return False


_PROBED = (1 / 256, 1 / 128, 1 / 64, 1 / 32, 3 / 64, 1 / 16, 3 / 32, 1 / 8, 3 / 16, 1 / 4, 3 / 8)


def probes(n_lists: int) -> list[int]:
    """Return numbers of lists to visit: the same shares for all contenders with lists.

    >>> probes(1024)
    [4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384]
    """
    return sorted({max(1, round(share * n_lists)) for share in _PROBED})


def list_counts(n: int) -> list[int]:
    """Return numbers of lists to try for n vectors: the power of two nearest to √n, and twice as many.

    Above ``LARGE`` vectors, where builds take long, only the second.

    >>> list_counts(340_479), list_counts(69_000), list_counts(2_400_000)
    ([512, 1024], [256, 512], [4096])
    """
    nearest = int(2 ** round(np.log2(np.sqrt(n))))
    return [2 * nearest] if n > LARGE else [nearest, 2 * nearest]


def reordered(k: int) -> tuple[int, ...]:
    """Candidates for each of k results that are put in order by the vectors."""
    return (3, 10, 20, 50) if k <= 10 else (2, 3, 5, 10)


LINKS, EXPANSION = 16, 200
"""Links per vector, and candidates for them: one setting for all HNSW graphs, which take long to build."""

_VISITED = (12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def visits(k: int) -> list[int]:
    """Return numbers of candidates that a search in a graph keeps, at least k.

    >>> visits(100)
    [100, 128, 192, 256, 384, 512, 768, 1024]
    """
    return sorted({max(k, visited) for visited in _VISITED})
