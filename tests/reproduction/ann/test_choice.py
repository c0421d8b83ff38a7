"""Choosing on one half, comparing on the other: the arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posh_reproduction.ann.choice import RUNGS, TARGETS, Point, is_finished, ladder, rate_at, shortlist

POINTS = st.lists(
    st.tuples(st.floats(0.0, 1.0), st.floats(1.0, 1e6)).map(lambda pair: Point(str(pair), *pair)), min_size=1
)


def test_the_recalls_that_are_compared_are_rungs():
    assert set(TARGETS) <= set(RUNGS)
    assert list(RUNGS) == sorted(RUNGS)


def test_each_rung_has_the_fastest_that_reaches_it():
    points = [Point("a", 0.91, 900.0), Point("b", 0.93, 950.0), Point("c", 0.99, 100.0)]
    assert [point.key for point in ladder(points)] == ["b", "c"]


def test_a_contender_that_reaches_no_rung_shows_its_best():
    assert [p.key for p in ladder([Point("a", 0.1, 9.0), Point("b", 0.3, 1.0)])] == ["b"]
    assert ladder([]) == []


@given(POINTS)
def test_nothing_beside_the_ladder_is_better_than_it(points):
    chosen = ladder(points)
    for rung in RUNGS:
        able = [point.rate for point in points if point.recall >= rung]
        if able:
            assert max(p.rate for p in chosen if p.recall >= rung) == max(able)


@given(POINTS)
def test_what_is_on_the_ladder_is_on_the_shortlist(points):
    assert set(ladder(points)) <= set(shortlist(points))


def test_a_line_ends_if_it_finds_enough_or_hardly_more_than_before():
    enough, more, hardly = Point("a", 0.999, 10.0), Point("b", 0.93, 10.0), Point("c", 0.9305, 9.0)
    assert is_finished([enough], [enough])
    assert not is_finished([more], [more])
    assert is_finished([more, hardly], [more, hardly])


def test_a_line_ends_if_others_are_far_faster_but_not_at_low_recalls():
    other, slow, early = Point("a", 0.96, 9000.0), Point("b", 0.95, 1000.0), Point("c", 0.85, 1000.0)
    assert is_finished([slow], [other, slow])
    assert not is_finished([early], [other, early])
    assert not is_finished([slow], [Point("a", 0.94, 9000.0), slow])


CURVE = [Point("a", 0.90, 10_000.0), Point("b", 0.94, 4000.0), Point("c", 0.99, 500.0)]


@pytest.mark.parametrize("point", CURVE, ids=lambda point: point.key)
def test_a_measured_point_is_not_interpolated(point):
    assert rate_at(CURVE, point.recall) == pytest.approx(point.rate)


def test_between_two_points_the_logarithm_is_linear():
    assert rate_at(CURVE, 0.92) == pytest.approx(np.sqrt(10_000 * 4000))


def test_nothing_is_extrapolated():
    assert rate_at(CURVE, 0.50) == 10_000.0
    assert rate_at(CURVE, 0.995) is None
    assert rate_at([], 0.9) is None


def test_of_two_crossings_the_last_counts():
    # On the other half of the queries, recalls may fall although parameters were made more careful.
    curve = [Point("a", 0.89, 9000.0), Point("b", 0.91, 4000.0), Point("c", 0.89, 7000.0), CURVE[1]]
    share = (0.90 - 0.89) / (0.94 - 0.89)
    assert rate_at(curve, 0.90) == pytest.approx(7000 ** (1 - share) * 4000**share)


def test_who_finds_more_and_is_faster_is_not_slower_at_less():
    curve = [Point("a", 0.89, 5000.0), Point("b", 0.91, 2000.0), Point("c", 0.96, 9000.0)]
    assert rate_at(curve, 0.90) == 9000


@given(POINTS)
def test_a_rate_is_at_least_that_of_any_point_that_reaches_the_recall(points):
    rates = [rate_at(points, recall) or 0.0 for recall in TARGETS]
    able = [max((p.rate for p in points if p.recall >= recall), default=0.0) for recall in TARGETS]
    assert all(rate >= fastest for rate, fastest in zip(rates, able, strict=True))


@given(POINTS, st.sampled_from(TARGETS))
def test_a_rate_is_within_what_was_measured(points, recall):
    curve = ladder(points)
    rate = rate_at(curve, recall)
    if rate is not None:
        assert min(p.rate for p in curve) * 0.999 <= rate <= max(p.rate for p in curve) * 1.001
    assert (rate is None) == all(p.recall < recall for p in curve)
