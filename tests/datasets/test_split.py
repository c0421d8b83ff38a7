from __future__ import annotations

import numpy as np

from posh.datasets._split import shuffled, split_at_random, split_by_class


def test_the_order_is_the_same_for_ever() -> None:
    assert shuffled(10).tolist() == [2, 8, 4, 9, 1, 6, 7, 3, 0, 5]


def test_split_by_class_takes_the_quota_and_every_row_once() -> None:
    labels = np.repeat(np.arange(3), [50, 30, 20])
    split = split_by_class(labels, np.array([5, 3, 2]))
    assert np.bincount(labels[split.queries]).tolist() == [5, 3, 2]
    assert sorted([*split.base, *split.queries]) == list(range(100))


def test_split_by_class_does_not_sort_by_class() -> None:
    labels = np.repeat(np.arange(10), 100)
    split = split_by_class(labels, np.full(10, 10))
    for rows in split:
        assert np.unique(labels[rows[: len(rows) // 2]]).size == 10
        assert (np.diff(labels[rows]) < 0).any()


def test_split_at_random_takes_every_row_once() -> None:
    split = split_at_random(50, 7)
    assert len(split.queries) == 7
    assert sorted([*split.base, *split.queries]) == list(range(50))
