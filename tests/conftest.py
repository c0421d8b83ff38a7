"""Data that many tests share, small enough to fit in seconds."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import settings

CASES = int(os.environ.get("POSH_CASES", "50"))
"""Random cases of each property of the kernels and the index; more for a thorough run."""

settings.register_profile("posh", deadline=None, derandomize=True)  # the same cases on every machine
settings.load_profile("posh")


def clusters(n: int, d: int, n_clusters: int = 10, seed: int = 0) -> np.ndarray:
    """Vectors (n, d) around a few centres, off the origin: what a hasher should cope with."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_clusters, d))
    return 3.0 + centres[rng.integers(n_clusters, size=n)] + 0.5 * rng.normal(size=(n, d))


@pytest.fixture(scope="session")
def X() -> np.ndarray:
    return clusters(400, 24)
