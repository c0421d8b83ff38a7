"""Folders of arrays: a manifest beside a sub-folder of ``.npy`` files.

====================  ==================================================================================
``manifest.json``     format, version, the caller's description, size and SHA-256 of every file, and last
                      a SHA-256 of the manifest itself
``posh-data-<hex>/``  the files of one save; in older folders ``data-<hex>``
``.posh-lock``        locked by whoever writes to the folder; readers take no lock
====================  ==================================================================================

The manifest is the commit point. Saving writes a new sub-folder, syncs it, and then replaces the manifest in
one rename. If the power fails at any moment, the folder has either the old or the new content. The next save
removes the files that an interrupted save left behind. No save touches files of other programs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from posh._arrays import MappedFile, check_file, read_array, write_file
from posh._files import atomic_write, locked, make_folder, sync_folder, writing
from posh.errors import FormatError
from posh.model_files import Arrays

__all__ = ["Content", "read_folder", "remove_folder", "require_free", "write_folder"]

MANIFEST = "manifest.json"
LOCK = ".posh-lock"
_HEX = "[0-9a-f]{32}"
_DATA = re.compile(f"posh-data-{_HEX}")
_OLD_DATA = re.compile(f"data-{_HEX}")  # others use such names, too: removed only if our manifest names it
_TEMPORARY = re.compile(rf"\.{re.escape(MANIFEST)}\.{_HEX}")
_SUFFIXES = {".npy", ".safetensors"}  # all files in a sub-folder of ours have one of these
_SMALL = 1 << 24  # bytes; the checksum of a file up to this size is always compared
_TRIES = 100  # attempts to open all files; an attempt fails if another process saves at the same time


# Writing -------------------------------------------------------------------------------------------


def write_folder(
    path: Path,
    kind: str,
    version: int,
    description: Mapping[str, Any],
    arrays: Arrays,
    files: Mapping[str, bytes],
) -> None:
    """Write arrays and small files under ``path``, replacing what is there in one step.

    Writers of one folder wait for one another. After an error the folder has the old content, with one
    exception: if only the last sync failed, it may have the new content.
    """
    require_free(path, kind)  # checked before the lock file is created
    with writing(path, path):
        make_folder(path)
    with writing(path, path), locked(path / LOCK):
        replaced = require_free(path, kind)
        data = path / f"posh-data-{uuid.uuid4().hex}"
        try:
            entries = _write_data(data, arrays, files)
            sync_folder(path)  # the name of the sub-folder must be safe before the manifest refers to it
            manifest = {
                "format": kind,
                "version": version,
                "data": data.name,
                **description,
                "files": entries,
            }
            with atomic_write(path / MANIFEST) as temporary:
                temporary.write_text(json.dumps(manifest | {"sha256": _digest(manifest)}, indent=1) + "\n")
        except BaseException:
            with contextlib.suppress(OSError):
                if require_free(path, kind) != data.name:  # then the manifest is still the old one
                    shutil.rmtree(data)
            raise
        _remove_leftovers(path, data.name, replaced)


def require_free(path: Path, kind: str) -> str | None:
    """Raise if ``path`` holds anything but what :func:`write_folder` may replace.

    Returns the name of the sub-folder that the manifest uses, or ``None`` without a manifest. Files of other
    programs may lie beside a manifest of ours; they stay.
    """
    if not path.exists():
        return None
    if not path.is_dir():
        raise NotADirectoryError(f"{path}: expected a folder to write, got a file: choose another name")
    if (path / MANIFEST).exists():
        return _data_in_use(path / MANIFEST, kind)
    for entry in path.iterdir():
        own = entry.name in (LOCK, MANIFEST)  # another process may have saved a manifest by now
        if not (own or _is_data(entry.name) or _TEMPORARY.fullmatch(entry.name)):
            raise FileExistsError(
                f"{path}: expected an empty folder or a saved index, found other files ({entry.name}): "
                "choose another folder"
            )
    return None


def _data_in_use(file: Path, kind: str) -> str | None:
    try:
        manifest = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != kind:
        raise FileExistsError(
            f"{file}: expected a manifest of the format {kind!r} to replace, found another file: "
            "choose another folder, or remove this one if it is a damaged index"
        )
    name = str(manifest.get("data"))
    return name if _is_data(name) else None


def _write_data(data: Path, arrays: Arrays, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Write and sync a new folder; return the sizes and checksums of its files."""
    data.mkdir()
    entries = {name: write_file(data / name, content) for name, content in files.items()}
    for name, array in arrays.items():
        entries[f"{name}.npy"] = write_file(data / f"{name}.npy", array)
    sync_folder(data)
    return entries


