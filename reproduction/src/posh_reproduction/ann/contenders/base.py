"""The contract of the contenders in the comparison.

A contender builds indexes, and an index hands out functions that search. The harness alone measures: a
function from :meth:`BuiltIndex.searching` only answers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from posh.errors import MissingExtraError

__all__ = ["LARGE", "BuiltIndex", "Contender", "Floats", "Params", "Rival", "Search"]
__all__ += ["list_counts", "probes", "reordered"]

Params: TypeAlias = dict[str, Any]
"""Parameters of a build or of a search, of types that JSON has."""

Floats: TypeAlias = npt.NDArray[np.float32]

Search: TypeAlias = Callable[[Floats], Any]
"""From queries (m, d) to ids (m, k), best first; rows may be shorter where less was found."""


LARGE = 2_000_000


class BuiltIndex(Protocol):
    """An index of vectors."""

    @property
    def bytes_per_vector(self) -> float:
        """Bytes of everything that a search needs, with the vectors if it needs them, for each vector."""

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        """The search for the k nearest with these parameters.

        Parameters are set here, outside of the measured time. The function is valid until the next call.
        """


class Contender(Protocol):
    """A library and one of its kinds of index."""

    name: str
    package: str
    """The distribution whose version is recorded."""

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """The parameters of the indexes to try for n vectors of d features.

        Above ``LARGE`` vectors it is one index: those of all contenders are in memory at the same time.
        """

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """The parameters of the searches to try with an index that was built so.

        Each list goes from fast to careful. The rest of it is left out once nearly everything is found.
        """

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> BuiltIndex:
        """Index vectors (n, d); for the metric "cosine" they have unit length, and so have the queries."""

    def version(self) -> str:
        """The version of the code that is measured."""


class Rival:
    """Base class of contenders from PyPI."""

    name: str
    package: str
    module: str

    def imported(self) -> Any:
        """The module of the library; without it, an error with the pip line."""
        try:
            return importlib.import_module(self.module)
        except ImportError as error:
            raise MissingExtraError(self.package, "bench-ann", f"the contender {self.name!r}") from error

    def version(self) -> str:
        """The version of the distribution."""
        self.imported()
        return version(self.package)


_PROBED = (1 / 256, 1 / 128, 1 / 64, 1 / 32, 3 / 64, 1 / 16, 3 / 32, 1 / 8, 3 / 16, 1 / 4, 3 / 8)


def probes(n_lists: int) -> list[int]:
    """Return numbers of lists to visit: the same shares for all contenders with lists.

    >>> probes(1024)
    [4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384]
    """
    return sorted({max(1, round(share * n_lists)) for share in _PROBED})


def list_counts(n: int) -> list[int]:
    """Numbers of lists to try for n vectors: the power of two that is nearest to √n, and twice as many.

    >>> list_counts(340_479), list_counts(69_000), list_counts(2_400_000)
    ([512, 1024], [256, 512], [4096])
    """
    nearest = int(2 ** round(np.log2(np.sqrt(n))))
    return [2 * nearest] if n > LARGE else [nearest, 2 * nearest]


def reordered(k: int) -> tuple[int, ...]:
    """Candidates for each of k results that are put in order by the vectors."""
    return (3, 10, 20, 50) if k <= 10 else (2, 3, 5, 10)
