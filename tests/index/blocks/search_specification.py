"""The specification of the search: planes, thresholds, masks, scores, and what is kept in which order."""

from __future__ import annotations

import math
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
    """The arguments of _native.BlockSettings; ``by_list`` changes the order of work, not the results."""

    n_probe: int  # 0: lists are chosen by power, bound and spread
    n_plus: int
    n_minus: int
    n_scanned: int
    n_keep: int
    thresholds: npt.NDArray[np.int32]
    threshold_scale: float
    half_margin: float
    first: tuple[float, float] | None
    by_list: bool
    power: int = 1
    bound: float = 0.0
    spread: float = 1.0


@dataclass(frozen=True)
class View:
    """What a query is for the residuals of a list."""

    numbers: Numbers
    unit: f32
    half_offset: f32
    sum: int
    reach: f32
    plus: Numbers
    minus: Numbers
    list_score: f32


@dataclass
class Query:
    space: Space
    settings: Settings
    vector: Floats
    limit: f32 = LOWEST
    entry: f32 = LOWEST
    kept: list[tuple[float, int, int, int]] = field(default_factory=list)  # (-score, slot, block, document)

    def __post_init__(self) -> None:
        space = self.space
        self.values = space.reduced_queries(self.vector[None])
        self.projected = space.project(self.values)
        self.routing = space.route(self.values)[0]
        if space.is_distance:
            differences = self.vector - space.centroids
            self.list_scores = -f32(0.5) * sum_in_lanes(differences * differences)
        else:
            self.list_scores = sum_in_lanes(self.vector * space.centroids)

    def view(self, number: int) -> View:
        space, settings = self.space, self.settings
        values, projected = self.values, self.projected
        if space.is_distance:
            centroid = space.reduced(space.centroids[number : number + 1])
            values, projected = values - centroid, projected - space.project(centroid)
        projected = projected[:, : settings.n_scanned]
        numbers, units = quantise(values, 127, 1)
        squares = sum_in_lanes(values * values)[0]
        total = int(numbers.sum())
        margin = f32(settings.half_margin) * f32(4.6188) * np.sqrt(squares) / units[0]
        plus, minus = winners(projected, settings.n_plus)[0], winners(-projected, settings.n_minus)[0]
        at_planes = np.concatenate([[0], projected[0, plus], -projected[0, minus]])
        reach = sum_in_order(at_planes[None].astype(f32))[0]
        return View(
            numbers[0],
            units[0],
            f32(7.5) * f32(total) - f32(128 * total) + margin,
            128 * total,
            reach / squares if squares > 0 else f32(0),
            plus,
            minus,
            self.list_scores[number],
        )


def counts_of(view: View, codes: npt.NDArray[np.bool_]) -> Numbers:
    return codes[:, view.plus].sum(axis=1) + (~codes[:, view.minus]).sum(axis=1)


def products_of(view: View, block: Block) -> Floats:
    """8-bit products of the query and all residuals."""
    sums = (block.numbers + 128) @ view.numbers
    return (sums - view.sum).astype(f32) * (block.scale * view.unit)


def live_counts(blocks: list[Block], n_lists: int) -> Floats:
    counts = np.zeros(n_lists, f32)
    for block in blocks:
        counts[block.list] += f32(block.live.sum())
    return counts


def live_routing(blocks: list[Block], query: Query) -> Floats:
    """Routing scores, -inf for lists without live documents."""
    return np.where(live_counts(blocks, len(query.routing)) > 0, query.routing, LOWEST)


def probes_of(space: Space, blocks: list[Block], settings: Settings, query: Query) -> Numbers:
    """The lists that a query visits, in this order."""
    routing = live_routing(blocks, query)
    if settings.n_probe:
        return winners(routing[None], settings.n_probe)[0]
    best = int(np.argmax(routing))
    lowest = lowest_visited(space, blocks, settings, query, routing, best)
    lists = np.arange(len(routing))
    return lists[(lists == best) | ((routing >= lowest) & (routing > LOWEST))]


