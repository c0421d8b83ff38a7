"""Folders of arrays: a manifest that says everything, beside a sub-folder of ``.npy`` files.

``manifest.json`` is the commit point. Saving writes the arrays into a new sub-folder, syncs them, and then
replaces the manifest in one rename: whenever the power fails, the old or the new content is there. What an
interrupted save left behind is removed by the next one.

The manifest holds the format, the version, the caller's description, and the size and SHA-256 of every
file, and ends with a SHA-256 of itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from posh.errors import FormatError
from posh.store import Arrays, atomic_write, sync_folder

__all__ = ["read_folder", "require_free", "write_folder"]

MANIFEST = "manifest.json"
_BLOCK = 1 << 22
_SMALL = 1 << 24  # bytes that are read and compared in no time


def write_folder(
    path: Path,
    kind: str,
    version: int,
    description: Mapping[str, Any],
    arrays: Arrays,
    files: Mapping[str, bytes],
) -> None:
    """Write arrays and small files under ``path``, replacing what is there in one step."""
    require_free(path)
    path.mkdir(parents=True, exist_ok=True)
    data = path / f"data-{uuid.uuid4().hex}"
    data.mkdir()
    try:
        for name, content in files.items():
            (data / name).write_bytes(content)
        for name, array in arrays.items():
            np.save(data / f"{name}.npy", array, allow_pickle=False)
        entries = {file.name: _describe(file) for file in sorted(data.iterdir())}
        manifest = {"format": kind, "version": version, "data": data.name, **description, "files": entries}
        sync_folder(data)
        with atomic_write(path / MANIFEST) as temporary:
            temporary.write_text(json.dumps(manifest | {"sha256": _digest(manifest)}, indent=1) + "\n")
    except BaseException:
        shutil.rmtree(data, ignore_errors=True)
        raise
    sync_folder(path)
    for leftover in path.iterdir():
        if leftover.name.startswith("data-") and leftover != data:
            shutil.rmtree(leftover, ignore_errors=True)
        elif leftover.name.startswith(f".{MANIFEST}."):
            leftover.unlink(missing_ok=True)


def require_free(path: Path) -> None:
    """Raise if ``path`` holds anything but what :func:`write_folder` may replace."""
    if not path.exists() or (path / MANIFEST).exists():
        return
    ours = (f".{MANIFEST}.", "data-")
    if not path.is_dir():
        raise NotADirectoryError(f"{path}: expected a folder to write, got a file: choose another name")
    if not all(entry.name.startswith(ours) for entry in path.iterdir()):
        raise FileExistsError(f"{path}: expected an empty folder or a saved index, found other files")


def read_folder(
    path: Path, kind: str, version: int, *, mmap: bool, verify: bool
) -> tuple[dict[str, Any], Arrays, dict[str, bytes]]:
    """Return the description, the arrays and the small files of a folder; anything wrong is a FormatError.

    With ``mmap`` arrays stay on disk until touched. ``verify`` compares the checksums of all files, which
    reads them; those of small files, all sizes and the manifest are checked in any case.
    """
    manifest = _read_manifest(path, kind, version)
    arrays: Arrays = {}
    files: dict[str, bytes] = {}
    for name, entry in manifest["files"].items():
        file = path / manifest["data"] / name
        _check_file(file, entry, verify or entry["bytes"] <= _SMALL)
        if name.endswith(".npy"):
            arrays[name.removesuffix(".npy")] = _read_array(file, mmap)
        else:
            files[name] = file.read_bytes()
    return manifest, arrays, files


def _read_manifest(path: Path, kind: str, version: int) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        digest = manifest.pop("sha256")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: expected a saved index, found no {MANIFEST}") from None
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise FormatError(f"{path / MANIFEST}: not a readable manifest ({error})") from error
    if manifest.get("format") != kind:
        raise FormatError(f"{path}: expected the format {kind!r}, found {manifest.get('format')!r}")
    if manifest.get("version") != version:
        found = manifest.get("version")
        raise FormatError(
            f"{path}: expected format version {version}, found {found}: upgrade posh-ann to read it"
        )
    if digest != _digest(manifest):
        raise FormatError(f"{path / MANIFEST}: the checksum does not match: the file is damaged")
    names = [manifest["data"], *manifest["files"]]
    if any(Path(name).name != name for name in names):
        raise FormatError(f"{path / MANIFEST}: names a file outside of its folder")
    return dict(manifest)


def _check_file(file: Path, entry: Mapping[str, Any], verify: bool) -> None:
    try:
        size = file.stat().st_size
    except OSError as error:
        raise FormatError(f"{file}: listed in the manifest, but missing") from error
    if size != entry["bytes"]:
        raise FormatError(f"{file}: expected {entry['bytes']} bytes, found {size}")
    if verify and _describe(file) != entry:
        raise FormatError(f"{file}: the checksum does not match: the file is damaged")


def _read_array(file: Path, mmap: bool) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(file, mmap_mode="r" if mmap else None, allow_pickle=False)
    except (
        Exception
    ) as error:  # NumPy evaluates the header: a damaged one raises what Python's tokenizer does
        raise FormatError(f"{file}: not a readable array ({error})") from error
    return array


def _describe(file: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
        os.fsync(content.fileno())
    return {"bytes": file.stat().st_size, "sha256": digest.hexdigest()}


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
