"""Raw results: one line of JSON per unit, written when the unit is done and never changed.

A folder has one file per kind of unit. A line that a killed process left half written is cut off before the
next one is written. When a unit was recorded twice, the later record counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from filelock import FileLock, Timeout

from posh.errors import FormatError, PoshError
from posh_reproduction.experiments.spec import Unit, key

__all__ = ["OtherParametersError", "Record", "Records"]

Record: TypeAlias = dict[str, Any]


class OtherParametersError(PoshError, ValueError):
    """A recorded result is of the same unit, but of other parameters or data than now."""


class Records:
    """The raw results in a folder.

    >>> import tempfile
    >>> records = Records(Path(tempfile.mkdtemp()))
    >>> records.append({"unit": {"kind": "trial", "seed": 0}, "identity": {"n": 5}})
    >>> records.find({"kind": "trial", "seed": 0}, {"n": 5})["identity"]
    {'n': 5}
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._by_key: dict[str, dict[str, Record]] = {}

    def latest(self, unit: Unit) -> Record | None:
        """Return the last record of a unit, with any parameters and data, or None."""
        return self._of_kind(unit["kind"]).get(key(unit))

    def find(self, unit: Unit, identity: dict[str, Any]) -> Record | None:
        """The record of a unit, or None; an error if it is of other parameters or data."""
        record = self.latest(unit)
        if record is not None and record["identity"] != json.loads(json.dumps(identity)):
            raise OtherParametersError(self._difference(unit, record["identity"], identity))
        return record

    def every(self, kind: str) -> list[Record]:
        """The last record of each unit of a kind, in the order in which the units were first recorded."""
        return list(self._of_kind(kind).values())

    def append(self, record: Record) -> None:
        """Add a record to the file of its kind; it is on disk when this returns."""
        kind = record["unit"]["kind"]
        line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._path(kind).open("a+b") as file:
            _cut_torn_line(file)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if kind in self._by_key:
            self._by_key[kind][key(record["unit"])] = record

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Prevent other runs from writing here concurrently: two runs would do the same work."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise BlockingIOError(
                f"{self.folder}: expected to be alone, but another run writes here: wait or stop it"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def _path(self, kind: str) -> Path:
        return self.folder / f"{kind}.jsonl"

    def _of_kind(self, kind: str) -> dict[str, Record]:
        if kind not in self._by_key:
            self._by_key[kind] = {key(record["unit"]): record for record in self._read(kind)}
        return self._by_key[kind]

    def _read(self, kind: str) -> Iterator[Record]:
        path = self._path(kind)
        content = _whole_lines(path.read_bytes()) if path.exists() else b""
        for number, line in enumerate(content.splitlines(), 1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise FormatError(f"{path}: expected JSON in line {number}: {error}") from error

    def _difference(self, unit: Unit, recorded: dict[str, Any], now: dict[str, Any]) -> str:
        names = sorted(name for name in {*recorded, *now} if recorded.get(name) != now.get(name))
        shown = ", ".join(f"{name} {now.get(name)} (recorded: {recorded.get(name)})" for name in names)
        return (
            f"{self._path(unit['kind'])}: the record of {key(unit)} is of another experiment: expected "
            f"{shown}; record to another folder (--results), or measure such units again (--recompute)"
        )


def _cut_torn_line(file: BinaryIO) -> None:
    """Remove an incomplete last line."""
    if file.seek(0, os.SEEK_END) == 0:
        return
    file.seek(-1, os.SEEK_END)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(len(_whole_lines(file.read())))


def _whole_lines(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]