def lowest_visited(
    space: Space, blocks: list[Block], settings: Settings, query: Query, routing: Floats, best: int
) -> float:
    """The routing score from which on a list is visited, by the weights of all lists."""
    spread = f32(settings.spread)
    if space.is_distance:
        scale = f32(0.5) * (spread * spread) - query.list_scores[best]
    else:
        scale = np.sqrt(sum_in_lanes(query.vector[None] ** 2)[0]) * spread
    inverse = f32(1) / scale
    if not scale > 0 or not inverse < np.inf:
        return LOWEST
    base = f32(1) / (f32(1) + (routing[best] - routing) * inverse)
    weights, left = live_counts(blocks, len(routing)), settings.power
    while left:
        if left & 1:
            weights = weights * base
        base, left = base * base, left >> 1
    total = float(f32(settings.bound)) * float(sum_in_lanes(weights[None])[0])
    gap = (np.inf if total == 0 else math.pow(total, -1.0 / settings.power)) - 1.0
    return f32(float(routing[best]) - float(scale) * gap)


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

    def run(self) -> list[tuple[float, int, int, int]]:
        settings, query, n_lists = self.settings, self.query, len(self.space.centroids)
        probes = probes_of(self.space, self.blocks, settings, query)
        if settings.first:
            intercept, slope = map(f32, settings.first)
            length = f32(1) if self.space.is_distance else np.sqrt(sum_in_lanes(query.vector[None] ** 2)[0])
            query.limit = intercept * length + slope * query.list_scores[probes].max()
        query.entry = query.limit
        self.visit(probes)
        if settings.first and len(query.kept) < self.k:
            self.start_again(probes)
        n = len(probes)
        while len(query.kept) < self.k and n < n_lists:
            n = min(4 * n, n_lists)
            self.start_again(winners(live_routing(self.blocks, query)[None], n)[0])
        return query.kept

    def start_again(self, probes: Numbers) -> None:
        query = self.query
        query.kept.clear()
        query.limit = query.entry = LOWEST
        self.visit(probes)

    def with_views(self, lists: Numbers) -> list[tuple[int, View]]:
        """The blocks of the lists in this order, and what the query is in each list."""
        pairs = []
        for number in lists.tolist():
            view = self.query.view(number)
            pairs += [(i, view) for i, block in enumerate(self.blocks) if block.list == number]
        return pairs

    def visit(self, lists: Numbers) -> None:
        """A block's documents are scored after the next block is compared."""
        waiting = None
        for block, view in self.with_views(lists):
            if not (self.blocks[block].live & self.allowed[self.blocks[block].slots]).any():
                continue
            candidates = self.candidates(block, view)
            if waiting:
                self.score(*waiting)
            waiting = block, view, candidates
        if waiting:
            self.score(*waiting)

    def candidates(self, number: int, view: View) -> Numbers:
        """The documents of the block that reach their group's threshold."""
        block = self.blocks[number]
        thresholds = np.array([self.threshold(view, *group) for group in block.ranges])
        reached = counts_of(view, block.codes) >= thresholds[np.arange(len(block.slots)) // GROUP]
        return np.flatnonzero(reached & block.live & self.allowed[block.slots])

    def threshold(self, view: View, shortest: f32, longest: f32, offset: f32) -> int:
        table, scale = self.settings.thresholds, f32(self.settings.threshold_scale)
        scale = view.reach * scale
        if not scale > 0:
            return int(table[0])
        product = self.query.limit - (view.list_score + offset)
        length = longest if product > 0 else shortest
        if self.space.is_distance:
            length = np.clip(np.sqrt(f32(2) * max(product, f32(0))), shortest, longest)
            product += f32(0.5) * length * length
        place = product * scale / length + f32(len(table) // 2)
        return int(table[min(int(min(place, 1e6)), len(table) - 1)]) if place >= 1 else int(table[0])

    def score(self, number: int, view: View, docs: Numbers) -> None:
        query, block = self.query, self.blocks[number]
        units = block.scale[docs] * view.unit
        halves = (16 * (block.halves[0][docs] @ view.numbers)).astype(f32) + view.half_offset
        further = block.offset[docs] + view.list_score
        scores = products_of(view, block)[docs] + further
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
        query = Query(space, settings, values)
        kept = Searcher(space, blocks, settings, query, k, allowed).run()
        if not kept:
            continue
        stored = np.array([stored_vector(space, blocks, vectors, *place) for _, *place in kept], f32)
        exact = last_scores(stored, values, space.is_distance)
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
        query = Query(space, settings, values)
        for j in range(n_groups):
            seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
            probes = probes_of(space, blocks, settings, query)
            number = probes[(seed >> 33) % len(probes)]
            own = [block for block in blocks if block.list == number]
            if not own:
                continue
            block = own[(seed >> 20) % len(own)]
            group = (seed >> 10) % len(block.ranges)
            docs = np.arange(group * GROUP, min((group + 1) * GROUP, len(block.slots)))
            docs = docs[block.live[docs]]
            if not len(docs):
                continue
            view = query.view(number)
            products = products_of(view, block)
            best = docs[np.argmax(products[docs] + block.offset[docs])]
            length = block.scale[best] * np.sqrt(f32((block.numbers[best] ** 2).sum()))
            if length > 0:
                expected[i, j] = products[best] * view.reach / length
                counts[i, j] = f32(counts_of(view, block.codes[[best]])[0]) - middle_of(space, settings)
    return expected, counts
