"""The specification of the search: planes, thresholds, masks, scores, and what is kept in which order."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tests.index.blocks.specification import (
    GROUP,
    Block,
    Floats,
    Numbers,
    Space,
    f32,
    quantise,
    sum_in_lanes,
    sum_in_order,
    winners,
)

LOWEST = f32(-np.inf)


@dataclass(frozen=True)
class Settings:
    """The arguments of _native.BlockSettings."""

    n_probe: int
    n_plus: int
    n_minus: int
    n_scanned: int
    n_keep: int
    gain: float
    slack: float
    half_margin: float
    first: tuple[float, float, float] | None
    by_list: bool
    is_distance: bool


@dataclass
class Query:
    numbers: Numbers
    unit: f32
    half_offset: f32
    sum: int
    reach: f32
    squares: f32
    plus: Numbers
    minus: Numbers
    routing: Floats
    list_scores: Floats
    limit: f32 = LOWEST
    entry: f32 = LOWEST
    kept: list[tuple[float, int, int, int]] = field(default_factory=list)  # (-score, slot, block, document)


def prepared(space: Space, settings: Settings, vector: Floats) -> Query:
    values = space.reduced(vector[None])
    numbers, units = quantise(values, 127, 1)
    weight = f32(space.distance_weight)
    squares = sum_in_lanes(values * values)[0]
    total = int(numbers.sum())
    margin = f32(settings.half_margin) * f32(4.6188) * np.sqrt(squares) / units[0]
    projected = space.project(space.with_column(values, weight))[:, : settings.n_scanned]
    all_squares = squares + weight * weight
    plus, minus = winners(projected, settings.n_plus)[0], winners(-projected, settings.n_minus)[0]
    reach = sum_in_order(np.concatenate([[0], projected[0, plus], -projected[0, minus]])[None].astype(f32))[0]
    return Query(
        numbers[0],
        units[0],
        f32(7.5) * f32(total) - f32(128 * total) + margin,
        128 * total,
        reach / all_squares if all_squares > 0 else f32(0),
        sum_in_lanes(vector * vector),
        plus,
        minus,
        space.route(values)[0],
        sum_in_lanes(vector * space.centroids) + space.list_bias,
    )


def counts_of(query: Query, codes: npt.NDArray[np.bool_]) -> Numbers:
    return codes[:, query.plus].sum(axis=1) + (~codes[:, query.minus]).sum(axis=1)


def products_of(query: Query, block: Block) -> Floats:
    """8-bit products of the query and all residuals."""
    sums = (block.numbers + 128) @ query.numbers
    return (sums - query.sum).astype(f32) * (block.scale * query.unit)


def scores_of(query: Query, block: Block) -> Floats:
    """The same with the offsets."""
    return products_of(query, block) + block.offset


class Searcher:
    """One query's search. `allowed` (n_slots) says which slots may be found."""

    def __init__(
        self,
        space: Space,
        blocks: list[Block],
        settings: Settings,
        query: Query,
        k: int,
        allowed: npt.NDArray[np.bool_],
    ):
        self.space, self.blocks, self.settings, self.query, self.k = space, blocks, settings, query, k
        self.allowed = allowed
        self.middle = middle_of(space, settings)

    def run(self) -> list[tuple[float, int, int, int]]:
        settings, query, n_lists = self.settings, self.query, len(self.space.centroids)
        probes = winners(query.routing[None], settings.n_probe)[0]
        if settings.first:
            intercept, slope, weight = map(f32, settings.first)
            query.limit = intercept + slope * query.list_scores[probes].max() + weight * query.squares
            query.entry = query.limit
        if settings.by_list:
            for block, score in self.with_scores(probes):
                self.score(block, score, self.candidates(block, score))
        else:
            self.visit_best_first(probes)
        if settings.first and len(query.kept) < self.k:
            self.start_again(probes)
        n = settings.n_probe
        while len(query.kept) < self.k and n < n_lists:
            n = min(4 * n, n_lists)
            self.start_again(winners(query.routing[None], n)[0])
        return query.kept

    def start_again(self, probes: Numbers) -> None:
        self.query.kept.clear()
        self.query.limit = self.query.entry = LOWEST
        self.visit_best_first(probes)

    def with_scores(self, lists: Numbers) -> list[tuple[int, f32]]:
        """The blocks of the lists in this order, and the score of each list."""
        pairs = []
        for number in lists.tolist():
            pairs += [
                (i, self.query.list_scores[number])
                for i, block in enumerate(self.blocks)
                if block.list == number
            ]
        return pairs

    def visit_best_first(self, probes: Numbers) -> None:
        """A block's documents are scored after the next block is compared."""
        order = probes[np.argsort(-self.query.routing[probes], kind="stable")]
        waiting = None
        for block, score in self.with_scores(order):
            candidates = self.candidates(block, score)
            if waiting:
                self.score(*waiting)
            waiting = block, score, candidates
        if waiting:
            self.score(*waiting)

    def candidates(self, number: int, list_score: f32) -> Numbers:
        """The documents of the block that reach their group's threshold."""
        block = self.blocks[number]
        thresholds = np.array([self.threshold(list_score, length) for length in block.lengths])
        reached = counts_of(self.query, block.codes) >= thresholds[np.arange(len(block.slots)) // GROUP]
        return np.flatnonzero(reached & block.live & self.allowed[block.slots])

    def threshold(self, list_score: f32, length: f32) -> int:
        settings, query = self.settings, self.query
        counts = f32(settings.gain) * query.reach
        if not counts > 0:
            return 0
        expected = self.middle + (query.limit - list_score) * counts / length - f32(settings.slack)
        if not expected > 0:
            return 0
        return int(np.ceil(min(expected, f32(settings.n_plus + settings.n_minus + 1))))

    def score(self, number: int, list_score: f32, docs: Numbers) -> None:
        query, block = self.query, self.blocks[number]
        units = block.scale[docs] * query.unit
        halves = (16 * (block.halves[0][docs] @ query.numbers)).astype(f32) + query.half_offset
        further = block.offset[docs] + list_score
        scores = products_of(query, block)[docs] + further
        survives = halves * units + further >= query.entry
        for doc, score in zip(docs[survives].tolist(), scores[survives], strict=True):
            if score >= query.entry:
                self.keep(score, int(block.slots[doc]), number, doc)

    def keep(self, score: f32, slot: int, number: int, doc: int) -> None:
        query, n_keep = self.query, self.settings.n_keep
        insort(query.kept, (-float(score), slot, number, doc))
        del query.kept[n_keep:]
        if len(query.kept) == n_keep:
            query.entry = max(query.entry, f32(-query.kept[-1][0]))
        if len(query.kept) >= self.k:
            query.limit = max(query.limit, f32(-query.kept[self.k - 1][0]))


def middle_of(space: Space, settings: Settings) -> f32:
    active = f32(space.n_active) / f32(space.n_bits)
    return active * f32(settings.n_plus) + (f32(1) - active) * f32(settings.n_minus)


def search(
    space: Space,
    blocks: list[Block],
    settings: Settings,
    queries: Floats,
    vectors: Floats | None,
    n_slots: int,
    k: int,
    allowed: npt.NDArray[np.bool_] | None = None,
) -> tuple[Numbers, Floats]:
    """Ids (n, k), -1 for none, and scores (n, k), -inf for none. Without vectors: the decoded residuals."""
    ids = np.full((len(queries), k), -1, np.int64)
    scores = np.full((len(queries), k), LOWEST)
    if allowed is None:
        allowed = np.ones(n_slots, bool)
    for i, values in enumerate(queries):
        query = prepared(space, settings, values)
        kept = Searcher(space, blocks, settings, query, k, allowed).run()
        if not kept:
            continue
        stored = np.array([stored_vector(space, blocks, vectors, *place) for _, *place in kept], f32)
        exact = last_scores(stored, values, settings.is_distance)
        slots = np.array([slot for _, slot, _, _ in kept])
        order = np.lexsort((slots, -exact))[:k]
        ids[i, : len(order)], scores[i, : len(order)] = slots[order], exact[order]
    return ids, scores


def stored_vector(
    space: Space, blocks: list[Block], vectors: Floats | None, slot: int, number: int, doc: int
) -> Floats:
    if vectors is not None:
        return vectors[slot].astype(f32)
    block, centroid = blocks[number], space.centroids[blocks[number].list]
    return centroid + block.scale[doc] * block.numbers[doc, : len(centroid)].astype(f32)


def last_scores(vectors: Floats, query: Floats, is_distance: bool) -> Floats:
    if is_distance:
        return -sum_in_lanes((vectors - query) * (vectors - query))
    return sum_in_lanes(vectors * query)


def sample_counts(
    space: Space, blocks: list[Block], settings: Settings, queries: Floats, n_groups: int, seed: int
) -> tuple[Floats, Floats]:
    """The same as _native.Blocks.sample_counts."""
    expected, counts = np.full((2, len(queries), n_groups), np.nan, f32)
    for i, values in enumerate(queries):
        query = prepared(space, settings, values)
        for j in range(n_groups):
            seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
            number = winners(query.routing[None], settings.n_probe)[0][(seed >> 33) % settings.n_probe]
            own = [block for block in blocks if block.list == number]
            if not own:
                continue
            block = own[(seed >> 20) % len(own)]
            group = (seed >> 10) % len(block.lengths)
            docs = np.arange(group * GROUP, min((group + 1) * GROUP, len(block.slots)))
            docs = docs[block.live[docs]]
            if not len(docs):
                continue
            products = scores_of(query, block)[docs]
            best = np.argmax(products)
            expected[i, j] = products[best] * query.reach / block.lengths[group]
            counts[i, j] = f32(counts_of(query, block.codes[docs[[best]]])[0]) - middle_of(space, settings)
    return expected, counts
