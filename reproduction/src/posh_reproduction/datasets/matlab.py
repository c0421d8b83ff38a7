"""Reader of numeric matrices in MATLAB files: version 5 by SciPy, version 7.3 (which is HDF5) by h5py.

SciPy trusts the type numbers in a file, and a hostile file can crash it. Read only files of known origin.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from posh.datasets._fetch import Arrays
from posh.files.contract import import_extra, refuse_oversized, translate_errors

__all__ = ["list_variables", "read_variables"]

_NUMERIC = {"double", "single", *(f"{sign}int{n}" for sign in ("", "u") for n in (8, 16, 32, 64))}
_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def list_variables(path: Path) -> list[str]:
    """Return the names of the numeric matrices in a MATLAB file."""
    if _is_hdf5(path):
        h5py = import_extra("h5py", "reading MATLAB 7.3")
        with translate_errors(path, "MATLAB 7.3"), h5py.File(path, "r") as file:
            return [name for name, item in file.items() if hasattr(item, "shape")]
    with translate_errors(path, "MATLAB 5 or 7.3"):
        return [name for name, _, kind in scipy.io.whosmat(path) if kind in _NUMERIC]


def read_variables(path: Path, names: Collection[str]) -> Arrays:
    """Read the matrices of these names that a MATLAB file contains, oriented as in MATLAB."""
    present = [name for name in list_variables(path) if name in names]
    if _is_hdf5(path):
        h5py = import_extra("h5py", "reading MATLAB 7.3")
        with translate_errors(path, "MATLAB 7.3"), h5py.File(path, "r") as file:
            return {name: _read_hdf5(path, file[name]) for name in present}
    with translate_errors(path, "MATLAB 5 or 7.3"):
        contents = scipy.io.loadmat(path, variable_names=present)
        return {name: contents[name] for name in present}


def _read_hdf5(path: Path, item: Any) -> np.ndarray[Any, Any]:
    refuse_oversized(path, item.size * item.dtype.itemsize, item.id.get_storage_size())
    return np.asarray(item[()]).T  # MATLAB stores columns first, so HDF5 sees matrices transposed


def _is_hdf5(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(520)
    return _SIGNATURE in (head[:8], head[512:])  # MATLAB 7.3 writes 512 bytes of its own first
