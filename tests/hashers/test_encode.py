"""Encoding in tiles: the same codes however the work is cut, and errors that say where."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone

import posh
from posh import _native, kernels
from posh.hashers import _linalg
from tests.conftest import clusters
from tests.hashers.cases import ALL, name

MANY = clusters(5000, 24).astype(np.float32)  # several runs of tiles, the last one incomplete

every_hasher = pytest.mark.parametrize("hasher", ALL, ids=name)


@pytest.fixture(scope="module")
def fly() -> posh.FruitFly:
    return posh.FruitFly(64, 6, random_state=0).fit(MANY[:300])


@every_hasher
@pytest.mark.parametrize("d", [24, 150], ids=["plain", "pca"])
def test_any_cut_gives_the_same_codes(hasher, d):
    X = clusters(5000, d).astype(np.float32)
    hasher = clone(hasher).fit(X[:300])
    expected = hasher.encode(X, n_threads=1)
    for n_threads in (2, 3):
        assert hasher.encode(X, n_threads=n_threads) == expected
    for start, stop in ((0, 15), (0, 17), (3, 515), (511, 2560), (4097, 5000)):
        assert hasher.encode(X[start:stop], n_threads=2) == expected[start:stop]


@every_hasher
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_bad_value_of_many_is_named(hasher, n_threads, bad, dtype):
    X = MANY.astype(dtype)
    hasher = clone(hasher).fit(X[:300])
    X[3001, 7] = X[3000, 9] = X[4500, 0] = bad
    with pytest.raises(ValueError, match=rf"X contains NaN or inf \({bad} at row 3000, column 9\)") as caught:
        hasher.encode(X, n_threads=n_threads)
    assert caught.value.__suppress_context__
    with pytest.raises(ValueError, match="at row 3000, column 9"):
        hasher.project(X)


def test_nan_is_named_before_what_is_too_far(fly):
    X = MANY.copy()
    X[10, 3] = 1e30
    with pytest.raises(ValueError, match="expected vectors on the scale of the training data"):
        fly.encode(X)
    X[4000, 5] = np.nan
    with pytest.raises(ValueError, match="nan at row 4000, column 5"):
        fly.encode(X)


def test_too_far_is_refused_without_a_warning(fly):
    for X in (np.full((20, 24), 3e38, np.float32), np.full((20, 24), 1e300)):
        with pytest.raises(ValueError, match="1e\\+15 times as large"):
            fly.encode(X)


@every_hasher
@pytest.mark.parametrize("exponent", [-95, 95])
def test_float32_of_any_scale(hasher, exponent):
    X = MANY[:600] - 3.0
    scaled = np.ldexp(X, exponent)  # exact
    assert clone(hasher).fit(scaled).encode(scaled) == clone(hasher).fit(X).encode(X)


@pytest.mark.parametrize(
    "awkward",
    [
        np.asfortranarray,
        lambda X: np.repeat(X, 2, axis=1)[:, ::2],
        lambda X: X.astype(">f4"),
        lambda X: np.frombuffer(b"x" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(X.shape),
        lambda X: np.broadcast_to(X, (1, *X.shape))[0],
    ],
    ids=["fortran", "strided", "big-endian", "unaligned", "read-only"],
)
def test_any_layout_gives_the_same_codes(fly, awkward):
    assert fly.encode(awkward(MANY[:1000])) == fly.encode(MANY[:1000])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 7), (20, 33)])
def test_centring_is_what_numpy_computes(dtype, shape):
    rng = np.random.default_rng(0)
    X, mean = rng.normal(5, 2, shape).astype(dtype), rng.normal(5, 1, shape[1]).astype(dtype)
    out = np.empty(shape, np.float32)
    largest = _native.centre(X, mean, 0.3, out)
    expected = ((X - mean) * dtype(0.3)).astype(np.float32)
    np.testing.assert_array_equal(out, expected)
    assert largest == np.abs(expected).max(initial=0)
    if X.size:
        X[-1, -1] = np.nan
        assert np.isnan(_native.centre(X, mean, 0.3, out))


def test_the_bindings_refuse_vectors_of_other_shapes():
    X, mean = np.zeros((4, 3), np.float32), np.zeros(3, np.float32)
    for out, other in ((np.zeros((4, 2), np.float32), mean), (X.copy(), mean[:2]), (X[:3].copy(), mean)):
        with pytest.raises(ValueError, match="shapes"):
            _native.centre(X, other, 1.0, out)


def test_memory_is_for_a_tile_per_thread(fly):
    X = np.repeat(MANY, 40, axis=0)
    tracemalloc.start()
    codes = fly.encode(X, n_threads=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    tile = 4 * _linalg.TILE * (64 + 24)
    assert peak - codes.active.nbytes < 2 * tile + 500_000


ENCODER = """
import signal, sys
import numpy as np
import posh

signal.signal(signal.SIGINT, signal.default_int_handler)  # processes in the background are started deaf to it
X = np.random.default_rng(0).normal(size=(300, 24)).astype("float32")
fly = posh.FruitFly(64, 6, random_state=0).fit(X)
print("ready", flush=True)
fly.encode(np.broadcast_to(X[:1], (500_000_000, 24)), n_threads=int(sys.argv[1]))  # minutes of work
"""


@pytest.mark.parametrize("n_threads", [1, 2])
def test_ctrl_c_stops_encoding(n_threads):
    command = [sys.executable, "-c", ENCODER, str(n_threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors


def test_an_error_in_one_thread_ends_the_others(fly, monkeypatch):
    tiles = []

    def winners(scores, n_active, out):
        tiles.append(len(scores))
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError
        time.sleep(0.005)  # so that all of them would take ten seconds: the other thread may begin late

    monkeypatch.setattr(kernels, "winners", winners)
    with pytest.raises(MemoryError):
        fly.encode(np.broadcast_to(MANY[:1], (1_000_000, 24)), n_threads=2)
    assert len(tiles) < 1954
