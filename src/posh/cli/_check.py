"""``posh check``: whether a file or folder of ours is what was written."""

from __future__ import annotations

import argparse
from pathlib import Path

import posh
from posh.cli._command import Parser, Report, declare
from posh.collection.maintenance import Findings, check_collection
from posh.collection.opening import DATABASE
from posh.index.open import load_index

__all__ = ["add"]


def add(parser: Parser) -> None:
    """Declare the arguments."""
    declare(parser, "posh check digits.safetensors", _check)
    parser.add_argument("path", metavar="PATH", type=Path, help="nothing in it is opened for writing")


def _check(args: argparse.Namespace) -> Report:
    kind, findings = _looked_at(args.path)
    checked = ", ".join(f"{number:,} {what}" for what, number in findings.checked.items())
    verdict = f"{len(findings.problems)} problems" if findings.problems else "no damage"
    lines = [f"{args.path}: {kind}, {verdict}", f"checked: {checked or 'nothing'}"]
    values = {"path": str(args.path), "kind": kind, **findings._asdict()}
    return Report(values, "\n".join(lines + findings.problems), exit_code=1 if findings.problems else 0)


def _looked_at(path: Path) -> tuple[str, Findings]:
    if (path / DATABASE).exists():
        return "collection", check_collection(path)
    try:
        if path.is_dir():
            return "index", Findings({"documents": len(load_index(path, verify=True))}, [])
        return "model", Findings({"weights": posh.Hasher.load(path).weights_.size}, [])
    except posh.FormatError as error:
        return "index" if path.is_dir() else "model", Findings({}, [str(error)])
