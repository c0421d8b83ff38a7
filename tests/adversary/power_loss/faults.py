"""Calls that fail: the n-th of a kind, once or from then on."""

from __future__ import annotations

import contextlib
import ctypes
import errno
from collections.abc import Iterator
from dataclasses import dataclass

_NAMES = {
    "o": "open",
    "w": "write",
    "s": "sync",
    "r": "rename",
    "u": "remove",
    "t": "set a length",
    "m": "mkdir",
}


@dataclass(frozen=True)
class Fault:
    """Calls of a kind of ``recorder.c`` that fail with an error; a short write writes half of its bytes."""

    kind: str
    error: int
    is_short: bool = False
    lasts: bool = False  # all later calls of this kind fail, too

    def __str__(self) -> str:
        words = [
            _NAMES[self.kind],
            "short" * self.is_short,
            errno.errorcode[self.error],
            "for good" * self.lasts,
        ]
        return " ".join(word for word in words if word)


FAULTS = [
    Fault("o", errno.EIO),
    Fault("o", errno.ENOSPC, lasts=True),
    Fault("w", errno.EIO),
    Fault("w", errno.ENOSPC, lasts=True),
    Fault("w", errno.ENOSPC, is_short=True),
    Fault("w", errno.ENOSPC, is_short=True, lasts=True),
    Fault("s", errno.EIO),
    Fault("s", errno.EIO, lasts=True),
    Fault("r", errno.EIO),
    Fault("r", errno.ENOSPC),
    Fault("u", errno.EIO),
    Fault("t", errno.EIO),
    Fault("m", errno.ENOSPC),
]


def arm(fault: Fault, number: int) -> None:
    """Let the call with this number fail, counted from 1; only below the folder that is recorded."""
    ctypes.CDLL(None).power_loss_fail(
        ctypes.c_char(fault.kind.encode()), number, fault.error, fault.is_short, fault.lasts
    )


def count_calls(kind: str) -> int:
    """Return the number of calls of a kind since :func:`arm` or :func:`disarm`."""
    return int(ctypes.CDLL(None).power_loss_calls(ctypes.c_char(kind.encode())))


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Let no calls fail, and count none, inside the context."""
    ctypes.CDLL(None).power_loss_pause_faults(1)
    try:
        yield
    finally:
        ctypes.CDLL(None).power_loss_pause_faults(0)


def disarm() -> bool:
    """Let no more calls fail; return whether one has."""
    has_failed = bool(ctypes.CDLL(None).power_loss_has_failed())
    ctypes.CDLL(None).power_loss_fail(ctypes.c_char(b"o"), 0, 0, 0, 0)
    return has_failed