def _remove_leftovers(path: Path, data: str, replaced: str | None) -> None:
    """Remove what interrupted saves left behind, and the sub-folder ``replaced``; keep ``data``."""
    for entry in path.iterdir():
        with contextlib.suppress(OSError):  # the save has succeeded, so a file that cannot be removed stays
            if _TEMPORARY.fullmatch(entry.name):
                entry.unlink()
            elif entry.name != data and (entry.name == replaced or _DATA.fullmatch(entry.name)):
                _remove_data(entry)


def remove_folder(path: Path, kind: str) -> None:
    """Remove a folder that :func:`write_folder` made, complete or not; keep files of other programs."""
    if path.is_symlink() or not path.is_dir():
        return
    names = {entry.name for entry in path.iterdir()}
    own = {name for name in names if _DATA.fullmatch(name) or _TEMPORARY.fullmatch(name)}
    try:
        own |= {MANIFEST, str(_data_in_use(path / MANIFEST, kind))}
    except FileNotFoundError:  # the save was interrupted
        if not own and names - {LOCK}:
            return
    except FileExistsError:  # a manifest of another program, or a damaged one beside our data
        if not own:
            return
        own.add(MANIFEST)
    for name in own & names:
        if (path / name).is_dir():
            _remove_data(path / name)
        else:
            (path / name).unlink()
    if names <= own | {LOCK}:
        shutil.rmtree(path)


def _remove_data(folder: Path) -> None:
    """Remove a sub-folder, unless it holds files that are not ours."""
    if all(file.suffix in _SUFFIXES for file in folder.iterdir()):
        shutil.rmtree(folder)


# Reading -------------------------------------------------------------------------------------------


class Content(NamedTuple):
    """The content of a folder: manifest, arrays, small files, and the files that arrays are mapped from."""

    manifest: dict[str, Any]
    arrays: Arrays
    files: dict[str, bytes]
    mapped: tuple[MappedFile, ...]


def read_folder(path: Path, kind: str, version: int, *, mmap: bool, verify: bool) -> Content:
    """Return the content of a folder; anything wrong is a FormatError.

    With ``mmap``, arrays stay on disk until they are used. The manifest, the sizes of all files and the
    checksums of small files are always checked. ``verify`` checks the checksums of large files, too, and so
    reads them.
    """
    manifest, opened, stack = _open_folder(path, kind, version)
    arrays: Arrays = {}
    files: dict[str, bytes] = {}
    mapped: list[MappedFile] = []
    with stack:
        for name, file in opened.items():
            place, entry = path / manifest["data"] / name, manifest["files"][name]
            check_file(place, file, entry, verify=verify or entry["bytes"] <= _SMALL)
            if not name.endswith(".npy"):
                files[name] = file.read()
                continue
            array = arrays[name.removesuffix(".npy")] = read_array(place, file, mmap=mmap)
            if mmap:
                mapped.append(MappedFile.of(array, place, entry["bytes"]))
    return Content(manifest, arrays, files, tuple(mapped))


def _open_folder(
    path: Path, kind: str, version: int
) -> tuple[dict[str, Any], dict[str, BufferedReader], contextlib.ExitStack]:
    """Return the manifest, its files, all of them open, and the stack that closes them.

    A save at the same time removes the files, but files that are open can still be read to the end.
    """
    manifest = _read_manifest(path, kind, version)
    for _ in range(_TRIES):
        try:
            with contextlib.ExitStack() as stack:
                folder = path / manifest["data"]
                opened = {name: stack.enter_context((folder / name).open("rb")) for name in manifest["files"]}
                return manifest, opened, stack.pop_all()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            newer = _read_manifest(path, kind, version)
            if newer == manifest:
                raise FormatError(f"{error.filename}: listed in the manifest, but missing") from error
            manifest = newer
    raise FormatError(f"{path}: expected files that stay, but {_TRIES} saves have replaced them: try again")


def _read_manifest(path: Path, kind: str, version: int) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        digest = manifest.pop("sha256")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: expected a saved index, found no {MANIFEST}") from None
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
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
    if not _is_data(str(manifest["data"])) or any(Path(name).name != name for name in manifest["files"]):
        raise FormatError(f"{path / MANIFEST}: names a file outside of its folder")
    return dict(manifest)


def _is_data(name: str) -> bool:
    return bool(_DATA.fullmatch(name) or _OLD_DATA.fullmatch(name))


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
