"""The same rows in files of every kind."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

N, WIDTH = 25, 4
VECTORS = np.random.default_rng(0).normal(size=(N, WIDTH)).astype(np.float32)
IDS = [f"item-{i}" for i in range(N)]
TITLES = [f"The {i}th, “title”\nwith lines" for i in range(N)]
YEARS = [1900 + i for i in range(N)]


def _table():
    import pyarrow as pa

    lists = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), WIDTH)
    return pa.table({"id": IDS, "vector": lists, "title": TITLES, "year": YEARS})


def parquet(path: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(_table(), path, row_group_size=7)


def arrow(path: Path) -> None:
    import pyarrow as pa

    with pa.ipc.new_file(path, _table().schema) as writer:
        writer.write_table(_table(), max_chunksize=7)


def arrow_stream(path: Path) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(path, _table().schema) as writer:
        writer.write_table(_table(), max_chunksize=7)


def feather(path: Path) -> None:
    import pyarrow.feather

    pyarrow.feather.write_feather(_table(), path)


def json_lines(path: Path) -> None:
    rows = zip(IDS, VECTORS.tolist(), TITLES, YEARS, strict=True)
    lines = [json.dumps({"id": i, "vector": v, "title": t, "year": y}) for i, v, t, y in rows]
    path.write_text("\n\n".join(lines) + "\n")  # empty lines are no rows


def csv_lists(path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "vector", "title", "year"])
        for i, vector, title, year in zip(IDS, VECTORS.tolist(), TITLES, YEARS, strict=True):
            writer.writerow([i, json.dumps(vector), title, year])


def csv_numbers_in_a_cell(path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["id", "vector", "title", "year"])
        for i, vector, title, year in zip(IDS, VECTORS.tolist(), TITLES, YEARS, strict=True):
            writer.writerow([i, " ".join(map(repr, vector)), title, year])


def tsv_columns(path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["id", *(f"x{j}" for j in range(WIDTH)), "title", "year"])
        for i, vector, title, year in zip(IDS, VECTORS.tolist(), TITLES, YEARS, strict=True):
            writer.writerow([i, *vector, title, year])


def parquet_columns(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    columns = {f"x{j}": VECTORS[:, j] for j in range(WIDTH)}
    pyarrow.parquet.write_table(pa.table({"id": IDS, **columns, "title": TITLES, "year": YEARS}), path)


def npz(path: Path) -> None:
    np.savez_compressed(path, id=IDS, vector=VECTORS, title=TITLES, year=YEARS)


def npz_by_column(path: Path) -> None:
    np.savez(path, id=IDS, vector=np.asfortranarray(VECTORS), title=TITLES, year=YEARS)


def hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file["vector"] = VECTORS
        file["id"], file["title"], file["year"] = IDS, TITLES, YEARS


def npy(path: Path) -> None:
    np.save(path, VECTORS)


def fvecs(path: Path) -> None:
    records = np.empty(N, [("width", "<i4"), ("values", "<f4", (WIDTH,))])
    records["width"], records["values"] = WIDTH, VECTORS
    path.write_bytes(records.tobytes())


FULL: dict[str, tuple[str, Callable[[Path], None]]] = {
    "Parquet": ("rows.parquet", parquet),
    "Parquet with columns of numbers": ("rows.parquet", parquet_columns),
    "Arrow": ("rows.arrow", arrow),
    "Arrow stream": ("rows.arrow", arrow_stream),
    "Feather": ("rows.feather", feather),
    "JSON Lines": ("rows.jsonl", json_lines),
    "CSV with JSON lists": ("rows.csv", csv_lists),
    "CSV with numbers in a cell": ("rows.csv", csv_numbers_in_a_cell),
    "TSV with columns of numbers": ("rows.tsv", tsv_columns),
    "npz": ("rows.npz", npz),
    "npz by column": ("rows.npz", npz_by_column),
    "HDF5": ("rows.h5", hdf5),
}
ONLY_VECTORS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "npy": ("rows.npy", npy),
    "fvecs": ("rows.fvecs", fvecs),
}
