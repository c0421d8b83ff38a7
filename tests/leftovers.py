"""Searching files for content that should be gone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

WINDOW = 16  # bytes


def forms_of(vector: np.ndarray) -> list[bytes]:
    """The bytes of a vector (d,) as files may hold it."""
    single = np.asarray(vector, np.float32)
    return [single.tobytes(), single.astype(np.float16).tobytes(), single.astype(np.float64).tobytes()]


def files_with(folder: Path, secrets: Iterable[bytes]) -> set[str]:
    """The names of the files in a folder that hold any 16 consecutive bytes of a secret."""
    wanted = {
        secret[start : start + WINDOW] for secret in secrets for start in range(len(secret) - WINDOW + 1)
    }
    return {path.name for path in folder.rglob("*") if path.is_file() and _has_any(path.read_bytes(), wanted)}


def _has_any(content: bytes, wanted: set[bytes]) -> bool:
    return any(content[start : start + WINDOW] in wanted for start in range(len(content) - WINDOW + 1))
