"""``posh info``: describe a collection, an index folder or a model file, and check it for damage."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from posh.cli._command import Parser, Report, declare, format_size
from posh.cli._fit import describe_hasher
from posh.cli._index import measure_folder

if TYPE_CHECKING:
    from posh import Hasher
    from posh.collection.maintenance import Findings

__all__ = ["add_info"]

_MAX_FIELDS = 100  # printed


class _Description(NamedTuple):
    values: dict[str, Any]
    lines: list[str]


def add_info(parser: Parser) -> None:
    """Declare ``posh info``."""
    declare(parser, "posh info --check digits.safetensors", _info)
    parser.add_argument("path", metavar="PATH", type=Path, help="collection, index folder or model file")
    parser.add_argument(
        "--check",
        action="store_true",
        help="also read all files, compare checksums and report damage; nothing is opened for writing",
    )


def _info(args: argparse.Namespace) -> Report:
    from posh.collection.opening import DATABASE

    path: Path = args.path
    kind = "collection" if (path / DATABASE).exists() else "index" if path.is_dir() else "model"
    values: dict[str, Any] = {"path": str(path), "kind": kind}
    if not args.check:
        description = _DESCRIBE[kind](path)
        return Report(values | description.values, "\n".join(description.lines))
    findings = _check(path, kind)
    verdict = f"{len(findings.problems)} problems" if findings.problems else "no damage"
    lines = [f"{path}: {kind}, {verdict}"]
    # Opening a collection makes files for SQLite's log, so its description is left out.
    if kind != "collection" and not findings.problems:
        description = _DESCRIBE[kind](path)
        values |= description.values
        lines = [*description.lines, *lines]
    checked = ", ".join(f"{number:,} {things}" for things, number in findings.checked.items())
    lines += [f"checked: {checked or 'nothing'}", *findings.problems]
    return Report(values | findings._asdict(), "\n".join(lines), exit_code=1 if findings.problems else 0)


def _check(path: Path, kind: str) -> Findings:
    import posh
    from posh.collection.maintenance import Findings, check_collection
    from posh.index.open import load_index

    if kind == "collection":
        return check_collection(path)
    try:
        if kind == "index":
            return Findings({"documents": len(load_index(path, verify=True))}, [])
        return Findings({"weights": posh.Hasher.load(path).weights_.size}, [])
    except posh.FormatError as error:
        return Findings({}, [str(error)])


# Descriptions ------------------------------------------------------------------------------------------


def _describe_model(path: Path) -> _Description:
    import posh
    from posh._model_files import MODEL_FORMAT, MODEL_VERSION

    hasher = posh.Hasher.load(path)
    disk = path.stat().st_size
    values = {
        "format": MODEL_FORMAT,
        "version": int(MODEL_VERSION),  # the only version that can be read
        "disk_bytes": disk,
        **_summarize_hasher(hasher),
    }
    title = f"{path}: {MODEL_FORMAT} version {MODEL_VERSION}, {format_size(disk)}"
    return _Description(values, [title, *_format_hasher(hasher)])


def _describe_index(path: Path) -> _Description:
    import posh
    from posh.collection.indexing import find_recall
    from posh.index import files
    from posh.index.open import load_index

    index = load_index(path, mmap=True)
    hasher = index.hasher if isinstance(index, posh.CodeIndex) else None
    memory, disk, recall = index.memory_usage(), measure_folder(path), find_recall(index.snapshot())
    values = {
        "format": files.FORMAT,
        "version": files.VERSION,  # the only version that can be read
        "disk_bytes": disk,
        "n_documents": len(index),
        "params": asdict(index.options),
        "recall": recall,
        "memory_bytes": memory,
        "hasher": None if hasher is None else _summarize_hasher(hasher),
    }
    parts = ", ".join(f"{part} {format_size(n)}" for part, n in memory.items() if n and part != "total")
    lines = [
        f"{path}: {files.FORMAT} version {files.VERSION}, {format_size(disk)}",
        f"{index}",
        f"parameters: {_format_params(asdict(index.options))}",
        *([] if recall is None else [_format_recall(recall)]),
        f"memory: {format_size(memory['total'])}" + (f" ({parts})" if parts else ""),
        *([] if hasher is None else _format_hasher(hasher)),
    ]
    return _Description(values, lines)


def _describe_collection(path: Path) -> _Description:
    import posh
    from posh.collection.database import VERSION, WITHOUT_TEXT

    with posh.Collection(path, read_only=True) as collection:
        n_items, n_features, hasher = len(collection), collection.n_features, collection.hasher
        params, metadata, text = collection.index_options, collection.metadata, collection.text
        memory, disk = collection.memory_usage() or 0, measure_folder(path)
        recall, fields = collection.measured_recall(), collection.field_kinds(_MAX_FIELDS)
    version = WITHOUT_TEXT if text is None else VERSION
    values = {
        "format": "posh-collection",
        "version": version,  # older versions are upgraded when they are opened for writing
        "disk_bytes": disk,
        "n_items": n_items,
        "n_features": n_features,
        "fields": fields,
        "metadata": metadata,
        "params": params,
        "recall": recall,
        "text": None if text is None else asdict(text),
        "memory_bytes": memory,
        "hasher": None if hasher is None else _summarize_hasher(hasher),
    }
    width = "" if n_features is None else f", vectors with {n_features} columns"
    lines = [
        f"{path}: posh-collection version {version}, {format_size(disk)}",
        f"items: {n_items:,}{width}",
        *([f"fields: {_format_fields(fields)}"] if fields else []),
        f"parameters: {_format_params(params) or 'none, as there is no index yet'}",
        *([] if recall is None else [_format_recall(recall)]),
        *([f"text: {', '.join(text.fields)} ({text.tokenizer})"] if text is not None else []),
        *([f"metadata: {_format_params(metadata)}"] if metadata else []),
        f"memory: {format_size(memory)}",
        *([] if hasher is None else _format_hasher(hasher)),
    ]
    return _Description(values, lines)


_DESCRIBE = {"collection": _describe_collection, "index": _describe_index, "model": _describe_model}


def _summarize_hasher(hasher: Hasher[Any]) -> dict[str, Any]:
    return {
        "class": type(hasher).__name__,
        "params": hasher.get_params(),
        "n_features": hasher.n_features_in_,
        "weights": list(hasher.weights_.shape),
        "weights_bytes": hasher.weights_.nbytes,
    }


def _format_hasher(hasher: Hasher[Any]) -> list[str]:
    n_bits, n_columns = hasher.weights_.shape
    return [
        f"hasher: {describe_hasher(hasher)}, for vectors with {hasher.n_features_in_} columns",
        f"  parameters: {_format_params(hasher.get_params())}",
        f"  weights: {n_bits} x {n_columns} float32, {format_size(hasher.weights_.nbytes)}",
    ]


def _format_fields(fields: dict[str, list[str]]) -> str:
    return ", ".join(f"{name} ({', '.join(kinds)})" for name, kinds in fields.items())


def _format_recall(recall: float) -> str:
    return f"recall of the 10 nearest: {recall:.3f}"


def _format_params(params: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in params.items())
