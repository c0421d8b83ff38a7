"""Matrices inside HDF5 and MATLAB files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posh.datasets._cache import Arrays
from posh.datasets._guard import reading, refuse_bloat, require, sole_key
from posh.datasets._mat5 import mat5_variables

__all__ = ["mat_variables", "read_hdf5", "read_mat", "read_mat_vectors"]


def read_hdf5(path: Path, key: str | None) -> NDArray[Any]:
    """Read the data set ``key`` ("train" if None) of an HDF5 file."""
    with _open_hdf5(path) as file:
        keys = [name for name, item in file.items() if hasattr(item, "shape")]
        return _hdf5_array(path, file[sole_key(path, keys, key or "train")])


def mat_variables(path: Path) -> list[str]:
    """Return the names of the variables in a MATLAB file."""
    if _is_hdf5(path):
        with _open_hdf5(path) as file:
            return [name for name, item in file.items() if hasattr(item, "shape")]
    with reading(path, "MATLAB 5 or 7.3"):
        return list(mat5_variables(path))


def read_mat(path: Path, variables: Iterable[str]) -> Arrays:
    """Read those of the ``variables`` that a MATLAB file has, each oriented as in MATLAB."""
    wanted = [name for name in mat_variables(path) if name in set(variables)]
    if _is_hdf5(path):
        with _open_hdf5(path) as file:
            # MATLAB stores by column, so HDF5 sees every matrix transposed.
            return {name: _hdf5_array(path, file[name]).T for name in wanted}
    with reading(path, "MATLAB 5 or 7.3"):
        found = mat5_variables(path)
        return {name: found[name].read() for name in wanted}


def read_mat_vectors(path: Path, key: str | None) -> NDArray[Any]:
    """Read the variable ``key`` of a MATLAB file, or its only one."""
    name = sole_key(path, mat_variables(path), key)
    return read_mat(path, [name])[name]


def _hdf5_array(path: Path, item: Any) -> NDArray[Any]:
    refuse_bloat(path, item.size * item.dtype.itemsize, item.id.get_storage_size())
    return np.asarray(item[()])


def _is_hdf5(path: Path) -> bool:
    # MATLAB 7.3 puts 512 bytes of its own before the HDF5 signature.
    with path.open("rb") as file:
        head = file.read(520)
    return b"\x89HDF\r\n\x1a\n" in (head[:8], head[512:])


@contextmanager
def _open_hdf5(path: Path) -> Iterator[Any]:
    h5py = require("h5py", "reading HDF5")
    with reading(path, "HDF5"), h5py.File(path, "r") as file:
        yield file
