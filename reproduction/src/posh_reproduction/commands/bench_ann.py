"""``posh bench ann``: compare recall and queries per second with other libraries."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posh.cli._command import Report, add_command, note, parse_count

if TYPE_CHECKING:
    from posh.cli._command import Commands

__all__ = ["add_ann"]

_RESULTS, _QUICK, _DOCS = Path("results/ann"), Path("ann-quick"), Path("docs")


def add_ann(verbs: Commands) -> None:
    """Declare ``posh bench ann``."""
    summary = "compare recall and queries per second with other libraries"
    example = "posh bench ann --data glove-100 --quick --contenders posh-ivf faiss-ivfpq"
    add = add_command(verbs, "ann", summary, example, _ann).add_argument
    add(
        "--data",
        nargs="+",
        default=["glove-100"],
        metavar="NAME",
        help="glove-100 (default), wordnet-minilm, wordnet-ood, mnist, cifar10-patches-1m, "
        "cifar10-patches-768, or any name of 'posh data list'",
    )
    add(
        "--contenders",
        nargs="+",
        metavar="NAME",
        help="libraries to compare; default: all but brute-force and pynndescent (the error for an unknown "
        "name lists all)",
    )
    add("--metric", choices=("cosine", "euclidean"), help="default: that of the data")
    add("--n-base", type=parse_count, metavar="N", help="only the first N vectors")
    add("--quick", action="store_true", help="20,000 vectors, two sizes of batches, one thread: minutes")
    add(
        "--rounds",
        type=parse_count,
        metavar="N",
        help="the fastest of N counts; default: 3, with --quick 2",
    )
    add("--batches", nargs="+", type=parse_count, metavar="N", help="batch sizes; default: 1 1000")
    add("--n-threads", nargs="+", type=parse_count, metavar="N", help="default: 1")
    add("--k", nargs="+", type=parse_count, metavar="K", help="results per query; default: 10 100")
    add("--choose-only", action="store_true", help="build, and choose parameters; report nothing yet")
    add(
        "--kernel",
        choices=("avx2", "avx512"),
        help="limit contenders to these instructions, and leave out those that cannot be limited",
    )
    add("--labels", action="store_true", help="measure label retrieval by codes and by vectors instead")
    add("--report", action="store_true", help="write the report without measurements")
    add(
        "--recompute",
        action="store_true",
        help="repeat measurements of other versions or data",
    )
    add(
        "--results",
        type=Path,
        metavar="FOLDER",
        help=f"raw results; default: {_RESULTS}, with --quick {_QUICK}",
    )
    add(
        "--output",
        type=Path,
        metavar="FOLDER",
        help=f"for benchmarks.md and its pictures; default: {_DOCS}, with --quick {_QUICK}",
    )


def _ann(args: argparse.Namespace) -> Report:
    from posh_reproduction.ann import evidence, report  # with Matplotlib, which 'posh bench' does not need

    results, output = (path or _QUICK for path in (args.results, args.output))
    if not args.quick:
        results, output = args.results or _RESULTS, args.output or _DOCS
    if args.labels:
        _measure_labels(args, results)
    elif not args.report:
        _measure(args, results)
    written = [str(path) for path in report.write(results, output)]
    cases = evidence.cases_in(results)
    values = {"cases": [report.values(case) for case in cases], "written": written}
    return Report(values, "\n".join([*report.summary(cases), *written]))


def _measure(args: argparse.Namespace, results: Path) -> None:
    from posh_reproduction.ann.cases import case_of
    from posh_reproduction.ann.contenders import DEFAULT, chosen
    from posh_reproduction.ann.plan import QUICK_BASE, Plan
    from posh_reproduction.ann.runner import compare
    from posh_reproduction.experiments.records import Records

    n_base = args.n_base or (QUICK_BASE if args.quick else None)
    cases = [case_of(name, args.metric, n_base) for name in args.data]
    contenders = chosen(args.contenders or DEFAULT)
    if args.kernel:
        limited = [contender for contender in contenders if contender.limit(args.kernel)]
        note(f"limited to {args.kernel}: {', '.join(contender.name for contender in limited)}")
        contenders = limited
    options = {
        "batches": args.batches,
        "threads": args.n_threads,
        "depths": args.k,
        "reporting": args.rounds,
    }
    changes: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
        if value is not None
    }
    plan = replace(Plan.quick() if args.quick else Plan(), **changes)
    records = Records(results)
    for case in cases:
        note(f"{case.name}: loading, and looking for the true neighbours")
        compare(
            case.prepared(),
            contenders,
            plan,
            records,
            recompute=args.recompute,
            choose_only=args.choose_only,
            kernel=args.kernel,
            say=note,
        )


def _measure_labels(args: argparse.Namespace, results: Path) -> None:
    from posh_reproduction.ann import labels
    from posh_reproduction.experiments.records import Records

    units = labels.units(("digits",), trials=2) if args.quick else labels.units()
    labels.retrieve(units, Records(results), recompute=args.recompute, say=note)
