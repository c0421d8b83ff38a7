"""Collections for the tests of the page, and the page over them."""

from __future__ import annotations

import os

import numpy as np

import posh
from tests.collection.reference import ReferenceCollection

GENRES = ["crime", "travel", "poetry"]
CIRCLE = [(0.45 * np.sin(t), -0.7 * np.cos(t)) for t in np.linspace(0, 2 * np.pi, 25)]
BAR = [(0.0, -0.7), (0.0, 0.7)]
WIDTHS = [360, 768, 1280, 1600]


def sets():
    """MNIST where fetching is allowed, else the digits that need no network."""
    if os.environ.get("POSH_TEST_NETWORK") == "1":
        return posh.datasets.load("mnist"), {"width": 28, "height": 28, "low": 0, "high": 255, "box": 20}
    return posh.datasets.load("digits"), {"width": 8, "height": 8, "low": 0, "high": 16}


def digits_by(hasher, title, data, image):
    """Pictures to draw."""
    metadata = {"title": title, "image": image, "label": {"field": "label", "values": list(range(10))}}
    base, labels = data.base[:1500], data.base_labels[:1500]
    collection = ReferenceCollection(hasher.fit(base), metadata=metadata)
    return collection.upsert(np.arange(len(base)), base, [{"label": label} for label in labels.tolist()])


def words():
    """Items that are called by their ids: GloVe's words where fetching is allowed."""
    names, vectors = [f"word-{i}" for i in range(60)], np.random.default_rng(0).normal(size=(60, 12))
    if os.environ.get("POSH_TEST_NETWORK") == "1":
        data = posh.datasets.load("glove-100")
        names, vectors = [str(name) for name in data.base_names[:1500]], data.base[:1500]
    hasher = posh.FruitFly(n_bits=64, n_active=4, random_state=0).fit(vectors)
    collection = ReferenceCollection(hasher, metadata={"title": "Words", "name": "word"})
    return collection.upsert(names, vectors)


PICTURE = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='8' height='6'/%3E"


def book(i):
    """The payload of a book."""
    return {
        "title": f"Book {i}",
        "summary": f"The story of number {i}, told by somebody who was there and who has not forgotten it.",
        "genre": GENRES[i % 3],
        "pages": 100 + i,
        "tags": ["paper", f"shelf {i % 4}"],
        "cover": PICTURE if i % 2 else "https://elsewhere.invalid/cover.png",
    }


def books(n=90):
    """A user's own collection: a metric, no hasher, no metadata but a title."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(3, 8))[np.arange(n) % 3] * 3 + rng.normal(size=(n, 8))
    collection = ReferenceCollection(metric="cosine", metadata={"title": "Books"})
    return collection.upsert([f"book-{i}" for i in range(n)], vectors, [book(i) for i in range(n)])
