"""``posh encode``: turn vectors into codes."""

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
    add_model,
    add_source,
    declare,
    output_path,
    read_source,
    write_arrays,
)

__all__ = ["add"]

_SUFFIXES = (".npz", ".npy")


def add(parser: Parser) -> None:
    """Declare the arguments."""
    example = "posh encode digits.safetensors digits -o codes.npz"
    declare(parser, example, _encode)
    add_model(parser)
    add_source(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="CODES",
        help=".npz: arrays 'active' (numbers of the set bits, uint16) or 'bits' (eight to a byte, uint8), "
        "and 'n_bits'; .npy: the first alone",
    )
    parser.add_argument("--queries", action="store_true", help="of a data set, instead of its base")


def _encode(args: argparse.Namespace) -> Report:
    if args.output.suffix not in _SUFFIXES:
        raise UsageError(f"expected --output to end in {' or '.join(_SUFFIXES)}, got {args.output}")
    output = output_path(args.output)
    hasher = posh.Hasher.load(args.model)
    vectors = read_source(args, queries=args.queries)
    start = time.perf_counter()
    codes = hasher.encode(vectors)
    seconds = time.perf_counter() - start
    kind, array = ("active", codes.active) if isinstance(codes, posh.Codes) else ("bits", codes.bits)
    write_arrays(output, {kind: array, "n_bits": np.array(codes.n_bits)})
    return _report(type(hasher).__name__, kind, array, codes.n_bits, seconds, output)


def _report(
    method: str, kind: str, array: npt.NDArray[Any], n_bits: int, seconds: float, output: Path
) -> Report:
    values = {
        "method": method,
        "kind": kind,
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "n_bits": n_bits,
        "seconds": seconds,
        "vectors_per_second": len(array) / seconds,
        "output": str(output),
    }
    speed = f"{len(array):,} vectors in {seconds:.2f} s, {len(array) / seconds:,.0f} per second"
    text = f"{method}: {speed}\nsaved: {output}: {kind} {array.dtype} {array.shape}, n_bits {n_bits}"
    return Report(values, text)
