"""``posh bench search``, ``posh bench encode`` and ``posh bench fit``: how fast this machine is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

import posh
from posh import bench, datasets
from posh._runtime import load_plugins, suggest_plugins
from posh.cli._command import Parser, Report, UsageError, add_command, add_verbs, counted
from posh.cli._method import add_method, described, hasher_from
from posh.datasets import Dataset

if TYPE_CHECKING:
    from posh.cli._command import Commands

__all__ = ["add"]

_TRAIN, _ROWS, _QUERIES = 5000, 40_000, 1000  # vectors to learn from, to encode, to search for
_GROUP = "posh.bench"  # entry points of this group add commands below 'posh bench'
_NO_FAISS = "faiss is not installed: 'pip install faiss-cpu' to compare with it"


def add(parser: Parser) -> None:
    """Declare the three commands, and those that other distributions add."""
    verbs = add_verbs(parser, "posh bench search --bits 256 --active 16")
    search = _add(verbs, "search", "exact search over codes, beside faiss.IndexBinaryFlat", _search)
    search.add_argument("-k", type=counted, default=10, help="results per query; default: 10")
    _add(verbs, "encode", "encoding, beside the bare matrix product", _encode)
    _add(verbs, "fit", "learning a hasher", _fit, rounds=3)
    parser.epilog = f"{parser.epilog}{suggest_plugins(_GROUP)}"
    for name, command in load_plugins(_GROUP).items():
        import_module(command.module).add(
            verbs.add_parser(name, help=command.summary, description=command.summary)
        )


def _add(
    verbs: Commands, name: str, what: str, run: Callable[[argparse.Namespace], Report], rounds: int = 5
) -> Parser:
    example = f"posh bench {name} --data digits --bits 256 --active 16"
    parser = add_command(verbs, name, f"measure {what}", example, run)
    parser.add_argument("--data", default="digits", metavar="NAME", help="a data set; default: digits")
    add_method(parser)
    parser.add_argument(
        "--rounds", type=counted, default=rounds, metavar="N", help=f"the best of so many; default: {rounds}"
    )
    return parser


def _search(args: argparse.Namespace) -> Report:
    data, hasher = datasets.load(args.data), hasher_from(args)
    if args.k > len(data.base):
        raise UsageError(f"expected -k of at most {len(data.base)}, the number of documents, got {args.k}")
    hasher.fit(data.base[:_TRAIN])
    result = bench.measure_search(hasher, data.base, data.queries[:_QUERIES], args.k, args.rounds)
    lines = [f"search, k = {args.k}, {result['n_documents']:,} documents, one thread:"]
    for way, title in (("batch", "batch of {:,}"), ("single", "one by one")):
        lines.append(_search_line(title.format(result[way]["n_queries"]), result[way]))
    lines.append(f"  {'with encoding':<16} {result['with_encoding_per_second']:>11,.0f} queries per second")
    if result["faiss"] is None:
        lines.append(_NO_FAISS)
    else:
        same = "the same" if result["same_distances"] else "OTHER"
        lines.append(f"rival: faiss.IndexBinaryFlat {result['faiss']}, which finds {same} distances")
    return _report(args, data, hasher, result, lines)


def _search_line(title: str, rates: dict[str, Any]) -> str:
    line = f"  {title:<16} {rates['posh_per_second']:>11,.0f} queries per second"
    if rates["ratio"] is None:
        return line
    return f"{line}, faiss {rates['faiss_per_second']:,.0f}, ratio {rates['ratio']:.1f}"


def _encode(args: argparse.Namespace) -> Report:
    data, hasher = datasets.load(args.data), hasher_from(args)
    hasher.fit(data.base[:_TRAIN])
    X = np.resize(data.base, (_ROWS, data.base.shape[1]))  # repeated, so that starting threads hardly counts
    result = bench.measure_encode(hasher, X, args.rounds)
    lines = [
        f"encode, {_ROWS:,} vectors (the base, repeated or cut), one thread:",
        f"  {'encode':<16} {result['encode_per_second']:>11,.0f} vectors per second",
        f"  {'bare product':<16} {result['product_per_second']:>11,.0f} vectors per second, "
        f"ratio {result['fraction_of_product']:.2f}",
        f"  {result['threads']} threads are {result['speedup']:.2f} times as fast",
    ]
    return _report(args, data, hasher, result, lines)


def _fit(args: argparse.Namespace) -> Report:
    data, hasher = datasets.load(args.data), hasher_from(args)
    result = bench.measure_fit(hasher, data.base[:_TRAIN], args.rounds)
    lines = [f"fit, {result['n_vectors']:,} vectors: {result['seconds']:.3f} s"]
    return _report(args, data, hasher, result, lines)


def _report(
    args: argparse.Namespace,
    data: Dataset,
    hasher: posh.Hasher[Any],
    result: dict[str, Any],
    lines: list[str],
) -> Report:
    where = bench.environment()
    values = {
        "bench": args.verb,
        "data": data.name,
        "n_features": data.base.shape[1],
        "method": type(hasher).__name__,
        "params": hasher.get_params(),
        "rounds": args.rounds,
        "environment": where,
        **result,
    }
    title = f"{data.name}, {data.base.shape[1]} features, {described(hasher)}, best of {args.rounds}"
    machine = ", ".join(f"{key} {value}" for key, value in where.items())
    return Report(values, "\n".join([title, *lines, machine]))
