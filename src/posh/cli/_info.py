"""``posh info``: what a file or folder of ours is."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

import posh
from posh._model_files import MODEL_FORMAT, MODEL_VERSION
from posh.cli._command import Parser, Report, declare, shown_size
from posh.cli._index import disk_bytes
from posh.cli._method import described
from posh.index import files
from posh.index.open import load_index

__all__ = ["add"]


def add(parser: Parser) -> None:
    """Declare the arguments."""
    declare(parser, "posh info digits.safetensors", _info)
    parser.add_argument("path", metavar="PATH", type=Path, help="what 'posh fit' or 'posh build' wrote")


def _info(args: argparse.Namespace) -> Report:
    return _index(args.path) if args.path.is_dir() else _model(args.path)


def _model(path: Path) -> Report:
    hasher = posh.Hasher.load(path)
    values = {
        "path": str(path),
        "format": MODEL_FORMAT,
        "version": int(MODEL_VERSION),  # no other can be read
        "disk_bytes": path.stat().st_size,
        **_hasher(hasher),
    }
    lines = [
        f"{path}: {values['format']} version {values['version']}, {shown_size(values['disk_bytes'])}",
        *_hasher_lines(hasher),
    ]
    return Report(values, "\n".join(lines))


def _index(path: Path) -> Report:
    index = load_index(path, mmap=True)
    hasher = index.hasher if isinstance(index, posh.CodeIndex) else None
    memory, disk = index.memory_usage(), disk_bytes(path)
    values = {
        "path": str(path),
        "format": files.FORMAT,
        "version": files.VERSION,  # no other can be read
        "disk_bytes": disk,
        "n_documents": len(index),
        "params": asdict(index.options),
        "memory_bytes": memory,
        "hasher": None if hasher is None else _hasher(hasher),
    }
    parts = ", ".join(f"{part} {shown_size(n)}" for part, n in memory.items() if n and part != "total")
    lines = [
        f"{path}: {files.FORMAT} version {files.VERSION}, {shown_size(disk)}",
        f"{index}",
        f"parameters: {_listed(asdict(index.options))}",
        f"memory: {shown_size(memory['total'])}" + (f" ({parts})" if parts else ""),
        *([] if hasher is None else _hasher_lines(hasher)),
    ]
    return Report(values, "\n".join(lines))


def _hasher(hasher: posh.Hasher[Any]) -> dict[str, Any]:
    return {
        "class": type(hasher).__name__,
        "params": hasher.get_params(),
        "n_features": hasher.n_features_in_,
        "weights": list(hasher.weights_.shape),
        "weights_bytes": hasher.weights_.nbytes,
    }


def _hasher_lines(hasher: posh.Hasher[Any]) -> list[str]:
    n_bits, n_columns = hasher.weights_.shape
    return [
        f"hasher: {described(hasher)}, for vectors with {hasher.n_features_in_} columns",
        f"  parameters: {_listed(hasher.get_params())}",
        f"  weights: {n_bits} x {n_columns} float32, {shown_size(hasher.weights_.nbytes)}",
    ]


def _listed(params: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in params.items())
