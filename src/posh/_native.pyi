from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

_Codes: TypeAlias = npt.NDArray[np.uint16]
_Words: TypeAlias = npt.NDArray[np.uint64]
_Ids: TypeAlias = npt.NDArray[np.int64]
_Scores: TypeAlias = npt.NDArray[np.int32]
_Float = TypeVar("_Float", np.float32, np.float64)
_Segment: TypeAlias = tuple[_Words, int, int, _Words | None, _Words | None]

def kernel_names() -> list[str]: ...
def centre(
    vectors: npt.NDArray[_Float], mean: npt.NDArray[_Float], factor: float, out: npt.NDArray[np.float32]
) -> float: ...
def winners(scores: npt.NDArray[np.float32], out: _Codes, kernel: str) -> None: ...
def pack(codes: _Codes, first_doc: int, planes: _Words) -> None: ...

class Segments:
    def __init__(self, segments: Sequence[_Segment], n_bits: int, slots: Sequence[_Ids]) -> None: ...

def overlap_topk(
    segments: Segments, queries: _Codes, ids: _Ids, scores: _Scores, n_threads: int, kernel: str
) -> None: ...
def overlap_lists(
    segments: Segments,
    queries: _Codes,
    offsets: _Ids,
    visits: npt.NDArray[np.int32],
    ids: _Ids,
    scores: _Scores,
    n_threads: int,
    kernel: str,
) -> None: ...
def table_topk(
    codes: _Codes,
    tables: npt.NDArray[np.float32],
    penalty: npt.NDArray[np.float32] | None,
    passing: _Words | None,
    ids: _Ids,
    scores: npt.NDArray[np.float32],
    n_threads: int,
    kernel: str,
) -> None: ...
def table_scores(
    codes: _Codes,
    tables: npt.NDArray[np.float32],
    penalty: npt.NDArray[np.float32] | None,
    slots: _Ids,
    scores: npt.NDArray[np.float32],
    n_threads: int,
) -> None: ...
def best_candidates(
    slots: _Ids,
    candidate_scores: npt.NDArray[np.float32],
    ids: _Ids,
    scores: npt.NDArray[np.float32],
    n_threads: int,
) -> None: ...
def hamming_topk(
    codes: npt.NDArray[np.uint8],
    queries: npt.NDArray[np.uint8],
    n_bits: int,
    passing: _Words | None,
    ids: _Ids,
    scores: _Scores,
    n_threads: int,
    kernel: str,
) -> None: ...

_Rows = npt.NDArray[np.float32]
_Reals: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]
_BlockArrays: TypeAlias = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], _Rows, _Words]

class Metric:
    def __init__(self, name: str, mean: npt.NDArray[np.float64], unit: float) -> None: ...
    def prepare_documents(self, vectors: _Reals, out: _Rows, kernel: str) -> bool: ...
    def prepare_queries(
        self, vectors: _Reals, out: _Rows, factors: npt.NDArray[np.float64], kernel: str
    ) -> bool: ...
    @staticmethod
    def scale_scores(factors: npt.NDArray[np.float64], scores: _Rows) -> None: ...

class PreparedSearch:
    def run(self, X: object) -> tuple[_Ids, _Rows, int] | None: ...
    def run_among(self, X: object, allowed: npt.NDArray[np.uint8]) -> tuple[_Ids, _Rows, int] | None: ...

class Router:
    def __init__(self, centroids: _Rows, bias: _Rows) -> None: ...
    def nearest(self, vectors: _Rows, lists: npt.NDArray[np.int32], n_threads: int, kernel: str) -> None: ...

def hadamard_project(vectors: _Rows, signs: _Rows, out: _Rows, kernel: str) -> None: ...

class BlockSpace:
    def __init__(
        self,
        *,
        n_bits: int,
        n_active: int,
        centroids: _Rows,
        routing: _Rows,
        routing_bias: _Rows,
        weights: _Rows | None,
        signs: _Rows | None,
        reduction: _Rows | None,
        is_distance: bool,
    ) -> None: ...

class BlockSettings:
    def __init__(
        self,
        *,
        n_probe: int,
        power: int,
        bound: float,
        spread: float,
        n_plus: int,
        n_minus: int,
        n_scanned: int,
        n_keep: int,
        thresholds: npt.NDArray[np.int32],
        threshold_scale: float,
        half_margin: float,
        first: tuple[float, float] | None,
        min_shared: float,
    ) -> None: ...

