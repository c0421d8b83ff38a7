"""Files that the page cannot read itself: Parquet and Arrow, converted to rows and packed vectors."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from posh._runtime import iterate_cancellable
from posh._wire import pack_vectors
from posh.errors import FormatError, MissingExtraError
from posh.files import Roles, RowError, VectorFile, choose_roles, open_file, take_valid_vectors
from posh.preprocess import Float32
from posh.serve.responses import dump_json

__all__ = ["SUFFIXES", "write_table"]

SUFFIXES = (".parquet", ".arrow", ".feather")
_BATCH = 4096  # rows


def write_table(content: bytes, name: str, most_bytes: int) -> bytes:
    """Return the rows of a file as JSON: their payloads, and each choice for the vector.

    Every vector is validated, so that nothing needs to be written before a problem is known.

    Parameters
    ----------
    content
        The bytes of the file.
    name
        Its name; the suffix names the format.
    most_bytes
        The bound of the bytes of all vectors.

    Raises
    ------
    ValueError : the file is damaged or has no vectors, a vector is invalid, or there are too many bytes.

    """
    suffix = Path(name).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"expected a file whose name ends in one of {', '.join(SUFFIXES)}, got {name!r:.80}")
    with tempfile.TemporaryDirectory(prefix="posh-") as folder:
        path = Path(folder, f"file{suffix}")
        path.write_bytes(content)
        try:
            return dump_json(_read(open_file(path), most_bytes))
        except RowError as error:
            raise ValueError(f"Row {error.row + 1}: {error.problem}. Nothing was imported.") from None
        except (FormatError, ValueError, MissingExtraError) as error:
            raise ValueError(str(error).replace(str(path), name)) from None


def _read(file: VectorFile, most_bytes: int) -> dict[str, Any]:
    choices: list[tuple[str, ...]] = [(column.name,) for column in file.columns if column.kind == "vectors"]
    choices = choices or [choose_roles(file, number_rows=True).roles.vector]  # such as x0, x1, x2
    used = ("vectors", "bytes")
    rest = tuple(one.name for one in file.columns if one.kind not in used and one.name not in choices[0])
    rows: list[dict[str, Any]] = []
    vectors: list[dict[str, Any]] = []
    for choice in choices:
        roles = Roles(choice, None, () if rows else rest)
        parts: list[Float32] = []
        for payloads, part in _batches(file, roles, most_bytes):
            parts.append(part)
            if roles.payload:
                rows += payloads
        if not parts:
            raise ValueError("Expected a file with rows, got an empty one.")
        label = choice[0] if len(choice) == 1 else f"{choice[0]} … {choice[-1]}"
        vectors.append({"name": label, **pack_vectors(np.concatenate(parts))})
    return {"rows": rows or [{} for _ in range(vectors[0]["shape"][0])], "columns": rest, "vectors": vectors}


def _batches(
    file: VectorFile, roles: Roles, most_bytes: int
) -> Iterator[tuple[list[dict[str, Any]], Float32]]:
    """Yield payloads and validated vectors."""
    width, n_bytes = None, 0
    for batch in iterate_cancellable(file.batches(roles, _BATCH)):
        part, problem = take_valid_vectors(batch.vectors, width)
        if problem is not None:
            raise RowError(file.path, batch.first_row + len(part), problem)
        width, n_bytes = part.shape[1], n_bytes + part.nbytes
        if n_bytes > most_bytes:
            raise ValueError(
                f"Expected at most {most_bytes >> 20} MB of vectors, got more: “posh import” on the command "
                "line takes any size."
            )
        yield batch.payloads, part
