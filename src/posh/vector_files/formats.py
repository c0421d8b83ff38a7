"""Which reader opens which file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from posh.errors import FormatError
from posh.vector_files.arrays import open_hdf5, open_npy, open_npz, open_vecs
from posh.vector_files.arrow import open_arrow, open_parquet
from posh.vector_files.contract import VectorFile
from posh.vector_files.csv_text import CsvFile
from posh.vector_files.json_lines import JsonLines

__all__ = ["SUFFIXES", "open_file"]

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
