"""What a fit costs is known before it begins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import posh
from posh.hashers import HASHERS
from tests.hashers import cases

# In a process of its own, whose allocator gives back what is freed: else the next fit would find it again.
MEASURE = """
import gc, json, sys, warnings
import numpy as np, posh
warnings.simplefilter("ignore")

def now(key):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

sizes = json.loads(sys.argv[1])
for name, params, _, _ in sizes:  # loads what they import
    small = {"n_bits": 16} | ({"n_active": 2} if issubclass(getattr(posh, name), posh.SparseHasher) else {})
    getattr(posh, name)(**small).fit(np.random.default_rng(0).normal(size=(200, 20)))
for name, params, n, d in sizes:
    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    hasher = getattr(posh, name)(random_state=0, **params)
    gc.collect()
    open("/proc/self/clear_refs", "w").write("5")
    before = now("VmRSS")
    hasher.fit(X)
    print(json.dumps(now("VmHWM") - before))
"""
SIZES = [
    ("POSH", {"n_bits": 4096, "n_epochs": 1, "lag": 1.0}, 500, 128),
    ("POSH", {"n_bits": 1024, "n_epochs": 1, "lag": 1.0, "batch_size": 8000}, 8000, 64),
    ("SphericalHash", {"n_bits": 4096, "n_epochs": 1}, 4000, 128),
    ("PowerHash", {"n_bits": 2048, "n_epochs": 1}, 2000, 128),
    ("PowerHash", {"n_bits": 1024, "n_epochs": 1, "power": 1.0, "n_winners": 64, "unit": False}, 8000, 64),
    ("BioHash", {"n_bits": 2048, "n_epochs": 1, "delta": 0.1, "rank": 2048, "batch_size": 4000}, 4000, 32),
    ("BOSL", {"n_bits": 256, "n_steps": 7}, 3000, 64),
    ("BOSL", {"n_bits": 1000, "n_steps": 1}, 100, 32),
    ("OSL", {"n_bits": 512, "n_epochs": 2}, 3000, 64),
    ("FruitFly", {"n_bits": 8192}, 1000, 512),
    ("FruitFly", {"n_bits": 4096, "weights": "orthogonal"}, 1000, 256),
    ("LSH", {"n_bits": 8192}, 1000, 512),
    ("LSH", {"n_bits": 64}, 2000, 512),
    ("ITQ", {"n_bits": 512, "n_epochs": 1}, 8000, 64),
    ("KNNH", {"n_bits": 512, "n_epochs": 1}, 6000, 64),
]
SIZES += [(name, {"n_bits": 8192}, 1000, 512) for name in HASHERS if name not in {size[0] for size in SIZES}]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is Linux's to tell")
def test_memory_is_estimated_within_a_factor_of_three():
    eager = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, json.dumps(SIZES)],
        env=os.environ | eager | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    measured = list(map(int, done.stdout.split()))
    for (name, params, n, d), peak in zip(SIZES, measured, strict=True):
        estimated = getattr(posh, name)(**params).estimate_fit(n, d).bytes
        assert 1 / 3 < estimated / peak < 3, (name, params, estimated, peak)


@pytest.mark.parametrize("hasher", cases.ALL, ids=cases.name)
def test_more_costs_more(hasher):
    small = hasher.estimate_fit(1000, 20)
    assert small.bytes > 0
    assert small.operations > 0
    for more in (hasher.estimate_fit(2000, 20), hasher.estimate_fit(1000, 40)):
        assert more.bytes >= small.bytes
        assert more.operations > small.operations
    if "n_epochs" in hasher.get_params():
        longer = type(hasher)(**hasher.get_params() | {"n_epochs": 10**12})
        assert longer.estimate_fit(1000, 20).operations > 10**15


def test_estimates_refuse_what_fit_refuses():
    with pytest.raises(ValueError, match="expected n_active between 1 and 8"):
        posh.POSH(8, 9).estimate_fit(100, 10)
    with pytest.raises(TypeError, match="expected n to be an integer"):
        posh.POSH().estimate_fit(1.5, 10)
