"""Winner selection: every kernel against a sort, on what projections give and on what they should not."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from posh import _native, kernels

KERNELS = kernels.available()

pytestmark = pytest.mark.usefixtures("fastest_again")


def reference(scores: np.ndarray, n_active: int) -> np.ndarray:
    ordered = np.argsort(-np.where(np.isnan(scores), -np.inf, scores), axis=1, kind="stable")
    return np.sort(ordered[:, :n_active], axis=1)


def check(kernel: str, scores: np.ndarray, n_active: int) -> None:
    kernels.use(kernel)
    np.testing.assert_array_equal(kernels.winners(scores, n_active), reference(scores, n_active))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n_bits", [2, 7, 8, 31, 33, 100, 1024, 1031, 65536])
def test_gaussian_scores(kernel, n_bits):
    scores = np.random.default_rng(n_bits).normal(1.0, 3.0, size=(20, n_bits)).astype(np.float32)
    for n_active in {1, 2, max(1, n_bits // 30), n_bits // 2, n_bits - 1, n_bits}:
        check(kernel, scores, max(1, n_active))


@pytest.mark.parametrize("kernel", KERNELS)
@given(
    scores=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 4), st.integers(1, 70)),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=True)
        | st.sampled_from([0.0, -0.0, 1.0, -1.0]),
    ),
    data=st.data(),
)
def test_any_scores_with_ties(kernel, scores, data):
    check(kernel, scores, data.draw(st.integers(1, scores.shape[1])))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "row",
    [
        np.zeros(1000),
        np.full(1000, -3.5),
        np.r_[np.zeros(999), 1e30],
        np.r_[1e30, np.full(999, -1e30)],
        np.exp(np.linspace(0, 60, 1000)),
        np.r_[np.full(500, 1.0), np.full(500, -1.0)],
        np.r_[np.full(990, -np.inf), np.arange(10)],
    ],
    ids=["zeros", "constant", "one-peak", "extremes", "exponential", "two-valued", "mostly-minus-inf"],
)
def test_scores_that_defeat_the_guess(kernel, row):
    for n_active in (1, 32, 500, 1000):
        check(kernel, row.astype(np.float32)[None], n_active)


def rows_of_every_kind() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    shape = (30, 1024)
    return {
        "flood-of-ties": rng.integers(0, 4, shape),
        "ties-at-the-cut": np.round(rng.normal(size=shape), 1),
        "signed-zeros": np.where(
            rng.random(shape) < 0.02, rng.normal(size=shape), rng.choice([0.0, -0.0], shape)
        ),
        "cauchy": rng.standard_cauchy(shape),
        "lognormal": np.exp(3 * rng.normal(size=shape)),
        "subnormal": rng.normal(size=shape) * 1e-40,
        "neighbouring-floats": 1.0 + rng.integers(0, 200, shape) * 2.0**-23,
        "huge": rng.normal(size=shape) * 1e37,
        "shifted": 1e4 + rng.normal(size=shape),
        "two-heaps": rng.normal(size=shape) + 50.0 * (rng.random(shape) < 0.03),
    }


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rows", rows_of_every_kind().values(), ids=rows_of_every_kind().keys())
def test_rows_of_every_kind(kernel, rows):
    for n_active in (1, 2, 7, 32, 100, 512, 1023, 1024):
        check(kernel, rows.astype(np.float32), n_active)


@pytest.mark.parametrize("kernel", KERNELS)
def test_nan_loses_to_everything(kernel):
    scores = np.array([[np.nan, -np.inf, 5.0, np.nan, -1.0]], np.float32)
    kernels.use(kernel)
    np.testing.assert_array_equal(kernels.winners(scores, 3), [[1, 2, 4]])


def test_use_names_the_choices():
    with pytest.raises(ValueError, match=r"expected a kernel that this CPU can run \(scalar, .* got 'gpu'"):
        kernels.use("gpu")


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_environment_forces_a_kernel(kernel):
    command = [sys.executable, "-c", "import posh.kernels as k; print(k.active())"]
    done = subprocess.run(
        command, env=os.environ | {"POSH_KERNEL": kernel}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == kernel


@pytest.mark.parametrize(
    ("scores", "n_active", "out", "message"),
    [
        (np.zeros((2, 8)), 2, None, "expected C-contiguous float32 scores"),
        (np.zeros((8, 2), np.float32).T, 2, None, "expected C-contiguous float32 scores"),
        (np.zeros((2, 8), np.float32), 0, None, r"expected n_active between 1 and 8 \(the columns\), got 0"),
        (np.zeros((2, 8), np.float32), 9, None, "got 9"),
        (
            np.zeros((2, 8), np.float32),
            5,
            np.zeros((2, 4), np.uint16),
            r"expected out of shape \(2, 5\), got \(2, 4\)",
        ),
    ],
)
def test_bad_arguments_are_named(scores, n_active, out, message):
    with pytest.raises(ValueError, match=message):
        kernels.winners(scores, n_active, out)


def test_the_bindings_refuse_wrong_shapes():
    scores = np.zeros((2, 8), np.float32)
    for out in (np.zeros((3, 4), np.uint16), np.zeros((2, 9), np.uint16), np.zeros((2, 0), np.uint16)):
        with pytest.raises(ValueError, match="shapes"):
            _native.winners(scores, out, "scalar")
    with pytest.raises(TypeError):
        _native.winners(scores.astype(np.float64), np.zeros((2, 4), np.uint16), "scalar")
