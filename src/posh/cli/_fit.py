"""``posh fit``, and the options of a hasher, which ``posh batch fit`` and ``posh bench`` share."""

from __future__ import annotations

import argparse
import ast
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posh.cli._command import (
    Parser,
    Report,
    UsageError,
    add_output,
    add_source,
    declare,
    parse_count,
    read_source,
    require_output,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from posh import Hasher

__all__ = ["METHODS", "add_fit", "add_method", "create_hasher", "describe_hasher"]

# The names of posh.hashers.HASHERS, which takes a second to import; a test compares the two.
METHODS = (
    "BOSL",
    "ITQ",
    "KNNH",
    "LSH",
    "OSL",
    "POSH",
    "BioHash",
    "FruitFly",
    "Hadamard",
    "PowerHash",
    "SphericalHash",
)
_OPTIONS = {"n_bits": "--n-bits", "n_active": "--n-active", "random_state": "--random-state"}


def add_fit(parser: Parser) -> None:
    """Declare ``posh fit``."""
    example = "posh fit digits -o digits.safetensors --n-bits 256 --n-active 16 --set n_epochs=20"
    declare(parser, example, _fit)
    add_source(parser)
    add_output(parser, "MODEL", "model file to write")
    add_method(parser)
    parser.add_argument(
        "--n-sample", type=parse_count, metavar="N", help="fit to N random vectors; default: all"
    )


def _fit(args: argparse.Namespace) -> Report:
    hasher = create_hasher(args)
    require_output(args.output)
    vectors = _draw_sample(read_source(args.data, args.key), args.n_sample, args.random_state)
    start = time.perf_counter()
    hasher.fit(vectors)
    seconds = time.perf_counter() - start
    hasher.save(args.output)
    return _report(hasher, vectors.shape, seconds, args.output)


def _draw_sample(vectors: npt.NDArray[np.float32], n: int | None, seed: int) -> npt.NDArray[np.float32]:
    import numpy as np

    if n is None:
        return vectors
    if n > len(vectors):
        raise UsageError(f"expected --n-sample of at most {len(vectors)}, the number of vectors, got {n}")
    return vectors[np.sort(np.random.default_rng(seed).choice(len(vectors), n, replace=False))]


def _report(hasher: Hasher[Any], shape: tuple[int, ...], seconds: float, output: Path) -> Report:
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
    lines = [f"{type(hasher).__name__} fitted to {shape[0]:,} x {shape[1]} vectors in {seconds:.2f} s"]
    if objective:
        lines.append(f"objective: {objective[0]:.4g} to {objective[-1]:.4g} in {len(objective)} epochs")
    lines.append(f"saved: {output}")
    return Report(values, "\n".join(lines))


# Hashers -----------------------------------------------------------------------------------------------


def add_method(parser: Parser) -> None:
    """Declare the options that :func:`create_hasher` reads."""
    methods = f"one of {', '.join(METHODS)}; default: POSH"
    parser.add_argument("--method", type=_parse_method, default="POSH", metavar="NAME", help=methods)
    parser.add_argument(
        "--n-bits", type=parse_count, metavar="N", help="length of a code; default: that of the method"
    )
    parser.add_argument("--n-active", type=parse_count, metavar="N", help="set bits per sparse code")
    parser.add_argument(
        "--random-state", type=int, default=0, metavar="SEED", help="seed of random numbers; default: 0"
    )
    parser.add_argument(
        "--set",
        type=_parse_assignment,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="another parameter of the method; may be repeated",
    )


def create_hasher(args: argparse.Namespace) -> Hasher[Any]:
    """Create the unfitted hasher that the options describe."""
    import posh
    from posh.hashers import HASHERS, make_hasher

    known = HASHERS[args.method]().get_params()
    if args.n_active is not None and "n_active" not in known:
        sparse = ", ".join(name for name, value in HASHERS.items() if issubclass(value, posh.SparseHasher))
        raise UsageError(
            f"--n-active is for sparse codes ({sparse}), got --method {args.method}: leave it out"
        )
    params = {name: getattr(args, name) for name in _OPTIONS if getattr(args, name) is not None}
    for key, value in args.settings:
        _require_setting(key, args.method, known)
        params[key] = value
    return make_hasher(args.method, params)


def describe_hasher(hasher: Hasher[Any]) -> str:
    """Return the method and the shape of its codes.

    >>> import posh
    >>> describe_hasher(posh.POSH(n_bits=256, n_active=16))
    'POSH 16 of 256 bits'
    """
    active = f"{hasher.n_active} of " if hasattr(hasher, "n_active") else ""
    return f"{type(hasher).__name__} {active}{hasher.n_bits} bits"


def _require_setting(key: str, method: str, known: dict[str, Any]) -> None:
    if key in _OPTIONS:
        raise UsageError(f"{key} has its own option: use {_OPTIONS[key]} instead of --set {key}=…")
    if key not in known:
        valid = ", ".join(sorted(known.keys() - _OPTIONS)) or "none, it has no other parameter"
        raise UsageError(f"unknown parameter {key!r} in --set; {method} takes: {valid}")


def _parse_method(text: str) -> str:
    names = {name.lower(): name for name in METHODS}
    if text.lower() not in names:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(METHODS)}, got {text!r}")
    return names[text.lower()]


def _parse_assignment(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not (key and sign):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):  # a word such as orthogonal
        return key, value
