"""Vectors from files of the usual kinds, one reader per suffix.

Every reader compares what a file declares with what it holds before it allocates anything, and never
unpickles.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from posh.datasets._containers import read_hdf5, read_mat_vectors
from posh.datasets._dataset import Dataset, Floats
from posh.datasets._guard import reading, refuse_bloat, refuse_objects, sole_key
from posh.errors import FormatError

__all__ = ["map_npy", "map_vecs", "npy_header", "read_dataset", "read_vectors"]

# Beyond, float32 skips integers.
_EXACT_INTEGERS = 2**24
_VECS = {".fvecs": "<f4", ".bvecs": "<u1", ".ivecs": "<i4"}


def read_vectors(path: str | Path, key: str | None = None) -> Floats:
    """Read one matrix of vectors from a file, told by its suffix.

    ============================  ======================================================  ============
    suffix                        content                                                 ``key``
    ============================  ======================================================  ============
    ``.npy``                      a 2-D array                                             none
    ``.npz``                      2-D arrays by name                                      array
    ``.fvecs .bvecs .ivecs``      records of an int32 width and that many values          none
    ``.h5 .hdf5``                 2-D data sets, as ann-benchmarks has them               data set
    ``.mat``                      matrices, MATLAB 5 or 7.3                               variable
    ``.parquet .arrow .feather``  a column of equally long lists, or numbered columns     column
    ``.jsonl .ndjson``            objects, one per line, with a list of numbers           field
    ``.csv .tsv``                 numbers in one column, or numbered columns              column
    ============================  ======================================================  ============

    Parameters
    ----------
    path
        The file.
    key
        Which matrix, where a file may hold several; by default the only one, and ``train`` for HDF5. In
        files of rows (from Parquet on in the table), a pattern such as ``x*`` stands for several columns of
        numbers. By default it is the only column of vectors, else the only family of numbered columns of
        numbers, as ``posh import`` chooses them: an ``id`` beside them is no feature.

    Returns
    -------
    float32 (n, d). Values that are not finite are passed on as they are, but are an error in files of rows.

    Raises
    ------
    FormatError : the file is truncated, contradicts itself, or holds no such matrix.
    MissingExtraError : HDF5 and MATLAB 7.3 need h5py, Parquet and Arrow need pyarrow.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> from posh.datasets import read_vectors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "three.npy")
    ...     np.save(path, np.eye(3))
    ...     read_vectors(path).shape
    (3, 3)

    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path}: expected a suffix among {' '.join(_READERS)}, got {path.suffix!r}")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    return _as_vectors(reader(path, key), path)


def read_dataset(path: str | Path) -> Dataset:
    """Read an HDF5 file of ann-benchmarks: ``train`` becomes the base, ``test`` the queries.

    Examples
    --------
    >>> from posh.datasets import read_dataset
    >>> data = read_dataset("sift-128-euclidean.hdf5")  # doctest: +SKIP

    """
    base, queries = (read_vectors(path, key) for key in ("train", "test"))
    return Dataset(Path(path).stem, base, queries, description=f"ann-benchmarks file {Path(path).name}")


def _as_vectors(array: NDArray[Any], path: Path) -> Floats:
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise FormatError(f"{path}: expected a 2-D array of real numbers, got {array.dtype} {array.shape}")
    if array.dtype.kind in "iu" and array.dtype.itemsize > 2 and array.size:
        largest = max(abs(int(array.min())), abs(int(array.max())))
        if largest > _EXACT_INTEGERS:
            raise FormatError(f"{path}: expected integers up to 2^24, which float32 can hold, got {largest}")
    return np.ascontiguousarray(array, dtype=np.float32)


def _read_npy(path: Path, key: str | None) -> NDArray[Any]:
    _no_key(path, key)
    return np.asarray(map_npy(path))


def _read_npz(path: Path, key: str | None) -> NDArray[Any]:
    with reading(path, ".npz"), zipfile.ZipFile(path) as archive:
        members = {Path(info.filename).stem: info for info in archive.infolist()}
        name = sole_key(path, members, key)
        info = members[name]
        with archive.open(info) as file:
            shape, _, dtype = npy_header(file)
        refuse_objects(path, name, dtype)
        refuse_bloat(path, dtype.itemsize * int(np.prod(shape, dtype=object)), info.compress_size)
        with archive.open(info) as file:
            return np.asarray(npy_format.read_array(file, allow_pickle=False))


def map_npy(path: Path) -> NDArray[Any]:
    """Map the array of an ``.npy`` file."""
    # Mapping makes NumPy compare the declared shape with the size of the file. np.load would take a file of
    # another kind for a pickle, and advise to trust it.
    with reading(path, ".npy"):
        return npy_format.open_memmap(path, mode="r")


def npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an ``.npy`` file: the shape, whether it is stored by column, and the dtype."""
    version = npy_format.read_magic(file)
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, by_column, dtype = read(file)
    return shape, by_column, dtype


def _read_vecs(path: Path, key: str | None) -> NDArray[Any]:
    _no_key(path, key)
    return map_vecs(path)


def map_vecs(path: Path) -> NDArray[Any]:
    """Map the vectors (n, d) of an ``.fvecs``, ``.bvecs`` or ``.ivecs`` file, after a look at all widths."""
    dtype, n_bytes = _VECS[path.suffix.lower()], path.stat().st_size
    if n_bytes < 4:
        raise FormatError(f"{path}: expected at least the 4 bytes of a width, got {n_bytes} bytes")
    with path.open("rb") as file:
        width = int.from_bytes(file.read(4), "little", signed=True)
    record = 4 + width * np.dtype(dtype).itemsize
    if width < 1 or n_bytes % record:
        raise FormatError(
            f"{path}: expected a positive width whose records of {record} bytes fill the file, "
            f"got width {width} in {n_bytes} bytes"
        )
    records = np.memmap(path, np.dtype([("width", "<i4"), ("values", dtype, (width,))]), mode="r")
    if (records["width"] != width).any():
        row = int(np.flatnonzero(records["width"] != width)[0])
        raise FormatError(
            f"{path}: expected width {width} throughout, got {records['width'][row]} in row {row}"
        )
    return np.asarray(records["values"])


def _read_rows(path: Path, key: str | None) -> NDArray[Any]:
    from posh.vector_files.formats import read_matrix  # which imports this module

    return read_matrix(path, key)


def _no_key(path: Path, key: str | None) -> None:
    if key is not None:
        raise ValueError(f"{path}: a {path.suffix} file holds one matrix; expected key=None, got {key!r}")


_READERS: dict[str, Callable[[Path, str | None], NDArray[Any]]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".fvecs": _read_vecs,
    ".bvecs": _read_vecs,
    ".ivecs": _read_vecs,
    ".h5": read_hdf5,
    ".hdf5": read_hdf5,
    ".mat": read_mat_vectors,
    ".parquet": _read_rows,
    ".arrow": _read_rows,
    ".feather": _read_rows,
    ".jsonl": _read_rows,
    ".ndjson": _read_rows,
    ".csv": _read_rows,
    ".tsv": _read_rows,
}
