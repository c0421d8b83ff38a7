"""Model files with a version and a checksum (no pickles).

A model is one safetensors file. Its metadata names the format, the version, the class and its
parameters (JSON), and carries a SHA-256 over all of that and over every array.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as parse_safetensors
from safetensors.numpy import save as dump_safetensors

from posh.errors import FormatError

__all__ = [
    "Arrays",
    "Model",
    "convert_format_errors",
    "dump_model",
    "parse_model",
    "read_model_digest",
    "require_array",
]

MODEL_FORMAT = "posh-model"
MODEL_VERSION = "1"

Arrays = dict[str, npt.NDArray[Any]]


class Model(NamedTuple):
    """The content of a model file: class name, parameters, learned arrays, column names if any."""

    name: str
    params: dict[str, Any]
    arrays: Arrays
    columns: list[str] | None


def dump_model(name: str, params: dict[str, Any], arrays: Arrays, columns: list[str] | None = None) -> bytes:
    """Return the content of a model file; parameters must be numbers, strings or None."""
    header = {
        "format": MODEL_FORMAT,
        "version": MODEL_VERSION,
        "class": name,
        "params": json.dumps(_convert_params(params), sort_keys=True),
    }
    if columns is not None:
        header["columns"] = json.dumps(columns)
    arrays = {key: np.ascontiguousarray(value).reshape(np.shape(value)) for key, value in arrays.items()}
    header["sha256"] = _compute_digest(header, arrays)
    return dump_safetensors(arrays, metadata=header)


def read_model_digest(content: bytes, path: str | os.PathLike[str]) -> str:
    """Return the checksum of a model, which is the same for equal models."""
    with convert_format_errors(path):
        return _parse_metadata(content)["sha256"]


def parse_model(content: bytes, path: str | os.PathLike[str]) -> Model:
    """Parse the content of a model file; raise a FormatError that names ``path`` if it is anything else."""
    with convert_format_errors(path):
        header = _parse_metadata(content)
    if header.get("format") != MODEL_FORMAT:
        raise FormatError(f"{Path(path)}: expected a POSH model, found {header.get('format', 'no format')!r}")
    if header.get("version") != MODEL_VERSION:
        raise FormatError(
            f"{Path(path)}: expected format version {MODEL_VERSION}, found {header.get('version')!r}: "
            "upgrade posh-ann to read it"
        )
    with convert_format_errors(path):
        arrays: Arrays = parse_safetensors(content)
    if header.pop("sha256", None) != _compute_digest(header, arrays):
        raise FormatError(f"{Path(path)}: the checksum does not match: the file is damaged, save it again")
    with convert_format_errors(path):
        return _build_model(header, arrays)


@contextlib.contextmanager
def convert_format_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert the errors that a damaged or foreign file causes into a :class:`FormatError`."""
    try:
        yield
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"{Path(path)}: not a readable POSH model ({error})") from error


def require_array(
    arrays: Arrays,
    name: str,
    dtype: npt.DTypeLike,
    shape: tuple[int | None, ...],
    low: float | None = None,
    *,
    look_inside: bool = True,
) -> npt.NDArray[Any]:
    """Return the array ``name``; raise ValueError unless its dtype, shape and values are as expected.

    All values must be finite and not below ``low``. ``look_inside=False`` does not check that they are
    finite, because that reads the whole array.
    """
    array = arrays[name]
    has_shape = len(array.shape) == len(shape) and all(
        want in (None, got) for want, got in zip(shape, array.shape, strict=True)
    )
    is_finite = not look_inside or array.dtype.kind != "f" or bool(np.isfinite(array).all())
    if array.dtype != dtype or not has_shape or not is_finite:
        expected = f"finite {np.dtype(dtype)} {shape}"
        raise ValueError(f"expected {name} to be {expected}, found {array.dtype} {array.shape}")
    if low is not None and array.size and array.min() < low:
        raise ValueError(f"expected {name} to be at least {low}, found {array.min()}")
    return array


def _parse_metadata(content: bytes) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 + length:
        raise ValueError(f"{length} bytes of header announced, {max(0, len(content) - 8)} bytes follow")
    header = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    return {str(key): str(value) for key, value in header.items()}


def _compute_digest(header: dict[str, str], arrays: Arrays) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _build_model(header: dict[str, str], arrays: Arrays) -> Model:
    columns = header.get("columns")
    params = json.loads(header["params"])
    return Model(header["class"], params, arrays, None if columns is None else list(json.loads(columns)))


def _convert_params(params: dict[str, Any]) -> dict[str, Any]:
    """Replace NumPy scalars by Python numbers; raise TypeError for values that JSON cannot represent."""
    converted = {
        key: value.item() if isinstance(value, np.generic) else value for key, value in params.items()
    }
    for key, value in converted.items():
        if not (value is None or isinstance(value, bool | int | float | str)):
            raise TypeError(f"expected {key} to be a number, a string or None to be saved, got {value!r}")
    return converted
