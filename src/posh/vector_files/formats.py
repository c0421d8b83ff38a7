"""Which reader opens which file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from posh.errors import FormatError
from posh.vector_files.arrays import open_hdf5, open_npy, open_npz, open_vecs
from posh.vector_files.arrow import open_arrow, open_parquet
from posh.vector_files.checks import checked_vectors
from posh.vector_files.contract import RowError, VectorFile
from posh.vector_files.csv_text import CsvFile
from posh.vector_files.json_lines import JsonLines
from posh.vector_files.roles import choose_roles

__all__ = ["SUFFIXES", "open_file", "read_matrix"]

_ROWS = 8192  # that are checked at once

SUFFIXES: dict[str, Callable[[Path], VectorFile]] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".parquet": open_parquet,
    ".arrow": open_arrow,
    ".feather": open_arrow,
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".csv": CsvFile,
    ".tsv": CsvFile,
    ".fvecs": open_vecs,
    ".bvecs": open_vecs,
    ".ivecs": open_vecs,
    ".h5": open_hdf5,
    ".hdf5": open_hdf5,
}


def open_file(path: str | Path) -> VectorFile:
    """Open a file of vectors, told by its suffix.

    Raises
    ------
    FormatError : the file is empty, cut off, or not what its suffix says.
    MissingExtraError : HDF5 needs h5py, Parquet and Arrow need pyarrow.

    """
    path = Path(path)
    opener = SUFFIXES.get(path.suffix.lower())
    if opener is None:
        raise ValueError(f"{path}: expected a suffix among {' '.join(SUFFIXES)}, got {path.suffix!r}")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.stat().st_size:
        raise FormatError(f"{path}: expected a {path.suffix} file, got an empty one")
    return opener(path)


def read_matrix(path: Path, key: str | None) -> NDArray[np.float32]:
    """Read all vectors of a file (n, d): those of the columns ``key``, or of the only candidate."""
    file = open_file(path)
    try:
        roles = choose_roles(file, [] if key is None else [key], payload=[], number_rows=True).roles
    except ValueError as error:
        # Here the key chooses columns, which is --vector for an import.
        raise FormatError(str(error).replace("--vector", "key")) from error
    parts: list[NDArray[np.float32]] = []
    for batch in file.batches(roles, _ROWS):
        part, problem = checked_vectors(batch.vectors, parts[0].shape[1] if parts else None)
        if problem is not None:
            raise RowError(path, batch.first_row + len(part), problem)
        parts.append(part)
    if not parts:
        raise FormatError(f"{path}: expected rows with vectors, got none")
    return np.concatenate(parts)
