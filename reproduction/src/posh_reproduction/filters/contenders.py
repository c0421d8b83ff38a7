"""The contenders of the comparison with filters: indexes get a mask, databases the same as a condition.

Masks are turned into the objects of a library before the measurement, and the first search with a filter is
not measured, since some look up a condition only once.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import posh
from posh._runtime import resolve_threads
from posh_reproduction.ann.contenders.base import (
    EXPANSION,
    LINKS,
    Floats,
    Params,
    Rival,
    Search,
    list_counts,
    probes,
    visits,
)
from posh_reproduction.ann.contenders.faiss import FaissGraph, FaissLists
from posh_reproduction.ann.contenders.ours import PoshDefault
from posh_reproduction.filters.cells import Filter, FilteredData

__all__ = ["CONTENDERS", "OURS", "PROMISED", "Contender", "FilteredIndex", "chosen"]

PROMISED = 0.95
"""The recall that ours are asked for, and that the parameters of the others reach without a filter."""

_EXTRA = "bench-filters"
_AT_ONCE = 20_000  # documents that are written together


class FilteredIndex(Protocol):
    """An index of documents with columns."""

    def searching(self, k: int, chosen: Filter | None, **params: Any) -> Search:
        """The search for the k nearest that pass a filter, for one query (1, d) at a time."""

    def save(self, folder: Path) -> None:
        """Write the index to a folder; it must be loaded again then."""


class Contender(Protocol):
    """A library and one of its kinds of index."""

    name: str

    def version(self) -> str:
        """The version of the code that is measured."""

    def build(self, data: FilteredData) -> FilteredIndex:
        """Index the documents with their columns."""

    def load(self, folder: Path, d: int, metric: str) -> FilteredIndex:
        """Read a saved index."""

    def efforts(self, n: int, k: int) -> list[Params]:
        """Parameters of a search, from fast to careful: the first that finds enough is taken."""

    def enlarge(self, params: Params, share: float, n: int) -> Params | None:
        """The parameters for a filter that this share of n documents pass; None if there is no such rule."""


# Ours ----------------------------------------------------------------------------------------------------


class _Ours:
    """Base class: a recall is asked for, and nothing else is chosen."""

    def version(self) -> str:
        """The version and the last commit of the search."""
        return PoshDefault().version()

    def efforts(self, n: int, k: int) -> list[Params]:
        """There is nothing to choose."""
        return [{"recall": PROMISED}]

    def enlarge(self, params: Params, share: float, n: int) -> Params | None:
        """Return None: the search chooses its effort for each filter."""
        return None


@dataclass
class _PoshIndex:
    index: posh.Index

    def searching(self, k: int, chosen: Filter | None, **params: Any) -> Search:
        mask = None if chosen is None else chosen.mask
        return lambda Q: self.index.search(Q, k, filter=mask, n_threads=1, **params).ids

    def save(self, folder: Path) -> None:
        self.index.save(folder / "index")


class PoshMask(_Ours):
    """``posh.Index`` with a mask."""

    name = "posh"

    def build(self, data: FilteredData) -> FilteredIndex:
        """Build with the default of every option."""
        return _PoshIndex(posh.Index.build(data.base, metric=data.prepared.case.metric))

    def load(self, folder: Path, d: int, metric: str) -> FilteredIndex:
        """Read a saved index."""
        return _PoshIndex(posh.Index.load(folder / "index"))


@dataclass
class _PoshItems:
    items: posh.Collection
    folder: Path

    def searching(self, k: int, chosen: Filter | None, **params: Any) -> Search:
        condition = None if chosen is None else {chosen.column: {"lt": chosen.bound}}

        def search(Q: Floats) -> Any:
            ids = self.items.search(Q, k=k, filter=condition, n_threads=1, **params).ids.tolist()
            return np.array([[-1 if i is None else i for i in row] for row in ids], np.int64)

        return search

    def save(self, folder: Path) -> None:
        self.items.close()
        _move_into(self.folder, folder)


class PoshItems(_Ours):
    """A collection with the columns in the payloads, which a filter names."""

    name = "posh-collection"

    def build(self, data: FilteredData) -> FilteredIndex:
        """Write all items."""
        folder = _temporary_folder()
        items = posh.create(folder, metric=data.prepared.case.metric)
        for rows, values in _in_parts(data):
            items.upsert(rows, data.base[rows.start : rows.stop], values)
        return _PoshItems(items, folder)

    def load(self, folder: Path, d: int, metric: str) -> FilteredIndex:
        """Open the collection."""
        items = posh.open(folder)
        assert isinstance(items, posh.Collection)
        return _PoshItems(items, folder)


# faiss ---------------------------------------------------------------------------------------------------


@dataclass
class _FaissIndex:
    faiss: Any
    index: Any
    parameters: Callable[..., Any]
    """The class of the parameters of a search."""

    def searching(self, k: int, chosen: Filter | None, **params: Any) -> Search:
        self.faiss.omp_set_num_threads(1)
        if chosen is not None:
            params["sel"] = self.faiss.IDSelectorBitmap(np.packbits(chosen.mask, bitorder="little"))
        own = self.parameters(**params)
        return lambda Q: self.index.search(Q, k, params=own)[1]

    def save(self, folder: Path) -> None:
        self.faiss.write_index(self.index, str(folder / "index.faiss"))


class _Faiss(Rival):
    """Base class: ``kind`` builds the index, ``parameters`` names the class of the parameters of a search."""

    package, module, extra = "faiss-cpu", "faiss", _EXTRA
    kind: Any
    parameters: str

    def _wrap(self, index: Any) -> FilteredIndex:
        faiss = self.imported()
        return _FaissIndex(faiss, index, getattr(faiss, self.parameters))

    def _recipe(self, n: int) -> Params:
        raise NotImplementedError

    def build(self, data: FilteredData) -> FilteredIndex:
        """Train and add."""
        metric, threads = data.prepared.case.metric, resolve_threads()
        return self._wrap(self.kind.build(data.base, metric, threads, **self._recipe(len(data.base))).index)

    def load(self, folder: Path, d: int, metric: str) -> FilteredIndex:
        """Read a saved index."""
        return self._wrap(self.imported().read_index(str(folder / "index.faiss")))


class FaissIvf(_Faiss):
    """IVF over float vectors: the visited lists are compared but for what does not pass."""

    name, kind, parameters = "faiss-ivf", FaissLists(), "SearchParametersIVF"

    def _recipe(self, n: int) -> Params:
        return {"recipe": f"IVF{_n_lists(n)},Flat"}

    def efforts(self, n: int, k: int) -> list[Params]:
        """Lists to visit."""
        return [{"nprobe": count} for count in probes(_n_lists(n))]

    def enlarge(self, params: Params, share: float, n: int) -> Params | None:
        """Visit as many lists as have the same number of documents that pass."""
        return {"nprobe": min(_n_lists(n), math.ceil(params["nprobe"] / share))}


class FaissHnsw(_Faiss):
    """HNSW: the graph is walked as without a filter, and what does not pass is left out of the results."""

    name, kind, parameters = "faiss-hnsw", FaissGraph(), "SearchParametersHNSW"

    def _recipe(self, n: int) -> Params:
        return {"recipe": f"HNSW{LINKS}", "expansion": EXPANSION}

    def efforts(self, n: int, k: int) -> list[Params]:
        """Candidates that a search keeps."""
        return [{"efSearch": visited} for visited in visits(k)]

    def enlarge(self, params: Params, share: float, n: int) -> Params | None:
        """Keep as many candidates as have the same number that pass, at most one in 50 of all documents."""
        return {"efSearch": max(params["efSearch"], min(n // 50, math.ceil(params["efSearch"] / share)))}


# Databases -----------------------------------------------------------------------------------------------


@dataclass
class _LanceTable:
    table: Any
    folder: Path

    def searching(self, k: int, chosen: Filter | None, **params: Any) -> Search:
        condition = None if chosen is None else f"{chosen.column} < {chosen.bound}"

        def search(Q: Floats) -> Any:
            asked = self.table.search(Q[0]).distance_type("l2").nprobes(params["nprobes"]).limit(k)
            if condition is not None:
                asked = asked.where(condition, prefilter=True)
            return asked.select(["id", "_distance"]).to_arrow()["id"].to_numpy()[None]

        return search

    def save(self, folder: Path) -> None:
        _move_into(self.folder, folder)


class LanceDB(Rival):
    """IVF over float vectors with a B-tree on each column, which is evaluated before the search."""

    name, package, module, extra = "lancedb", "lancedb", "lancedb", _EXTRA

    def build(self, data: FilteredData) -> FilteredIndex:
        """Write a table, and index its vectors and columns."""
        lancedb, folder = self.imported(), _temporary_folder()
        import pyarrow as pa
        from lancedb.index import BTree, IvfFlat

        n, d = data.base.shape
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(data.base.ravel()), d)
        content = {"id": np.arange(n), **data.columns, "vector": vectors}
        table = lancedb.connect(folder).create_table("documents", pa.table(content))
        table.create_index("vector", config=IvfFlat(distance_type="l2", num_partitions=_n_lists(n)))
        for name in data.columns:
            table.create_index(name, config=BTree())
        return _LanceTable(table, folder)

    def load(self, folder: Path, d: int, metric: str) -> FilteredIndex:
        """Open the table."""
        return _LanceTable(self.imported().connect(folder).open_table("documents"), folder)

    def efforts(self, n: int, k: int) -> list[Params]:
        """Lists to visit."""
        return [{"nprobes": count} for count in probes(_n_lists(n))]

    def enlarge(self, params: Params, share: float, n: int) -> Params | None:
        """Visit as many lists as have the same number of documents that pass."""
        return {"nprobes": min(_n_lists(n), math.ceil(params["nprobes"] / share))}


@dataclass
class _ZvecItems:
    zvec: Any
    items: Any
    folder: Path

    def searching(self, k: int, chosen: Filter | None, **params: Any) -> Search:
        condition = None if chosen is None else f"{chosen.column} < {chosen.bound}"
        own = self.zvec.HnswQueryParam(**params)

        def search(Q: Floats) -> Any:
            asked = self.zvec.Query("vector", vector=Q[0], param=own)
            found = self.items.query(asked, topk=k, filter=condition, output_fields=[])
            return np.array([[int(item.id) for item in found]], np.int64).reshape(1, -1)

        return search

    def save(self, folder: Path) -> None:
        self.items.close()
        _move_into(self.folder, folder)


class Zvec(Rival):
    """HNSW with an inverted index on each column; with few documents that pass it compares all of these."""

    name, package, module, extra = "zvec", "zvec", "zvec", _EXTRA
    _is_ready = False

    def imported(self) -> Any:
        """The module, restricted to one thread per search."""
        zvec = super().imported()
        if not self._is_ready:
            zvec.init(log_level=zvec.LogLevel.ERROR, query_threads=1, optimize_threads=resolve_threads())
            self._is_ready = True
        return zvec

    def build(self, data: FilteredData) -> FilteredIndex:
        """Write all items, and build the graph."""
        zvec, folder = self.imported(), _temporary_folder()
        folder.rmdir()  # zvec creates it
        by_value = zvec.InvertIndexParam(enable_range_optimization=True)
        graph = zvec.HnswIndexParam(zvec.MetricType.L2, m=LINKS, ef_construction=EXPANSION)
        fields = [zvec.FieldSchema(name, zvec.DataType.INT32, index_param=by_value) for name in data.columns]
        vectors = zvec.VectorSchema("vector", zvec.DataType.VECTOR_FP32, data.base.shape[1], graph)
        schema = zvec.CollectionSchema("documents", fields=fields, vectors=[vectors])
        items = zvec.create_and_open(str(folder), schema)
        for rows, values in _in_parts(data, 1000):
            documents = zip(rows, data.base[rows.start : rows.stop].tolist(), values, strict=True)
            items.insert([zvec.Doc(str(i), vectors={"vector": row}, fields=own) for i, row, own in documents])
        items.optimize()
        items.flush()
        return _ZvecItems(zvec, items, folder)

    def load(self, folder: Path, d: int, metric: str) -> FilteredIndex:
        """Open the collection."""
        zvec = self.imported()
        return _ZvecItems(zvec, zvec.open(str(folder)), folder)

    def efforts(self, n: int, k: int) -> list[Params]:
        """Candidates that a search keeps."""
        return [{"ef": visited} for visited in visits(k)]

    def enlarge(self, params: Params, share: float, n: int) -> Params | None:
        """Keep as many candidates as have the same number that pass, up to the largest number allowed."""
        return {"ef": max(params["ef"], min(2048, math.ceil(params["ef"] / share)))}


_ALL: tuple[Contender, ...] = (PoshMask(), PoshItems(), FaissIvf(), FaissHnsw(), LanceDB(), Zvec())
CONTENDERS: dict[str, Contender] = {contender.name: contender for contender in _ALL}
OURS = ("posh", "posh-collection")


def chosen(names: Iterable[str]) -> list[Contender]:
    """Return the contenders of these names; raise an error that names missing packages.

    >>> [contender.name for contender in chosen(["posh"])]
    ['posh']
    """
    found = []
    for name in names:
        if name not in CONTENDERS:
            raise ValueError(f"unknown contender {name!r}; choose from {', '.join(CONTENDERS)}")
        CONTENDERS[name].version()  # imports the library
        found.append(CONTENDERS[name])
    return found


def _n_lists(n: int) -> int:
    return list_counts(n)[-1]


def _in_parts(data: FilteredData, size: int = _AT_ONCE) -> Iterable[tuple[range, list[dict[str, int]]]]:
    """Rows of documents, and the values of their columns."""
    names = list(data.columns)
    for start in range(0, len(data.base), size):
        rows = range(start, min(start + size, len(data.base)))
        values = zip(*(data.columns[name][start : rows.stop].tolist() for name in names), strict=True)
        yield rows, [dict(zip(names, row, strict=True)) for row in values]


def _temporary_folder() -> Path:
    """A folder that belongs to a database until it is moved to its place."""
    return Path(tempfile.mkdtemp(prefix="posh-bench-filters-"))


def _move_into(source: Path, folder: Path) -> None:
    """Move the content of a folder."""
    for path in list(source.iterdir()):
        shutil.move(path, folder / path.name)
    source.rmdir()
