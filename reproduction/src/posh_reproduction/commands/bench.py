"""``posh bench search``, ``encode``, ``fit``, ``ann`` and ``filters``: measure the speed of this machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from posh.cli._command import Parser, Report, UsageError, add_command, add_verbs, parse_count
from posh.cli._fit import add_method, create_hasher, describe_hasher
from posh_reproduction.commands.bench_ann import add_ann
from posh_reproduction.commands.bench_filters import add_filters

if TYPE_CHECKING:
    from posh import Hasher
    from posh.cli._command import Commands
    from posh.datasets import Dataset

__all__ = ["add_bench"]

_TRAIN, _ROWS, _QUERIES = 5000, 40_000, 1000  # vectors to learn from, to encode, to search for
_NO_FAISS = "faiss is not installed: 'pip install faiss-cpu' to compare with it"


def add_bench(parser: Parser) -> None:
    """Declare the five commands of ``posh bench``."""
    verbs = add_verbs(parser, "posh bench search --n-bits 256 --n-active 16")
    summary = "measure exact search over codes, compared with faiss.IndexBinaryFlat"
    search = _add_benchmark(verbs, "search", summary, _search)
    search.add_argument("-k", type=parse_count, default=10, help="results per query; default: 10")
    _add_benchmark(verbs, "encode", "measure encoding, compared with the bare matrix product", _encode)
    _add_benchmark(verbs, "fit", "measure the fit of a hasher", _fit, rounds=3)
    add_ann(verbs)
    add_filters(verbs)


def _add_benchmark(
    verbs: Commands, name: str, summary: str, run: Callable[[argparse.Namespace], Report], rounds: int = 5
) -> Parser:
    example = f"posh bench {name} --data digits --n-bits 256 --n-active 16"
    parser = add_command(verbs, name, summary, example, run)
    parser.add_argument("--data", default="digits", metavar="NAME", help="a data set; default: digits")
    add_method(parser)
    parser.add_argument(
        "--rounds",
        type=parse_count,
        default=rounds,
        metavar="N",
        help=f"the fastest of N counts; default: {rounds}",
    )
    return parser


def _search(args: argparse.Namespace) -> Report:
    from posh import bench, datasets

    data, hasher = datasets.load(args.data), create_hasher(args)
    if args.k > len(data.base):
        raise UsageError(f"expected -k of at most {len(data.base)}, the number of documents, got {args.k}")
    hasher.fit(data.base[:_TRAIN])
    result = bench.measure_search(hasher, data.base, data.queries[:_QUERIES], args.k, args.rounds)
    lines = [f"search, k = {args.k}, {result['n_documents']:,} documents, one thread:"]
    for way, title in (("batch", "batch of {:,}"), ("single", "one by one")):
        lines.append(_format_rates(title.format(result[way]["n_queries"]), result[way]))
    lines.append(f"  {'with encoding':<16} {result['with_encoding_per_second']:>11,.0f} queries per second")
    if result["faiss"] is None:
        lines.append(_NO_FAISS)
    else:
        same = "the same" if result["same_distances"] else "OTHER"
        lines.append(f"rival: faiss.IndexBinaryFlat {result['faiss']}, which finds {same} distances")
    return _report(args, data, hasher, result, lines)


def _format_rates(title: str, rates: dict[str, Any]) -> str:
    line = f"  {title:<16} {rates['posh_per_second']:>11,.0f} queries per second"
    if rates["ratio"] is None:
        return line
    return f"{line}, faiss {rates['faiss_per_second']:,.0f}, ratio {rates['ratio']:.1f}"


def _encode(args: argparse.Namespace) -> Report:
    import numpy as np

    from posh import bench, datasets

    data, hasher = datasets.load(args.data), create_hasher(args)
    hasher.fit(data.base[:_TRAIN])
    X = np.resize(data.base, (_ROWS, data.base.shape[1]))  # repeated: starting threads hardly counts then
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
    from posh import bench, datasets

    data, hasher = datasets.load(args.data), create_hasher(args)
    result = bench.measure_fit(hasher, data.base[:_TRAIN], args.rounds)
    lines = [f"fit, {result['n_vectors']:,} vectors: {result['seconds']:.3f} s"]
    return _report(args, data, hasher, result, lines)


def _report(
    args: argparse.Namespace,
    data: Dataset,
    hasher: Hasher[Any],
    result: dict[str, Any],
    lines: list[str],
) -> Report:
    from posh import bench

    environment = bench.environment()
    values = {
        "bench": args.verb,
        "data": data.name,
        "n_features": data.base.shape[1],
        "method": type(hasher).__name__,
        "params": hasher.get_params(),
        "rounds": args.rounds,
        "environment": environment,
        **result,
    }
    title = f"{data.name}, {data.base.shape[1]} features, {describe_hasher(hasher)}, best of {args.rounds}"
    machine = ", ".join(f"{key} {value}" for key, value in environment.items())
    return Report(values, "\n".join([title, *lines, machine]))
