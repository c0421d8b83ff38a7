"""``posh fit``: learn a hasher from vectors and save it."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import posh
from posh.cli._command import (
    Parser,
    Report,
    UsageError,
    add_source,
    counted,
    declare,
    output_path,
    read_source,
)
from posh.cli._method import add_method, hasher_from

__all__ = ["add"]


def add(parser: Parser) -> None:
    """Declare the arguments."""
    example = "posh fit digits -o digits.safetensors --bits 256 --active 16 --set n_epochs=20"
    declare(parser, example, _fit)
    add_source(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL", help="the file to write")
    add_method(parser)
    parser.add_argument("--train", type=counted, metavar="N", help="learn from so many vectors; default: all")


def _fit(args: argparse.Namespace) -> Report:
    hasher = hasher_from(args)
    output = output_path(args.output)
    vectors = _sample(read_source(args), args.train, args.seed)
    start = time.perf_counter()
    hasher.fit(vectors)
    seconds = time.perf_counter() - start
    hasher.save(output)
    return _report(hasher, vectors.shape, seconds, output)


def _sample(vectors: npt.NDArray[np.float32], n: int | None, seed: int) -> npt.NDArray[np.float32]:
    if n is None:
        return vectors
    if n > len(vectors):
        raise UsageError(f"expected --train of at most {len(vectors)}, the number of vectors, got {n}")
    return vectors[np.sort(np.random.default_rng(seed).choice(len(vectors), n, replace=False))]


def _report(hasher: posh.Hasher[Any], shape: tuple[int, ...], seconds: float, output: Path) -> Report:
    objective = [float(value) for value in hasher.objective_]
    values = {
        "method": type(hasher).__name__,
        "params": hasher.get_params(),
        "n_vectors": shape[0],
        "n_features": shape[1],
        "seconds": seconds,
        "objective_first": objective[0] if objective else None,
        "objective_last": objective[-1] if objective else None,
        "output": str(output),
    }
    lines = [f"{type(hasher).__name__} learned from {shape[0]:,} x {shape[1]} vectors in {seconds:.2f} s"]
    if objective:
        lines.append(f"objective: {objective[0]:.4g} to {objective[-1]:.4g} in {len(objective)} epochs")
    lines.append(f"saved: {output}")
    return Report(values, "\n".join(lines))
