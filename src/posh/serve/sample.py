"""Collections to play with: a data set under two hashers, with what the page needs to show it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from posh import datasets
from posh._durable import sync_folder
from posh.collection.embedded import Collection
from posh.datasets import Dataset
from posh.errors import DataUnavailableError
from posh.hashers import POSH, FruitFly
from posh.hashers.base import Hasher

__all__ = ["SAMPLES", "make"]

# Accuracy hardly changes after the first epochs, and somebody waits for the page.
_TRAINING, _EPOCHS = 5000, 10
_ABOUT: dict[str, dict[str, Any]] = {
    "mnist": {
        "title": "MNIST",
        "about": "Handwritten digits, 28 × 28 pixels.",
        "image": {"width": 28, "height": 28, "low": 0, "high": 255, "box": 20},
    },
    "digits": {
        "title": "Digits",
        "about": "Handwritten digits, 8 × 8 pixels.",
        "image": {"width": 8, "height": 8, "low": 0, "high": 16},
    },
    "glove-100": {"title": "GloVe", "about": "English words by their company in texts.", "name": "word"},
}

SAMPLES = tuple(_ABOUT)
"""Names of the data sets that can be sampled."""


def make(folder: Path, name: str) -> str:
    """Make the collections of a data set in ``folder``, unless they are there; return what was done.

    If MNIST can neither be found nor fetched, the smaller digits that need no network take its place. A
    collection appears under its name when it is complete: an interrupted one is made again.
    """
    wanted = _collections(name)
    if all((folder / collection).exists() for collection in wanted):
        return f"{', '.join(wanted)}: here already"
    try:
        data = datasets.load(name)
    except DataUnavailableError as error:
        if name != "mnist":
            raise
        return f"mnist cannot be had ({error}); {make(folder, 'digits')}"
    for collection, hasher in wanted.items():
        if not (folder / collection).exists():
            _make(folder, collection, hasher, data)
    return f"{', '.join(wanted)}: made of {len(data.base):,} vectors each"


def _collections(name: str) -> dict[str, Hasher[Any]]:
    return {
        name: POSH(n_bits=1024, n_active=32, n_epochs=_EPOCHS, random_state=0),
        f"{name}-fruitfly": FruitFly(n_bits=1024, n_active=32, random_state=0),
    }


def _make(folder: Path, name: str, hasher: Hasher[Any], data: Dataset) -> None:
    hidden = folder / f".{name}"  # no name of a collection: the service does not see it
    shutil.rmtree(hidden, ignore_errors=True)
    hasher.fit(data.base[:_TRAINING])
    with Collection(hidden, hasher, metadata=_metadata(hasher, data), refine="decoder") as collection:
        collection.upsert(_ids(data), data.base, _payloads(data))
    hidden.rename(folder / name)
    sync_folder(folder)


def _metadata(hasher: Hasher[Any], data: Dataset) -> dict[str, Any]:
    about = dict(_ABOUT[data.name])
    about["title"] = f"{about['title']} by {type(hasher).__name__}"
    if data.base_labels is not None:
        about["label"] = {"field": "label", "values": np.unique(data.base_labels).tolist()}
    return about


def _ids(data: Dataset) -> list[Any]:
    return list(range(len(data.base))) if data.base_names is None else [str(name) for name in data.base_names]


def _payloads(data: Dataset) -> list[dict[str, Any]] | None:
    if data.base_labels is None:
        return None
    return [{"label": label} for label in data.base_labels.tolist()]