class GraphShape:
    def __init__(self, n_columns: int, n_bits: int, degree: int) -> None: ...
    @property
    def is_valid(self) -> bool: ...
    @property
    def nodes(self) -> int: ...
    @property
    def head(self) -> int: ...
    @property
    def stride(self) -> int: ...

class GraphSettings:
    def __init__(self, stop: float, n_keep: int) -> None: ...

class Graph:
    def __init__(
        self,
        shape: GraphShape,
        records: npt.NDArray[np.uint8],
        slots: npt.NDArray[np.uint32],
        entries: npt.NDArray[np.uint32],
        rows: _Rows,
        mean: _Rows,
        bias: _Rows,
        radius: float,
        n_slots: int,
        is_distance: bool,
    ) -> None: ...
    def prepare(
        self,
        settings: GraphSettings,
        metric: Metric,
        vectors: BlockVectors,
        live: npt.NDArray[np.uint8] | None,
        ids: _Ids | None,
        k: int,
        n_threads: int,
        kernel: str,
    ) -> PreparedSearch: ...
    def search(
        self,
        settings: GraphSettings,
        queries: _Rows,
        vectors: BlockVectors,
        live: npt.NDArray[np.uint8] | None,
        skipped: npt.NDArray[np.int64],
        ids: npt.NDArray[np.int64],
        scores: _Rows,
        n_visited: npt.NDArray[np.uint32],
        n_threads: int,
        kernel: str,
    ) -> None: ...

def build_graph(
    shape: GraphShape,
    vectors: _Rows,
    lost: _Rows,
    candidates: npt.NDArray[np.int32],
    entries: npt.NDArray[np.uint32],
    alpha: float,
    records: npt.NDArray[np.uint8],
    n_threads: int,
    kernel: str,
) -> None: ...

class BlockVectors:
    def __init__(self, floats: _Rows | None, halves: npt.NDArray[np.uint16] | None, n_slots: int) -> None: ...

class Blocks:
    def __init__(self, space: BlockSpace) -> None: ...
    def with_documents(
        self,
        vectors: _Rows,
        lists: npt.NDArray[np.int32],
        slots: npt.NDArray[np.uint32],
        n_threads: int,
        kernel: str,
    ) -> Blocks: ...
    def without(self, removed: npt.NDArray[np.uint8]) -> Blocks: ...
    def rearranged(self, space: BlockSpace, sources: npt.NDArray[np.int32]) -> Blocks: ...
    def count_documents(self) -> npt.NDArray[np.int64]: ...
    def slots_of_lists(self, chosen: npt.NDArray[np.int32]) -> npt.NDArray[np.uint32]: ...
    def to_arrays(self) -> _BlockArrays: ...
    @staticmethod
    def from_arrays(
        space: BlockSpace,
        memory: npt.NDArray[np.uint8],
        table: npt.NDArray[np.int64],
        groups: _Rows,
        live: _Words,
        n_stored: int,
    ) -> Blocks: ...
    @property
    def n_stored(self) -> int: ...
    def routing_scores(self, queries: _Rows, scores: _Rows, kernel: str) -> None: ...
    def lists_of_slots(self, lists: npt.NDArray[np.int32]) -> None: ...
    @property
    def nbytes(self) -> int: ...
    def search(
        self,
        settings: BlockSettings,
        queries: _Rows,
        vectors: BlockVectors,
        allowed: npt.NDArray[np.uint8] | None,
        ids: _Ids,
        scores: _Rows,
        n_threads: int,
        kernel: str,
    ) -> None: ...
    def search_radius(
        self,
        settings: BlockSettings,
        queries: _Rows,
        bounds: _Rows,
        margin: float,
        vectors: BlockVectors,
        allowed: npt.NDArray[np.uint8] | None,
        n_threads: int,
        kernel: str,
    ) -> tuple[_Ids, _Ids, _Rows]: ...
    def prepare(
        self,
        settings: BlockSettings,
        metric: Metric,
        vectors: BlockVectors,
        ids: _Ids | None,
        k: int,
        n_threads: int,
        kernel: str,
    ) -> PreparedSearch: ...
    def sample_counts(
        self,
        settings: BlockSettings,
        queries: _Rows,
        seed: int,
        expected: _Rows,
        counts: _Rows,
        kernel: str,
    ) -> None: ...
