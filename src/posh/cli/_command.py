"""Declaration of commands, their results, and input and output that several commands share.

Modules of this package import NumPy and the library inside functions, so that ``--help`` is quick.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Commands: TypeAlias = argparse._SubParsersAction["Parser"]  # argparse gives this type no public name

__all__ = ["EXAMPLE", "Command", "Commands", "Parser", "Report", "UsageError"]
__all__ += ["add_command", "add_output", "add_source", "add_verbs", "declare"]
__all__ += ["format_size", "note", "parse_count", "read_source", "require_output", "warn_of_zeros"]
__all__ += ["write_arrays"]

EXAMPLE = "example:\n  {}"


class Command(NamedTuple):
    """A summary for ``posh --help``, and ``"module:function"``, the function that declares the arguments.

    The function takes a :class:`Parser`. Its module is imported only if the command is chosen. ``group`` is
    the title of the section of ``posh --help``.
    """

    summary: str
    target: str
    group: str = "more"

    def add_arguments(self, parser: Parser) -> None:
        """Import the module of the command and declare its arguments."""
        module, _, function = self.target.partition(":")
        getattr(import_module(module), function)(parser)


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


# Declaration -------------------------------------------------------------------------------------------


def declare(parser: Parser, example: str, run: Callable[[argparse.Namespace], Report]) -> None:
    """Let a parser call ``run``, and show the example in its help."""
    parser.epilog = EXAMPLE.format(example)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.set_defaults(run=run)


def add_verbs(parser: Parser, example: str) -> Commands:
    """Prepare a command for subcommands, such as ``list`` in ``posh data list``."""
    parser.epilog = EXAMPLE.format(example)
    return parser.add_subparsers(title="commands", metavar="COMMAND", dest="verb", required=True)


def add_command(
    commands: Commands, name: str, summary: str, example: str, run: Callable[[argparse.Namespace], Report]
) -> Parser:
    """Declare a subcommand and return its parser, without arguments of its own."""
    parser = commands.add_parser(name, help=summary, description=summary)
    declare(parser, example, run)
    return parser


def add_source(parser: Parser, metavar: str = "DATA", name: str = "a data set") -> None:
    """Declare DATA and ``--key`` for :func:`read_source`; ``name`` describes a data set in the help."""
    parser.add_argument(
        "data",
        metavar=metavar,
        help=f"{name} (see 'posh data list') or a file: .npy, .npz, .fvecs, .hdf5 …",
    )
    parser.add_argument("--key", help="array or column to read, if the file has several")


def add_output(parser: Parser, metavar: str, about: str, *, required: bool = True) -> None:
    """Declare ``--output``."""
    parser.add_argument("-o", "--output", type=Path, required=required, metavar=metavar, help=about)


def parse_count(text: str) -> int:
    """Parse an integer of at least one, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


# Input and output --------------------------------------------------------------------------------------


def read_source(
    source: str, key: str | None, *, queries: bool = False, option: str = "--key"
) -> npt.NDArray[np.float32]:
    """Return the vectors of a file, or the base (or the queries) of a data set, float32 (n, d).

    ``option`` is the name of the option for ``key`` in errors.
    """
    from posh import datasets, files

    path = Path(source)
    if source in datasets.names():
        if key is not None:
            raise UsageError(f"{option} is for files, and {source} is a data set: leave it out")
        data = datasets.load(source)
        return data.queries if queries else data.base
    if queries:
        raise UsageError(
            f"--queries is for data sets by name, got {path}: give the file of the queries, or its {option}"
        )
    if not path.exists() and not path.suffix:
        raise FileNotFoundError(
            f"{path}: no such data set or file; choose from {', '.join(datasets.names())}, or give a file"
        )
    return files.read_vectors(path, key)


def require_output(path: Path, *suffixes: str) -> None:
    """Raise an error unless a file with one of the suffixes can be written to ``path``."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise UsageError(f"expected --output to end in {' or '.join(suffixes)}, got {path}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: expected an existing folder, got {path.parent}: create it first")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file to write, got a folder: add a file name")


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


def format_size(n_bytes: int) -> str:
    """Format a number of bytes for people.

    >>> format_size(153_785)
    '153.8 kB'
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes} bytes"


def warn_of_zeros(n_zero: int, n: int, metric: str | None) -> None:
    """Print a warning if some of n vectors are zero and the metric is the cosine."""
    if n_zero and metric == "cosine":
        note(
            f"posh: warning: {n_zero:,} of {n:,} vectors are zero: they have no direction, so their cosine "
            "with every vector counts as 0"
        )


def note(line: str) -> None:
    """Print a line that is not part of the result, on stderr."""
    print(line, file=sys.stderr, flush=True)
