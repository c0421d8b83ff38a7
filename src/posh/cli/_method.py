"""Which method to fit and with which parameters: the options that ``posh fit`` and ``posh bench`` share."""

from __future__ import annotations

import argparse
import ast
from typing import Any

import posh
from posh.cli._command import Parser, UsageError, counted
from posh.hashers import HASHERS, make_hasher

__all__ = ["add_method", "described", "hasher_from"]

_OPTIONS = {"n_bits": "--bits", "n_active": "--active", "random_state": "--seed"}


def add_method(parser: Parser) -> None:
    """Declare the options that :func:`hasher_from` reads."""
    methods = f"one of {', '.join(HASHERS)}; default: POSH"
    parser.add_argument("--method", type=_method, default="POSH", metavar="NAME", help=methods)
    parser.add_argument("--bits", type=counted, metavar="N", help="length of a code; default: the method's")
    parser.add_argument("--active", type=counted, metavar="N", help="set bits per code, for sparse methods")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random; default: 0")
    parser.add_argument(
        "--set",
        type=_assignment,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="any other parameter of the method; may be repeated",
    )


def hasher_from(args: argparse.Namespace) -> posh.Hasher[Any]:
    """Return the unfitted hasher that the options describe."""
    known = HASHERS[args.method]().get_params()
    if args.active is not None and "n_active" not in known:
        sparse = ", ".join(name for name, value in HASHERS.items() if issubclass(value, posh.SparseHasher))
        raise UsageError(f"--active is for sparse codes ({sparse}), got --method {args.method}: leave it out")
    params = {"n_bits": args.bits, "n_active": args.active, "random_state": args.seed}
    params = {key: value for key, value in params.items() if value is not None}
    for key, value in args.settings:
        params[_checked_key(key, args.method, known)] = value
    return make_hasher(args.method, params)


def described(hasher: posh.Hasher[Any]) -> str:
    """Return the method and the shape of its codes.

    >>> described(posh.POSH(n_bits=256, n_active=16))
    'POSH 16 of 256 bits'
    """
    active = f"{hasher.n_active} of " if isinstance(hasher, posh.SparseHasher) else ""
    return f"{type(hasher).__name__} {active}{hasher.n_bits} bits"


def _checked_key(key: str, method: str, known: dict[str, Any]) -> str:
    if key in _OPTIONS:
        raise UsageError(f"{key} has its own option: use {_OPTIONS[key]} instead of --set {key}=…")
    if key not in known:
        valid = ", ".join(sorted(known.keys() - _OPTIONS)) or "none, it has no other parameter"
        raise UsageError(f"unknown parameter {key!r} in --set; {method} takes: {valid}")
    return key


def _method(text: str) -> str:
    names = {name.lower(): name for name in HASHERS}
    if text.lower() not in names:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(HASHERS)}, got {text!r}")
    return names[text.lower()]


def _assignment(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not (key and sign):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):  # a word such as orthogonal
        return key, value
