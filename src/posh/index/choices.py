"""Names that parameters of indexes accept, apart from their implementations: quick to import."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["METRICS", "OPTIMIZE", "REFINER_NAMES", "SCORINGS", "STORES", "STRUCTURE_NAMES", "Scoring"]


class Scoring(NamedTuple):
    """A way to find candidates."""

    about: str
    sparse_only: bool


METRICS = {
    "cosine": "the cosine of the angle; 0 for a zero vector",
    "euclidean": "minus the squared distance",
    "dot": "the inner product",
}
STORES = {
    "float32": "4 bytes a number: exact",
    "float16": "2 bytes a number: 3 digits",
    "int8": "none beside the blocks, which have 1 byte a number",
}
OPTIMIZE = {
    "balanced": "single queries and large batches",
    "latency": "single queries",
    "throughput": "large batches",
    "memory": "few bytes: no graph next to the lists",
    "build": "a short build: no graph next to the lists",
}
SCORINGS = {
    "overlap": Scoring("shared bits", sparse_only=False),
    "asymmetric": Scoring("more accurate, slower", sparse_only=True),
}
STRUCTURE_NAMES = {"exact": "scan everything", "ivf": "scan only the nearest lists"}
REFINER_NAMES = ("decoder", "sbiht", "vectors", "cosine")
