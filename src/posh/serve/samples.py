"""Sample collections: a data set under two hashers, with metadata for the page."""

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

__all__ = ["SAMPLES", "make_samples"]

# Accuracy hardly changes after the first epochs, and the user waits for the page.
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
"""Names of the data sets of sample collections."""


def make_samples(folder: Path, name: str) -> str:
    """Create the collections of a data set in ``folder``, unless they exist; return a message for the user.

    If MNIST is neither cached nor can be downloaded, the smaller digits, which need no network, replace it. A
    collection appears under its name when it is complete: an interrupted one is created from scratch.
    """
    wanted = _make_hashers(name)
    if all((folder / collection).exists() for collection in wanted):
        return f"{', '.join(wanted)}: already exist"
    try:
        data = datasets.load(name)
    except DataUnavailableError as error:
        if name != "mnist":
            raise
        return f"mnist is not available ({error}); {make_samples(folder, 'digits')}"
    for collection, hasher in wanted.items():
        if not (folder / collection).exists():
            _create(folder, collection, hasher, data)
    return f"{', '.join(wanted)}: created from {len(data.base):,} vectors each"


def _make_hashers(name: str) -> dict[str, Hasher[Any]]:
    return {
        name: POSH(n_bits=1024, n_active=32, n_epochs=_EPOCHS, random_state=0),
        f"{name}-fruitfly": FruitFly(n_bits=1024, n_active=32, random_state=0),
    }


def _create(folder: Path, name: str, hasher: Hasher[Any], data: Dataset) -> None:
    hidden = folder / f".{name}"  # not a valid name of a collection: the service ignores it
    shutil.rmtree(hidden, ignore_errors=True)
    hasher.fit(data.base[:_TRAINING])
    with Collection(hidden, hasher, metadata=_make_metadata(hasher, data), refine="decoder") as collection:
        collection.upsert(_make_ids(data), data.base, _make_payloads(data))
    hidden.rename(folder / name)
    sync_folder(folder)


def _make_metadata(hasher: Hasher[Any], data: Dataset) -> dict[str, Any]:
    about = dict(_ABOUT[data.name])
    about["title"] = f"{about['title']} by {type(hasher).__name__}"
    if data.base_labels is not None:
        about["label"] = {"field": "label", "values": np.unique(data.base_labels).tolist()}
    return about


def _make_ids(data: Dataset) -> list[Any]:
    return list(range(len(data.base))) if data.base_names is None else [str(name) for name in data.base_names]


def _make_payloads(data: Dataset) -> list[dict[str, Any]] | None:
    if data.base_labels is None:
        return None
    return [{"label": label} for label in data.base_labels.tolist()]
