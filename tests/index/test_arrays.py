"""Arrays that rows are appended to."""

from __future__ import annotations

import numpy as np

from posh.index.arrays import AppendOnlyArray


def test_objects_are_appended_to_memory_that_was_used_before():
    used = [np.full(64 + i, 0x44, np.uint8) for i in range(2000)]
    del used  # freed memory is full of bytes that are no objects
    for i in range(500):
        rows = AppendOnlyArray.of(np.array(["a", "b"], object))
        rows = rows.with_rows(np.array([f"c{i}"] * 5, object)).with_rows(np.array([f"d{i}"] * 9, object))
        assert rows.rows.tolist() == ["a", "b", *[f"c{i}"] * 5, *[f"d{i}"] * 9]
