"""Every format reads back, and files that lie about their content are refused."""

from __future__ import annotations

import re
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from posh.errors import FormatError, MissingExtraError, find_install_command
from posh.files import (
    SUFFIXES,
    Batch,
    Column,
    Roles,
    RowError,
    VectorFile,
    contract,
    open_file,
    read_vectors,
)

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
LAZY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
VECS = {".fvecs": "<f4", ".bvecs": "<u1", ".ivecs": "<i4"}


def vecs(array: NDArray[Any]) -> bytes:
    return b"".join(struct.pack("<i", len(row)) + row.tobytes() for row in array)


def write_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["train"], file["test"] = X, 2 * X
        file["neighbors"] = np.zeros((6, 2), dtype=np.int32)


def lists(array: NDArray[Any], kind: str = "fixed") -> Any:
    flat = pa.array(array.ravel())
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, array.shape[1])
    return pa.array(array.tolist(), type=pa.list_(pa.float32()))


WRITERS: dict[str, Callable[[Path], object]] = {
    "x.npy": lambda path: np.save(path, X),
    "x.npz": lambda path: np.savez_compressed(path, only=X),
    "x.fvecs": lambda path: path.write_bytes(vecs(X)),
    "x.hdf5": write_hdf5,
    "x.h5": write_hdf5,
    "x.parquet": lambda path: pq.write_table(pa.table({"id": range(6), "vector": lists(X)}), path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_reads_back(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    found = read_vectors(tmp_path / name)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, X)


def test_suffixes_may_be_capital(tmp_path: Path) -> None:
    (tmp_path / "X.FVECS").write_bytes(vecs(X))
    np.testing.assert_array_equal(read_vectors(tmp_path / "X.FVECS"), X)


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_notices_truncation(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    whole = path.read_bytes()
    for size in {0, 1, 3, 10, len(whole) // 3 + 1, len(whole) // 2 + 1, len(whole) - 1}:
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError, match="expected"):
            read_vectors(path)


@pytest.mark.parametrize("name", WRITERS)
@LAZY
@given(data=st.data())
def test_damaged_bytes_never_crash(tmp_path: Path, name: str, data: st.DataObject) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)
    try:
        found = read_vectors(path)
    except FormatError:
        return
    assert found.ndim == 2


@pytest.mark.parametrize("suffix", VECS)
@LAZY
@given(data=st.data())
def test_vecs_round_trip(tmp_path: Path, suffix: str, data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=9))
    limits = {"min_value": -(2**24), "max_value": 2**24}
    finite = {"allow_nan": False, "allow_infinity": False}
    elements = {".ivecs": limits, ".fvecs": finite}.get(suffix, {})
    array = data.draw(hnp.arrays(VECS[suffix], shape, elements=elements))
    path = tmp_path / f"x{suffix}"
    path.write_bytes(vecs(array))
    np.testing.assert_array_equal(read_vectors(path), array.astype(np.float32))


@LAZY
@given(data=st.data())
def test_vecs_cut_inside_a_record(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "x.fvecs"
    whole = vecs(X)
    size = data.draw(st.integers(0, len(whole) - 1).filter(lambda size: size == 0 or size % 20))
    path.write_bytes(whole[:size])
    with pytest.raises(FormatError):
        read_vectors(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(struct.pack("<i", -1) + bytes(12), "width -1", id="negative width"),
        pytest.param(struct.pack("<i", 0) + bytes(12), "width 0", id="no width"),
        pytest.param(struct.pack("<i", 2**31 - 1) + bytes(12), "width 2147483647", id="huge width"),
        pytest.param(vecs(X)[:20] + struct.pack("<i", 3) + bytes(16), "got 3 in row 1", id="widths differ"),
    ],
)
def test_vecs_that_lie(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x.fvecs").write_bytes(data)
    with pytest.raises(FormatError, match=message):
        read_vectors(tmp_path / "x.fvecs")


def npy_header(shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def test_npy_and_npz_that_declare_a_terabyte(tmp_path: Path) -> None:
    lie = npy_header((2**30, 256)) + bytes(64)
    (tmp_path / "x.npy").write_bytes(lie)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", lie)
    for name in ("x.npy", "x.npz"):
        with pytest.raises(FormatError, match="expected"):
            read_vectors(tmp_path / name)


def test_hdf5_that_declares_a_terabyte(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        file.create_dataset("train", shape=(2**30, 256), dtype="f4", chunks=(1024, 256))
    with pytest.raises(FormatError, match=r"1,099,511,627,776 bytes it declares, got only 0 stored"):
        read_vectors(tmp_path / "x.hdf5")


def test_parquet_with_more_rows_than_its_bytes_could_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "_DEFLATE_LIMIT", 10)
    monkeypatch.setattr(contract, "_ALLOWANCE", 0)
    pq.write_table(pa.table({"x": np.zeros(100_000)}), tmp_path / "x.parquet")
    with pytest.raises(FormatError, match="100,000 bytes it declares"):
        read_vectors(tmp_path / "x.parquet")


class Liar(VectorFile):
    """A file of two rows that declares another number of them."""

    def __init__(self, path: Path, n_rows: int) -> None:
        self.path, self.columns = path, [Column("v", "vectors", "number[3]", n_rows)]

    def batches(self, roles: Roles, n: int) -> Iterator[Batch]:
        for row in range(2):
            yield Batch(row, [[1.0, 2.0, 3.0]], None, [{}])


@pytest.mark.parametrize(
    ("n_rows", "message"),
    [
        pytest.param(1, "expected the 1 rows that it declares, got 2", id="too few"),
        pytest.param(3, "expected the 3 rows that it declares, got 2", id="too many"),
        pytest.param(10**16, "expected vectors that fit in memory, got 10,000,.* x 3", id="memory bomb"),
    ],
)
def test_a_number_of_rows_that_lies(
    tmp_path: Path, n_rows: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SUFFIXES, ".lie", lambda path: Liar(path, n_rows))
    (tmp_path / "x.lie").write_bytes(b"...")
    with pytest.raises(FormatError, match=message):
        read_vectors(tmp_path / "x.lie")


def test_pickles_are_refused(tmp_path: Path) -> None:
    objects = np.array([[{}]], dtype=object)
    np.save(tmp_path / "x.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "x.npz", x=objects)
    for name, message in (("x.npy", "Python objects in dtype"), ("x.npz", r"'x' \(Python objects\[1\]\)")):
        with pytest.raises(FormatError, match=message):
            read_vectors(tmp_path / name)


@pytest.mark.parametrize("read", [read_vectors, open_file])
def test_a_file_of_another_kind_that_is_called_npy(tmp_path: Path, read: Callable[[Path], object]) -> None:
    (tmp_path / "x.npy").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    with pytest.raises(FormatError, match=r"expected a complete \.npy file; .* got b'.x89PNG") as caught:
        read(tmp_path / "x.npy")
    assert "pickle" not in str(caught.value)


def test_key_chooses_the_matrix(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=X, b=2 * X)
    write_hdf5(tmp_path / "x.h5")
    pq.write_table(pa.table({"a": lists(X), "b": lists(2 * X, "free")}), tmp_path / "x.parquet")
    for name, key in (("x.npz", "b"), ("x.h5", "test"), ("x.parquet", "b")):
        np.testing.assert_array_equal(read_vectors(tmp_path / name, key), 2 * X)


def test_a_key_that_does_not_decide_is_answered_with_the_choice(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=X, b=X)
    choice = r"'a' \(float32\[4\]\), 'b' \(float32\[4\]\)"
    with pytest.raises(FormatError, match=f"can be the vector, got 2: choose with key among {choice}"):
        read_vectors(tmp_path / "x.npz")
    with pytest.raises(FormatError, match=f"key to be a column of the file, got 'c'; it has {choice}"):
        read_vectors(tmp_path / "x.npz", "c")


def test_a_key_for_a_single_matrix(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(FormatError, match="key to be a column of the file, got 'a'; it has 'vectors'"):
        read_vectors(tmp_path / "x.npy", "a")


def test_a_file_of_float32_is_mapped_and_others_are_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "mapped.npy", X)
    np.save(tmp_path / "converted.npy", X.astype(np.float64))
    np.save(tmp_path / "by_column.npy", np.asfortranarray(X))
    for name, is_mapped in (("mapped", True), ("converted", False), ("by_column", False)):
        vectors = read_vectors(tmp_path / f"{name}.npy")
        assert isinstance(vectors.base, np.memmap) == is_mapped
        assert vectors.flags.c_contiguous
        np.testing.assert_array_equal(vectors, X)


def test_arrays_of_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posh.files.formats._BATCH", 4)
    for name, write in WRITERS.items():
        write(tmp_path / name)
        np.testing.assert_array_equal(read_vectors(tmp_path / name), X)


def test_a_file_without_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X[:0])
    with pytest.raises(FormatError, match="expected rows with vectors, got none"):
        read_vectors(tmp_path / "x.npy")


WIDE: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "x.parquet": lambda table, path: table.to_parquet(path),
    "x.feather": lambda table, path: table.to_feather(path),
    "x.csv": lambda table, path: table.to_csv(path, index=False),
    "x.jsonl": lambda table, path: table.to_json(path, orient="records", lines=True, double_precision=15),
}


@pytest.mark.parametrize("name", WIDE)
def test_wide_tables_of_every_format_have_the_same_features(tmp_path: Path, name: str) -> None:
    columns = {f"x{i}": X[:, i].astype(np.float64) for i in range(4)}
    table = pd.DataFrame({"id": np.arange(6), **columns, "year": 1999, "name": list("abcdef")})
    WIDE[name](table, tmp_path / name)
    np.testing.assert_array_equal(read_vectors(tmp_path / name), X)
    np.testing.assert_array_equal(read_vectors(tmp_path / name, "x[12]"), X[:, 1:3])


@pytest.mark.parametrize("name", WIDE)
def test_columns_without_numbers_are_no_guess(tmp_path: Path, name: str) -> None:
    WIDE[name](pd.DataFrame({"x": X[:, 0], "y": X[:, 1]}), tmp_path / name)
    with pytest.raises(FormatError, match="can be the vector, got 0: choose with key among 'x'"):
        read_vectors(tmp_path / name)
    assert read_vectors(tmp_path / name, "*").shape == (6, 2)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        pytest.param(pa.array([[1.0, 2.0], [3.0]]), "row 1: .* vector of 2 numbers, got 1", id="ragged"),
        pytest.param(pa.array([[1.0, 2.0], None]), "row 1: .* list of numbers, got None", id="a row is null"),
        pytest.param(
            pa.array([[1.0, None], [1.0, 2.0]]), "row 0: .* finite .* got nan", id="a value is null"
        ),
        pytest.param(pa.array([1.0, 2.0]), r"got 0: .* among 'vector' \(double\)", id="single numbers"),
        pytest.param(pa.array(["a", "b"]), r"got 0: .* among 'vector' \(string\)", id="text"),
    ],
)
def test_parquet_without_a_matrix(tmp_path: Path, column: Any, message: str) -> None:
    pq.write_table(pa.table({"vector": column}), tmp_path / "x.parquet")
    with pytest.raises(FormatError, match=message):
        read_vectors(tmp_path / "x.parquet")


