"""``posh data list`` and ``posh data fetch``."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import Any

from posh.cli._command import Parser, Report, add_command, add_verbs, note

__all__ = ["add_data"]


def add_data(parser: Parser) -> None:
    """Declare ``posh data``."""
    verbs = add_verbs(parser, "posh data list")
    add_command(verbs, "list", "list all data sets: shape and origin", "posh data list --json", _list)
    fetch = add_command(
        verbs, "fetch", "download data sets to the data folder (POSH_DATA)", "posh data fetch mnist", _fetch
    )
    fetch.add_argument("names", metavar="NAME", nargs="+", help="a data set of 'posh data list'")


def _list(args: argparse.Namespace) -> Report:
    from posh import datasets

    catalogue = datasets.catalogue()
    lines = [f"{'name':<18} {'base':>9} {'queries':>8} {'features':>8}  {'cached':<6}  origin"]
    lines += [
        f"{info.name:<18} {_format_count(info.n_base):>9} {_format_count(info.n_queries):>8} "
        f"{info.n_features:>8}  {'yes' if info.cached else 'no':<6}  {info.description}"
        for info in catalogue
    ]
    folder = str(datasets.data_dir())
    return Report({"folder": folder, "data": [asdict(info) for info in catalogue]}, "\n".join(lines))


def _format_count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _fetch(args: argparse.Namespace) -> Report:
    from posh import datasets

    # Unknown names raise an error before any download.
    is_cached = {name: datasets.is_cached(name) for name in args.names}
    rows: list[dict[str, Any]] = []
    for name, was_cached in is_cached.items():
        if not was_cached:
            note(f"fetching {name} …")
        start = time.perf_counter()
        datasets.fetch(name)
        rows.append({"name": name, "was_cached": was_cached, "seconds": time.perf_counter() - start})
    lines = [f"{row['name']}: {_describe_fetch(row['was_cached'], row['seconds'])}" for row in rows]
    return Report({"folder": str(datasets.data_dir()), "fetched": rows}, "\n".join(lines))


def _describe_fetch(was_cached: bool, seconds: float) -> str:
    return "already present" if was_cached else f"fetched in {seconds:.1f} s"
