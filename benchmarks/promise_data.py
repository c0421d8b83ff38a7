"""Distributions that are hard for a search, each in its own way.

An entry of :data:`DISTRIBUTIONS` takes a random generator, chooses the parameters (such as the centres of
clusters), and returns a function that draws rows. Documents and queries are drawn by the same function.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Draw = Callable[[np.random.Generator, int], Vectors]
"""Draws n rows: ``draw(rng, n)`` has the shape (n, d)."""

Rng = np.random.Generator


def clusters(
    rng: Rng,
    n_clusters: int = 100,
    d: int = 64,
    spread: float = 0.5,
    mean: float = 0.0,
    is_sorted: bool = False,
) -> Draw:
    """Equal Gaussian clusters around Gaussian centres, rows in the order of clusters if ``is_sorted``."""
    centres = mean + rng.standard_normal((n_clusters, d))

    def draw(rng: Rng, n: int) -> Vectors:
        labels = rng.integers(0, n_clusters, n)
        rows = centres[np.sort(labels) if is_sorted else labels] + spread * rng.standard_normal((n, d))
        return rows.astype(np.float32)

    return draw


def gaussian(rng: Rng, d: int = 32) -> Draw:
    """A Gaussian ball: neighbours are hardly nearer than other documents."""
    return lambda rng, n: rng.standard_normal((n, d), np.float32)


def uniform(rng: Rng, d: int = 16) -> Draw:
    """A cube that does not contain the origin in its middle."""
    return lambda rng, n: rng.random((n, d), np.float32)


def tiny_clusters(rng: Rng) -> Draw:
    """Thousands of clusters with a few documents each."""
    return clusters(rng, n_clusters=8000, d=32, spread=0.2)


def few_clusters(rng: Rng) -> Draw:
    """Five big clusters, far apart."""
    return clusters(rng, n_clusters=5, d=64, spread=0.4)


def sorted_clusters(rng: Rng) -> Draw:
    """Rows in the order of their clusters."""
    return clusters(rng, n_clusters=50, d=32, is_sorted=True)


def uneven_clusters(rng: Rng, n_clusters: int = 300, d: int = 48) -> Draw:
    """Clusters whose sizes follow Zipf's law and whose densities differ by orders of magnitude."""
    centres = rng.standard_normal((n_clusters, d))
    spreads = np.exp(rng.normal(-1.0, 1.0, (n_clusters, 1)))
    weights = 1.0 / np.arange(1, n_clusters + 1)
    weights /= weights.sum()

    def draw(rng: Rng, n: int) -> Vectors:
        labels = rng.choice(n_clusters, n, p=weights)
        return (centres[labels] + spreads[labels] * rng.standard_normal((n, d))).astype(np.float32)

    return draw


def manifold(rng: Rng, n_dims: int = 5, d: int = 128) -> Draw:
    """A curved surface of few dimensions in a space of many."""
    weights, phases = rng.standard_normal((n_dims, d)), rng.uniform(0, 2 * np.pi, d)

    def draw(rng: Rng, n: int) -> Vectors:
        waves = np.sin(rng.standard_normal((n, n_dims)) @ weights + phases)
        return (waves + 0.01 * rng.standard_normal((n, d))).astype(np.float32)

    return draw


def three_columns(rng: Rng) -> Draw:
    """Three numbers per vector."""
    return gaussian(rng, d=3)


def heavy_tails(rng: Rng, d: int = 20) -> Draw:
    """Student's t with two degrees of freedom: some documents are far from all others."""
    return lambda rng, n: rng.standard_t(2.0, (n, d)).astype(np.float32)


def duplicates(rng: Rng, n_distinct: int = 3000, d: int = 32) -> Draw:
    """Each vector about ten times."""
    distinct = clusters(rng, n_clusters=50, d=d)(rng, n_distinct)
    return lambda rng, n: np.asarray(distinct[rng.integers(0, n_distinct, n)])


def sphere(rng: Rng, d: int = 24) -> Draw:
    """Unit vectors in all directions."""

    def draw(rng: Rng, n: int) -> Vectors:
        rows = rng.standard_normal((n, d))
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    return draw


def counts(rng: Rng, n_topics: int = 40, d: int = 128) -> Draw:
    """Counts of words, most of them zero: documents of a few topics, of very different lengths."""
    topics = rng.dirichlet(np.full(d, 0.05), n_topics)

    def draw(rng: Rng, n: int) -> Vectors:
        shares = rng.dirichlet(np.full(n_topics, 0.05), n) @ topics
        rows = rng.poisson(shares * np.exp(rng.normal(3.5, 0.7, (n, 1))))
        rows[np.arange(n), shares.argmax(axis=1)] += 1  # no document is empty
        return rows.astype(np.float32)

    return draw


def ties(rng: Rng, d: int = 10) -> Draw:
    """Small integers: many documents have the same score."""
    return lambda rng, n: rng.integers(-1, 3, (n, d)).astype(np.float32) + np.eye(1, d, dtype=np.float32) * 4


def two_scales(rng: Rng) -> Draw:
    """Half of the documents a hundred times as large as the others."""
    small, large = clusters(rng, d=32), clusters(rng, d=32)

    def draw(rng: Rng, n: int) -> Vectors:
        is_large = rng.random((n, 1)) < 0.5
        return np.where(is_large, 100 * large(rng, n), small(rng, n)).astype(np.float32)

    return draw


def like_embeddings(rng: Rng, n_clusters: int = 400, d: int = 96) -> Draw:
    """A common mean, overlapping clusters and a spectrum that falls by a power law, as embeddings have."""
    scales = np.arange(1, d + 1) ** -0.5
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    centres = rng.standard_normal((n_clusters, d)) * scales
    mean = 0.5 * rng.standard_normal(d)

    def draw(rng: Rng, n: int) -> Vectors:
        rows = centres[rng.integers(0, n_clusters, n)] + 0.7 * rng.standard_normal((n, d)) * scales
        return np.asarray(mean + rows @ rotation, np.float32)

    return draw


DISTRIBUTIONS: dict[str, Callable[[Rng], Draw]] = {
    "gaussian": gaussian,
    "uniform": uniform,
    "tiny clusters": tiny_clusters,
    "few clusters": few_clusters,
    "uneven clusters": uneven_clusters,
    "manifold": manifold,
    "three columns": three_columns,
    "heavy tails": heavy_tails,
    "duplicates": duplicates,
    "sphere": sphere,
    "counts": counts,
    "ties": ties,
    "two scales": two_scales,
    "like embeddings": like_embeddings,
    "sorted clusters": sorted_clusters,
}
