"""``posh reproduce list``, ``run`` and ``report``: run the experiments of the paper and report on them.

The experiments are imported inside functions, so that ``--help`` is quick.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from posh._runtime import track_progress
from posh.cli._command import Parser, Report, UsageError, add_command, add_verbs, note, parse_count
from posh.errors import PoshError

if TYPE_CHECKING:
    from posh.cli._command import Commands
    from posh_reproduction.experiments import Outcome, Unit

__all__ = ["add_reproduce"]

_FULL, _QUICK, _DOCS = Path("results/reproduction"), Path("reproduction-quick"), Path("docs")


def add_reproduce(parser: Parser) -> None:
    """Declare the three commands of ``posh reproduce``."""
    verbs = add_verbs(parser, "posh reproduce run table-2 --quick")
    add_command(verbs, "list", "list the experiments", "posh reproduce list", _list)
    _add_run(verbs)
    _add_report(verbs)


def _add_run(verbs: Commands) -> None:
    summary = "run experiments, except those that are already recorded"
    parser = add_command(verbs, "run", summary, "posh reproduce run --all --quick --jobs 2", _run)
    parser.add_argument("names", metavar="NAME", nargs="*", help="an experiment of 'posh reproduce list'")
    parser.add_argument("--all", action="store_true", help="run every experiment")
    parser.add_argument("--quick", action="store_true", help="run laptop-sized versions")
    parser.add_argument(
        "--jobs", type=parse_count, default=1, metavar="N", help="processes of one thread each; default: 1"
    )
    _add_results(parser)
    parser.add_argument(
        "--recompute",
        action="store_true",
        help="repeat measurements that were recorded with other parameters or data",
    )


def _add_report(verbs: Commands) -> None:
    summary = "write tables and figures of the recorded results next to those of the paper"
    parser = add_command(verbs, "report", summary, "posh reproduce report --quick", _report)
    parser.add_argument("--quick", action="store_true", help="report on the laptop-sized versions")
    _add_results(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help=f"where reproduction.md, .html and figures go; default: {_DOCS}, or {_QUICK} with --quick",
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    default = f"{_FULL}, or {_QUICK} with --quick"
    parser.add_argument(
        "--results", type=Path, metavar="FOLDER", help=f"where raw results are; default: {default}"
    )


def _report(args: argparse.Namespace) -> Report:
    from posh_reproduction.report import write

    results, output = (path or _QUICK for path in (args.results, args.output))
    if not args.quick:
        results, output = args.results or _FULL, args.output or _DOCS
    written = [str(path) for path in write(results, output, quick=args.quick)]
    return Report({"written": written}, "\n".join(written))


def _list(args: argparse.Namespace) -> Report:
    from posh_reproduction.experiments import SPECS, cost_minutes

    values, lines = {}, []
    for spec in SPECS.values():
        minutes = {name: cost_minutes(spec.units(quick=name == "quick")) for name in ("full", "quick")}
        values[spec.name] = {
            "title": spec.title,
            "claim": spec.claim,
            "protocol": spec.protocol,
            "units": {"full": len(spec.full), "quick": len(spec.quick)},
            "core_minutes": minutes,
        }
        full, quick = (_duration(minutes[name]) for name in ("full", "quick"))
        cost = f"{len(spec.full)} units, about {full}; quick: {quick}"
        lines.append(f"{spec.name:<20} {spec.title}\n{'':<20} {cost}")
    lines.append("Times are of one core. Experiments share units: each is done once.")
    return Report(values, "\n".join(lines))


def _run(args: argparse.Namespace) -> Report:
    from posh_reproduction.experiments import SPECS, cost_minutes, key, remaining, run

    units = [unit for name in _chosen(args) for unit in SPECS[name].units(quick=args.quick)]
    if args.all:
        units = _possible(units)
    folder = args.results or (_QUICK if args.quick else _FULL)
    todo = remaining(units, folder, recompute=args.recompute)
    note(
        f"{len(todo)} units to do, about {_duration(cost_minutes(todo))} of one core; results go to {folder}"
    )
    done, failed = 0, []
    for outcome in track_progress(
        run(todo, folder, jobs=args.jobs, recompute=args.recompute), "units", "unit", len(todo)
    ):
        done += 1
        if not sys.stderr.isatty() or outcome.error:
            note(f"{done}/{len(todo)} {_line(outcome)}")
        if outcome.error:
            failed.append(outcome)
    if failed:
        raise PoshError(f"{len(failed)} of {len(todo)} units failed, the first: {key(failed[0].unit)}")
    command = " ".join(["posh reproduce report", *_repeated(args)])
    values = {"done": done, "results": str(folder)}
    return Report(values, f"{done} units done; raw results are in {folder}. Tables and figures: {command}")


def _repeated(args: argparse.Namespace) -> list[str]:
    """The options of a run that the command for its report needs too."""
    return ["--quick"] * args.quick + (["--results", str(args.results)] if args.results else [])


def _possible(units: list[Unit]) -> list[Unit]:
    """The units whose data is here or can be fetched: only their authors can give some of the files."""
    from posh_reproduction.experiments import missing_files

    missing = missing_files(units)
    if missing:
        note(
            f"left out, because they need their authors' files (see 'posh data fetch'): {', '.join(missing)}"
        )
    return [unit for unit in units if unit.get("data") not in missing]


def _chosen(args: argparse.Namespace) -> list[str]:
    from posh_reproduction.experiments import SPECS

    if args.all == bool(args.names):
        raise UsageError(f"expected names of experiments ({', '.join(SPECS)}), or --all")
    for name in args.names:
        if name not in SPECS:
            raise UsageError(f"unknown experiment {name!r}; choose from {', '.join(SPECS)}")
    return args.names or list(SPECS)


def _line(outcome: Outcome) -> str:
    from posh_reproduction.experiments import KINDS, key

    if outcome.record is None:
        return f"{key(outcome.unit)} FAILED\n{outcome.error}"
    return KINDS[outcome.unit["kind"]].headline(outcome.record)


def _duration(minutes: float) -> str:
    return f"{minutes / 60:.1f} h" if minutes >= 90 else f"{minutes:.0f} min"
