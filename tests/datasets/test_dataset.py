from __future__ import annotations

import numpy as np
import pytest

from posh.datasets import Dataset

BASE, QUERIES = np.arange(12.0).reshape(4, 3), np.zeros((2, 3))


def test_arrays_are_float32_int64_and_read_only() -> None:
    data = Dataset("toy", BASE, QUERIES, [0, 1, 2, 3], [0, 1])
    assert data.base.dtype == np.float32
    assert data.base_labels is not None
    assert data.base_labels.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        data.base[0] = 1


def test_the_callers_array_stays_writeable() -> None:
    own = np.zeros((4, 3), dtype=np.float32)
    Dataset("toy", own, QUERIES)
    own[0] = 1


def test_repr_tells_shapes_classes_and_names() -> None:
    data = Dataset("toy", BASE, QUERIES, [0, 1, 1, 1], [0, 1], list("abcd"), list("ef"))
    assert repr(data) == "Dataset('toy', base=(4, 3), queries=(2, 3), classes=2, named)"


def test_head_keeps_the_first_rows_labels_and_names() -> None:
    data = Dataset("toy", BASE, QUERIES, [0, 1, 2, 3], [0, 1], list("abcd"), list("ef")).head(2)
    np.testing.assert_array_equal(data.base, BASE[:2])
    np.testing.assert_array_equal(data.base_labels, [0, 1])
    np.testing.assert_array_equal(data.base_names, ["a", "b"])
    assert len(data.queries) == 2


@pytest.mark.parametrize("n_base", [0, 5, -1])
def test_head_refuses_other_sizes(n_base: int) -> None:
    with pytest.raises(ValueError, match=rf"1\.\.4, got {n_base}"):
        Dataset("toy", BASE, QUERIES).head(n_base)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param((BASE, np.zeros((2, 4))), "3 features but queries have 4", id="widths differ"),
        pytest.param((BASE[0], QUERIES), "base must be 2-D", id="base is flat"),
        pytest.param((BASE, QUERIES, [0, 1, 2], [0, 1]), "expected 4, got 3", id="a label is missing"),
        pytest.param((BASE, QUERIES, [0, 1, 2, 3]), "both base_labels and query_labels", id="half labelled"),
    ],
)
def test_contradictions_are_refused(fields: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dataset("toy", *fields)  # type: ignore[arg-type]
