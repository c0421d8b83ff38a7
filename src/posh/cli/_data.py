"""``posh data list`` and ``posh data fetch``."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import Any

from posh import datasets
from posh.cli._command import Parser, Report, add_command, add_verbs, note

__all__ = ["add"]


def add(parser: Parser) -> None:
    """Declare both commands."""
    verbs = add_verbs(parser, "posh data list")
    add_command(verbs, "list", "show every data set: shape and origin", "posh data list --json", _list)
    fetch = add_command(
        verbs, "fetch", "put data sets into the data folder (POSH_DATA)", "posh data fetch mnist", _fetch
    )
    fetch.add_argument("names", metavar="NAME", nargs="+", help="one that 'posh data list' shows")


def _list(args: argparse.Namespace) -> Report:
    catalogue = datasets.catalogue()
    lines = [f"{'name':<18} {'base':>9} {'queries':>8} {'features':>8}  {'cached':<6}  origin"]
    lines += [
        f"{info.name:<18} {_number(info.n_base):>9} {_number(info.n_queries):>8} {info.n_features:>8}"
        f"  {'yes' if info.cached else 'no':<6}  {info.description}"
        for info in catalogue
    ]
    folder = str(datasets.data_dir())
    return Report({"folder": folder, "data": [asdict(info) for info in catalogue]}, "\n".join(lines))


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _fetch(args: argparse.Namespace) -> Report:
    ready = {
        name: datasets.is_cached(name) for name in args.names
    }  # refuses a wrong name before any download
    fetched: list[dict[str, Any]] = []
    for name, was_cached in ready.items():
        if not was_cached:
            note(f"fetching {name} …")
        start = time.perf_counter()
        datasets.fetch(name)
        fetched.append({"name": name, "was_cached": was_cached, "seconds": time.perf_counter() - start})
    lines = [f"{row['name']}: {_outcome(row['was_cached'], row['seconds'])}" for row in fetched]
    return Report({"folder": str(datasets.data_dir()), "fetched": fetched}, "\n".join(lines))


def _outcome(was_cached: bool, seconds: float) -> str:
    return "was here already" if was_cached else f"fetched in {seconds:.1f} s"
