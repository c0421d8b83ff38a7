"""The collections that the conformance suite runs against: a new engine adds itself to the list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import posh
from posh.collection.base import BaseCollection
from tests.collection.reference import ReferenceCollection
from tests.conftest import clusters
from tests.engines.milvus import engine
from tests.serve.service import create_remote, reopen_remote


@dataclass(frozen=True)
class Implementation:
    """How to make a collection in a folder of its own; ``reopen`` opens it again if it outlives a process."""

    name: str
    create: Callable[..., BaseCollection]  # (path, hasher=None, *, metadata=None, **options)
    reopen: Callable[[Path], BaseCollection] | None = None

    def __str__(self) -> str:
        return self.name


ALL = [
    Implementation("reference", lambda path, *args, **options: ReferenceCollection(*args, **options)),
    Implementation("embedded", posh.Collection, posh.Collection),
    Implementation("remote", create_remote, reopen_remote),
]
if engine.IS_ON:
    ALL += [
        Implementation("milvus-file", engine.create_in_file, engine.create_in_file),
        Implementation("milvus-server", engine.create_on_server, engine.create_on_server),
    ]

DATA = clusters(600, 8).astype("float32")
SPARSE = posh.POSH(32, 4, n_epochs=1, random_state=0).fit(DATA)
OTHER = posh.FruitFly(48, 6, random_state=1).fit(DATA)
DENSE = posh.LSH(12, random_state=0).fit(DATA)
