"""Does one unit: gives its record, or the traceback if it failed."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from posh._threads import one_blas_thread
from posh_reproduction.experiments.environment import environment
from posh_reproduction.experiments.kinds import KINDS
from posh_reproduction.experiments.records import Record
from posh_reproduction.experiments.spec import Unit

__all__ = ["Outcome", "outcome_of"]


class Outcome(NamedTuple):
    """The record of a unit, or the traceback of its failure."""

    unit: Unit
    record: Record | None
    error: str | None = None


def outcome_of(unit: Unit, commit: str | None) -> Outcome:
    """Do a unit on one thread. A failure is returned, not raised, so that the other units go on."""
    kind = KINDS[unit["kind"]]
    try:
        with one_blas_thread:
            measured = kind.measure(unit)
            record = {
                "unit": unit,
                "identity": kind.identity(unit),
                **measured,
                "environment": _environment(commit),
                "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            }
    except Exception:
        return Outcome(unit, None, traceback.format_exc())
    return Outcome(unit, record)


_environment = lru_cache(maxsize=1)(environment)  # reading it takes a while, and it does not change
