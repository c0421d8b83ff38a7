"""What a search in blocks costs besides its results: memory of batches, and time until Ctrl-C is heard."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import interrupted_after
from tests.index.blocks.cases import KERNELS, native_blocks, native_search, random_case
from tests.index.blocks.test_search import GENEROUS

ADD_IN_BATCHES = """
import numpy as np
from posh import _native, kernels
from tests.index.blocks.cases import random_case

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

n_first, n_batches, size = 40_000, 200, 40
rng = np.random.default_rng(0)
case = random_case(rng, "dot", n=n_first + n_batches * size, d=128, n_lists=400, n_bits=256)
slots = np.arange(len(case.vectors), dtype=np.uint32)

def added(blocks, part):
    documents = case.vectors[part], case.lists[part], slots[part]
    return blocks.with_documents(*documents, 1, kernels.available()[-1])

blocks = added(_native.Blocks(case.native_space()), slice(n_first))
before = resident()
for start in range(n_first, len(slots), size):
    blocks = added(blocks, slice(start, start + size))
print((resident() - before) / blocks.nbytes)
"""


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="needs /proc to see how much memory is in use"
)
def test_small_batches_do_not_keep_the_memory_of_replaced_blocks():
    """Every block is replaced, which takes its size once. If a batch shared memory, it would be 6 times."""
    run = subprocess.run([sys.executable, "-c", ADD_IN_BATCHES], check=True, capture_output=True, text=True)
    assert float(run.stdout) < 2


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("by_list", [True, False])
def test_a_long_search_can_be_interrupted(n_threads, by_list):
    case = random_case(np.random.default_rng(0), "dot", n=5000, d=64, n_lists=10, n_queries=2000)
    blocks = native_blocks(case, KERNELS[-1])
    case = replace(case, queries=np.tile(case.queries, (50, 1)))
    chosen = replace(GENEROUS, n_probe=10, by_list=by_list)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted_after(0.3):
        native_search(blocks, case, chosen, 10, KERNELS[-1], n_threads, case.vectors)
    assert time.monotonic() - start < 20
