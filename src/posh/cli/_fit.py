"""``posh fit``: learn a hasher from vectors and save it."""

from __future__ import annotations

import argparse
import ast
import inspect
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import posh
from posh.cli._command import Report, UsageError, add_command, add_source, counted, output_path, read_source

if TYPE_CHECKING:
    from posh.cli._command import Commands

__all__ = ["METHODS", "add"]

METHODS: dict[str, type[posh.Hasher[Any]]] = {
    name: value
    for name, value in ((name, getattr(posh, name)) for name in posh.__all__)
    if isinstance(value, type) and issubclass(value, posh.Hasher) and not inspect.isabstract(value)
}
_OPTIONS = {"n_bits": "--bits", "n_active": "--active", "random_state": "--seed"}


def add(commands: Commands) -> None:
    """Declare the command."""
    example = "posh fit digits -o digits.safetensors --bits 256 --active 16 --set n_epochs=20"
    parser = add_command(commands, "fit", "learn a hasher from vectors and save it", example, _fit)
    add_source(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL", help="the file to write")
    methods = f"one of {', '.join(METHODS)}; default: POSH"
    parser.add_argument("--method", type=_method, default="POSH", metavar="NAME", help=methods)
    parser.add_argument("--bits", type=counted, metavar="N", help="length of a code; default: the method's")
    parser.add_argument("--active", type=counted, metavar="N", help="set bits per code, for sparse methods")
    parser.add_argument("--seed", type=int, default=0, help="of the sample and the method; default: 0")
    parser.add_argument("--train", type=counted, metavar="N", help="learn from so many vectors; default: all")
    parser.add_argument(
        "--set",
        type=_assignment,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="any other parameter of the method; may be repeated",
    )


def _fit(args: argparse.Namespace) -> Report:
    hasher = _hasher(args)
    output = output_path(args.output)
    vectors = _sample(read_source(args), args.train, args.seed)
    start = time.perf_counter()
    hasher.fit(vectors)
    seconds = time.perf_counter() - start
    hasher.save(output)
    return _report(hasher, vectors.shape, seconds, output)


def _hasher(args: argparse.Namespace) -> posh.Hasher[Any]:
    method = METHODS[args.method]
    known = method().get_params()
    if args.active is not None and "n_active" not in known:
        sparse = ", ".join(name for name, value in METHODS.items() if issubclass(value, posh.SparseHasher))
        raise UsageError(f"--active is for sparse codes ({sparse}), got --method {args.method}: leave it out")
    params = {"n_bits": args.bits, "n_active": args.active, "random_state": args.seed}
    params = {key: value for key, value in params.items() if value is not None}
    for key, value in args.settings:
        params[_checked_key(key, args.method, known)] = value
    return method(**params)


def _checked_key(key: str, method: str, known: dict[str, Any]) -> str:
    if key in _OPTIONS:
        raise UsageError(f"{key} has its own option: use {_OPTIONS[key]} instead of --set {key}=…")
    if key not in known:
        valid = ", ".join(sorted(known.keys() - _OPTIONS)) or "none, it has no other parameter"
        raise UsageError(f"unknown parameter {key!r} in --set; {method} takes: {valid}")
    return key


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


def _method(text: str) -> str:
    names = {name.lower(): name for name in METHODS}
    if text.lower() not in names:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(METHODS)}, got {text!r}")
    return names[text.lower()]


def _assignment(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not (key and sign):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):  # a word such as orthogonal
        return key, value
