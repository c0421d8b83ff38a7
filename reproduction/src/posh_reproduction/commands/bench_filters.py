"""``posh bench filters``: compare recall and queries per second with a filter."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from posh.cli._command import Report, add_command, note, parse_count

if TYPE_CHECKING:
    from posh.cli._command import Commands

__all__ = ["add_filters"]

_RESULTS, _QUICK, _DOCS = Path("results/filters"), Path("filters-quick"), Path("docs")
_QUERIES = 300  # of each half
_QUICK_QUERIES = 50


def add_filters(verbs: Commands) -> None:
    """Declare ``posh bench filters``."""
    summary = "compare recall and queries per second with a filter"
    example = "posh bench filters --data glove-100 --quick --contenders posh faiss-ivf"
    add = add_command(verbs, "filters", summary, example, _filters).add_argument
    add("--data", nargs="+", default=["glove-100"], metavar="NAME", help="default: glove-100")
    add(
        "--contenders",
        nargs="+",
        metavar="NAME",
        help="libraries to compare; default: all (the error for an unknown name lists them)",
    )
    add("--n-base", type=parse_count, metavar="N", help="only the first N vectors")
    add("--quick", action="store_true", help="20,000 vectors, 50 queries, 10 results, one round: minutes")
    add("--n-queries", type=parse_count, metavar="N", help=f"of each half; default: {_QUERIES}")
    add("--rounds", type=parse_count, metavar="N", help="the fastest of N counts; default: 2")
    add("--k", nargs="+", type=parse_count, metavar="K", help="results per query; default: 10 100")
    add("--report", action="store_true", help="write the report without measurements")
    add("--recompute", action="store_true", help="repeat measurements of other versions or data")
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
        help=f"for recall-under-filters.md and its pictures; default: {_DOCS}, with --quick {_QUICK}",
    )


def _filters(args: argparse.Namespace) -> Report:
    from posh_reproduction.filters import report

    results, output = (path or _QUICK for path in (args.results, args.output))
    if not args.quick:
        results, output = args.results or _RESULTS, args.output or _DOCS
    if not args.report:
        _measure(args, results)
    written = [str(path) for path in report.write(results, output)]
    cases = report.cases_in(results)
    values = {"cases": [report.values(case) for case in cases], "written": written}
    return Report(values, "\n".join([*report.summary(cases), *written]))


def _measure(args: argparse.Namespace, results: Path) -> None:
    from posh_reproduction.ann.cases import case_of
    from posh_reproduction.ann.plan import QUICK_BASE
    from posh_reproduction.experiments.records import Records
    from posh_reproduction.filters.cells import DEPTHS, RELATIONS, SHARES, Cell, FilteredData
    from posh_reproduction.filters.contenders import CONTENDERS, chosen
    from posh_reproduction.filters.runner import compare

    contenders = chosen(args.contenders or CONTENDERS)
    n_base = args.n_base or (QUICK_BASE if args.quick else None)
    n_queries = args.n_queries or (_QUICK_QUERIES if args.quick else _QUERIES)
    depths = args.k or (DEPTHS[:1] if args.quick else DEPTHS)
    cells = [Cell(relation, share, k) for k in depths for relation in RELATIONS for share in SHARES]
    rounds = args.rounds or (1 if args.quick else 2)
    records = Records(results)
    for case in [case_of(name, n_base=n_base) for name in args.data]:
        note(f"{case.name}: loading")
        data = FilteredData(case.prepared(), n_queries)
        compare(data, contenders, cells, rounds, records, recompute=args.recompute, say=note)
