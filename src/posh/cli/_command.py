"""What the commands share: how they are declared, what they return, and how they read vectors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Commands: TypeAlias = argparse._SubParsersAction["Parser"]  # argparse gives this type no public name

__all__ = ["EXAMPLE", "Command", "Commands", "Parser", "Report", "UsageError"]
__all__ += ["add_command", "add_model", "add_source", "add_verbs", "counted", "declare", "note"]
__all__ += ["output_path", "read_source", "shown_size", "write_arrays"]

EXAMPLE = "example:\n  {}"


class Command(NamedTuple):
    """What ``posh --help`` shows of a command, and the module that declares its arguments.

    The module has ``add(parser)`` and is imported only if the command is chosen.
    """

    summary: str
    module: str


class UsageError(ValueError):
    """The arguments contradict each other or the data."""


class Report(NamedTuple):
    """The outcome of a command: ``values`` for ``--json``, ``text`` for people, and the exit code."""

    values: dict[str, Any]
    text: str
    exit_code: int = 0


class Parser(argparse.ArgumentParser):
    """A parser whose errors are raised and whose epilog keeps its lines."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        """Raise a :class:`UsageError` that points to the help of this command."""
        raise UsageError(f"{message} (see '{self.prog} --help')")


def add_command(
    commands: Commands, name: str, summary: str, example: str, run: Callable[[argparse.Namespace], Report]
) -> Parser:
    """Declare a command below another one; the caller adds its arguments."""
    parser = commands.add_parser(name, help=summary, description=summary)
    declare(parser, example, run)
    return parser


def declare(parser: Parser, example: str, run: Callable[[argparse.Namespace], Report]) -> None:
    """Let a parser call ``run``; its help shows the example."""
    parser.epilog = EXAMPLE.format(example)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.set_defaults(run=run)


def add_verbs(parser: Parser, example: str) -> Commands:
    """Let a command have commands of its own, such as ``list`` in ``posh data list``."""
    parser.epilog = EXAMPLE.format(example)
    return parser.add_subparsers(title="commands", metavar="COMMAND", dest="verb", required=True)


def add_model(parser: Parser, nargs: str | None = None, more: str = "") -> None:
    """Declare the argument for a hasher."""
    help_ = f"a file that 'posh fit' wrote{more}"
    parser.add_argument("model", metavar="MODEL", type=Path, nargs=nargs, help=help_)


def add_source(parser: Parser, metavar: str = "DATA", name: str = "a data set") -> None:
    """Declare the arguments that :func:`read_source` reads; ``name`` says what a name stands for."""
    parser.add_argument(
        "data",
        metavar=metavar,
        help=f"{name} (see 'posh data list') or a file: .npy, .npz, .fvecs, .hdf5 …",
    )
    parser.add_argument("--key", help="which array or column of a file that holds several")


def read_source(args: argparse.Namespace, *, queries: bool = False) -> npt.NDArray[np.float32]:
    """Return the vectors of a file, or the base (or the queries) of a data set, float32 (n, d)."""
    from posh import datasets, files  # with NumPy: 'posh --help' needs neither

    path = Path(args.data)
    if args.data in datasets.names():
        if args.key is not None:
            raise UsageError(f"--key is for files, and {args.data} is a data set: leave it out")
        data = datasets.load(args.data)
        return data.queries if queries else data.base
    if queries:
        raise UsageError(
            f"--queries is for data sets by name, got {path}: give the file of the queries, or its --key"
        )
    if not path.exists() and not path.suffix:
        raise FileNotFoundError(
            f"{path}: no such data set or file; choose from {', '.join(datasets.names())}, or give a file"
        )
    return files.read_vectors(path, args.key)


def output_path(path: Path) -> Path:
    """Return ``path`` if a file can be put there; asked before the work, not after it."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: expected an existing folder, got {path.parent}: create it first")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file to write, got a folder: add a file name")
    return path


def write_arrays(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write arrays to an .npz file, or the first of them to an .npy file, atomically."""
    import numpy as np

    from posh._durable import write_atomically

    # An open file, because NumPy would add its suffix to the name of the temporary file.
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        if path.suffix == ".npz":
            np.savez(file, **arrays)  # type: ignore[arg-type]  # NumPy's stub confuses names with allow_pickle
        else:
            np.save(file, next(iter(arrays.values())), allow_pickle=False)


def shown_size(n_bytes: int) -> str:
    """Return a number of bytes as people read it.

    >>> shown_size(153_785)
    '153.8 kB'
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes} bytes"


def counted(text: str) -> int:
    """Parse a number of things, at least one, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def note(line: str) -> None:
    """Print what is not part of the result."""
    print(line, file=sys.stderr, flush=True)
