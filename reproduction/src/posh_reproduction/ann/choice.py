"""Choosing parameters on one half of the queries, and comparing curves on the other: pure functions.

A contender's *ladder* has, for each recall of :data:`RUNGS`, the parameters that were fastest among those
that reach this recall on the first half. The second half then gives one point (recall, queries per second)
for each of them, and nothing is chosen any more. The curve goes through these points in the order of the
ladder, and the rate at a recall in between is interpolated: linearly in the logarithm of the rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["ENOUGH", "RUNGS", "TARGETS", "Point", "is_finished", "ladder", "rate_at", "shortlist"]

RUNGS = (0.70, 0.80, 0.85, 0.90, 0.93, 0.95, 0.97, 0.98, 0.99)
TARGETS = (0.90, 0.95, 0.98)
"""The recalls at which contenders are compared."""

ENOUGH = 0.993
"""More careful parameters are not tried once this recall is reached."""

_NEAR = 0.5  # of the best rate: with batches of another size such parameters may be the best
_HOPELESS = 0.2  # of the best rate
_JUDGED = 0.9  # recall from which a line of parameters may be hopeless
_GAIN = 0.001  # of recall: with less, more careful parameters of a line do not help


class Point(NamedTuple):
    """Parameters, identified by a key of the caller, with their results."""

    key: str
    recall: float
    rate: float


def ladder(points: Iterable[Point]) -> list[Point]:
    """The fastest point for each rung, ascending by recall; the best recall if no rung is reached.

    >>> fast, good = Point("fast", 0.86, 9000.0), Point("good", 0.96, 4000.0)
    >>> [point.key for point in ladder([good, fast, Point("bad", 0.91, 100.0)])]
    ['fast', 'good']
    """
    known = list(points)
    if not known:
        return []
    best = max(known, key=lambda point: (point.recall, point.rate))
    chosen = {
        max(able, key=lambda point: point.rate)
        for rung in RUNGS
        if (able := [point for point in known if point.recall >= rung])
    }
    return sorted(chosen or {best}, key=lambda point: (point.recall, -point.rate))


def is_finished(line: Sequence[Point], points: Iterable[Point]) -> bool:
    """Whether the rest of a line of parameters, tried from fast to careful, can be left out.

    That is so if nearly everything is found, if the last step found hardly more than the one before, or if
    other ``points`` find as much several times as fast. The last does not count at low recalls: parameters
    that spend much on each list are slow there, and may be the best at high ones.

    >>> line = [Point("a", 0.91, 9000.0), Point("b", 0.94, 1000.0)]
    >>> is_finished(line, line), is_finished(line, [*line, Point("other", 0.95, 6000.0)])
    (False, True)
    """
    last = line[-1]
    if last.recall >= ENOUGH or (len(line) > 1 and last.recall - line[-2].recall < _GAIN):
        return True
    fastest = max((point.rate for point in points if point.recall >= last.recall), default=0.0)
    return last.recall >= _JUDGED and last.rate < _HOPELESS * fastest


def shortlist(points: Iterable[Point]) -> list[Point]:
    """The points to measure with batches of another size: nearly as fast as any of at least their recall.

    >>> fast, good = Point("fast", 0.86, 9000.0), Point("good", 0.96, 4000.0)
    >>> [point.key for point in shortlist([fast, good, Point("slow", 0.95, 1000.0)])]
    ['fast', 'good']
    """
    known = list(points)
    enough = [point for point in known if point.recall >= RUNGS[0]] or ladder(known)
    return [
        point
        for point in enough
        if point.rate >= _NEAR * max(other.rate for other in known if other.recall >= point.recall)
    ]


def rate_at(curve: Sequence[Point], recall: float) -> float | None:
    """Queries per second of a curve at a recall, or None if the curve does not reach it.

    ``curve`` is in the order of its ladder. The rate is interpolated between the two points around the
    recall, or is that of the fastest point that reaches the recall, whichever is larger: who finds more than
    was asked for, and sooner, is not slower for that. Nothing is extrapolated.

    >>> curve = [Point("a", 0.90, 10_000.0), Point("b", 0.96, 1000.0)]
    >>> round(rate_at(curve, 0.93))
    3162
    >>> rate_at(curve, 0.97) is None, rate_at(curve, 0.80)
    (True, 10000.0)
    """
    able = [point.rate for point in curve if point.recall >= recall]
    crossed = [
        _between(low, high, recall) for low, high in pairwise(curve) if low.recall < recall <= high.recall
    ]
    return max([*able, *crossed[-1:]], default=None)


def _between(low: Point, high: Point, recall: float) -> float:
    """The rate on the line between two points, in the logarithm of the rate.

    On the half that is reported, recalls may be out of order by chance. So a curve may cross a recall more
    than once, and the caller takes the last crossing, which is that of the most careful parameters.
    """
    share = (recall - low.recall) / (high.recall - low.recall)
    return math.exp((1 - share) * math.log(low.rate) + share * math.log(high.rate))
