"""A stand-in for ``pymilvus`` that keeps rows in dictionaries, for tests that must run everywhere.

It evaluates the expressions that the engine sends about keys and settings. Any other selects all rows:
expressions need only select a superset of the matching rows.
"""

from __future__ import annotations

import re
import types
from typing import Any

import numpy as np


class MilvusException(Exception):  # noqa: N818  # the name in pymilvus
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


MilvusException.__module__ = "pymilvus.exceptions"


class Schema:
    def __init__(self) -> None:
        self.fields: list[dict[str, Any]] = []

    def add_field(self, name: str, kind: str, **params: Any) -> None:
        self.fields.append({"name": name, "type": kind, "params": params})


class IndexParams(list):
    def add_index(self, field: str, **params: Any) -> None:
        self.append((field, params))


class MilvusClient:
    """One database for all clients of a test, by address; ``failing`` names an operation that fails."""

    databases: dict[str, dict[str, Any]]
    failing: dict[str, Exception]
    asked: list[tuple[str, dict[str, Any]]]
    version = "v2.6.1"

    def __init__(self, uri: str, timeout: float, **options: Any) -> None:
        self._fail("connect")
        self.asked.append(("connect", {"uri": uri, **options}))
        self._collections = self.databases.setdefault(uri, {})

    create_schema = staticmethod(lambda **options: Schema())
    prepare_index_params = staticmethod(IndexParams)

    def _fail(self, operation: str) -> None:
        if operation in self.failing:
            raise self.failing[operation]

    def _rows(self, name: str) -> dict[str, dict[str, Any]]:
        if name not in self._collections:
            raise MilvusException(100, "collection not found")
        return self._collections[name]["rows"]

    def list_collections(self, **options: Any) -> list[str]:
        self._fail("list_collections")
        return list(self._collections)

    def get_server_version(self, **options: Any) -> str:
        self._fail("get_server_version")
        return self.version

    def create_collection(self, name: str, schema: Schema, **options: Any) -> None:
        self._fail("create_collection")
        self._collections[name] = {"schema": schema, "rows": {}}

    def create_index(self, name: str, params: IndexParams, **options: Any) -> None:
        self._fail("create_index")
        self._collections[name]["indexes"] = params

    def load_collection(self, name: str, **options: Any) -> None:
        self._rows(name)

    def describe_collection(self, name: str, **options: Any) -> dict[str, Any]:
        return {"fields": self._collections[name]["schema"].fields}

    def drop_collection(self, name: str, **options: Any) -> None:
        del self._collections[name]

    def upsert(self, name: str, rows: list[dict[str, Any]], **options: Any) -> None:
        self._fail("upsert")
        self.asked.append(("upsert", {"name": name, "n": len(rows)}))
        for row in rows:
            self._rows(name)[next(iter(row.values()))] = row

    def delete(self, name: str, filter: str, **options: Any) -> None:  # noqa: A002
        rows = self._rows(name)
        for key in [key for key in rows if _selects(filter, key)]:
            del rows[key]

    def query(
        self,
        name: str,
        filter: str,  # noqa: A002
        output_fields: list[str],
        **options: Any,
    ) -> list[dict[str, Any]]:
        self._fail("query")
        rows = [row for key, row in self._rows(name).items() if _selects(filter, key)]
        if output_fields == ["count(*)"]:
            return [{"count(*)": len(rows)}]
        return [{field: row[field] for field in output_fields} for row in rows]

    def query_iterator(self, name: str, batch_size: int, **options: Any) -> Any:
        pages = [self.query(name, **options), []]

        def following() -> list[dict[str, Any]]:
            self._fail("next")
            return pages.pop(0)

        return types.SimpleNamespace(next=following, close=lambda: None)

    def search(
        self,
        name: str,
        data: list[Any],
        anns_field: str,
        limit: int,
        filter: str,  # noqa: A002
        output_fields: list[str],
        **options: Any,
    ) -> list[list[dict[str, Any]]]:
        self.asked.append(("search", {"limit": limit, "filter": filter, "n": len(data), **options}))
        rows = [row for key, row in self._rows(name).items() if _selects(filter, key)]
        answers = []
        for query in data:
            scored = [(_product(query, row[anns_field]), row) for row in reversed(rows)]
            best = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: -pair[0])[:limit]
            answers.append(
                [
                    {"id": row["id"], "distance": score, "entity": {f: row[f] for f in output_fields}}
                    for score, row in best
                ]
            )
        return answers

    def close(self) -> None:
        self.asked.append(("close", {}))


def _product(query: Any, document: Any) -> float:
    if isinstance(query, dict):
        return sum(weight * document.get(dimension, 0.0) for dimension, weight in query.items())
    query, document = np.asarray(query), np.asarray(document)
    return float(query @ document / np.linalg.norm(query) / np.linalg.norm(document))


def _selects(expression: str, key: str) -> bool:
    if expression.startswith(("id in", "name in")):
        return f'"{key}"' in expression
    if match := re.fullmatch(r'name like "(.*)%"', expression):
        return key.startswith(match[1])
    return True


def install(monkeypatch: Any) -> type[MilvusClient]:
    """Put the stand-in in place of pymilvus and Milvus Lite for one test."""
    module = types.ModuleType("pymilvus")
    types_of = ("VARCHAR", "INT64", "JSON", "FLOAT_VECTOR", "SPARSE_FLOAT_VECTOR")
    module.DataType = types.SimpleNamespace(**{name: name for name in types_of})
    module.MilvusClient = MilvusClient
    MilvusClient.databases, MilvusClient.failing, MilvusClient.asked = {}, {}, []
    monkeypatch.setattr(MilvusClient, "version", "v2.6.1")
    monkeypatch.setitem(__import__("sys").modules, "pymilvus", module)
    monkeypatch.setitem(__import__("sys").modules, "milvus_lite", types.ModuleType("milvus_lite"))
    return MilvusClient