def test_parquet_of_numbers_with_a_gap(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x0": [1, 2], "x1": [3, None]}), tmp_path / "x.parquet")
    with pytest.raises(FormatError, match="row 1: expected finite numbers, got nan in place 1"):
        read_vectors(tmp_path / "x.parquet")


@pytest.mark.parametrize("suffix", [".fvecs", ".npy"])
def test_values_that_are_not_finite_are_located(tmp_path: Path, suffix: str) -> None:
    path, odd = tmp_path / f"x{suffix}", X.copy()
    odd[3, 1] = np.inf
    if suffix == ".npy":
        np.save(path, odd)
    else:
        path.write_bytes(vecs(odd))
    with pytest.raises(RowError, match="row 3: expected finite numbers, got inf in place 1 of the vector"):
        read_vectors(path)


def test_integers_that_float32_would_round(tmp_path: Path) -> None:
    (tmp_path / "x.ivecs").write_bytes(vecs(np.array([[2**24 + 1]], dtype="<i4")))
    with pytest.raises(FormatError, match="16777217"):
        read_vectors(tmp_path / "x.ivecs")


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros((2, 2), dtype=complex), np.array([["a"]])])
def test_arrays_that_are_no_vectors(tmp_path: Path, array: NDArray[Any]) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(FormatError, match="2-D array of real numbers"):
        read_vectors(tmp_path / "x.npy")


def test_unknown_suffix_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"suffix among \.npy .*got '\.txt'"):
        read_vectors("x.txt")
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_vectors(tmp_path / "x.npy")


@pytest.mark.parametrize(("name", "package"), [("x.hdf5", "h5py"), ("x.parquet", "pyarrow")])
def test_missing_extras_say_how_to_install(
    tmp_path: Path, name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS[name](tmp_path / name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingExtraError, match=re.escape(f"needs {package}: {find_install_command('data')}")
    ):
        read_vectors(tmp_path / name)
