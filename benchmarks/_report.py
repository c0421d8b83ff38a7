"""What every benchmark prints about where it ran, and how it measures."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy
from threadpoolctl import threadpool_info

from posh import kernels


def environment() -> dict[str, str]:
    """Chip, threads, kernel and versions: a number without them means nothing."""
    blas = [f"{pool['internal_api']} {pool['version']} x{pool['num_threads']}" for pool in threadpool_info()]
    return {
        "chip": _chip(),
        "cores": str(len(os.sched_getaffinity(0))),
        "kernel": kernels.active(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "thread pools": ", ".join(sorted(set(blas))),
    }


def _chip() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
