"""The exceptions that only experiments raise."""

from __future__ import annotations

from posh.errors import PoshError

__all__ = ["LeakError", "OtherParametersError"]


class LeakError(PoshError, ValueError):
    """A query is in the base, or a label is among the features: results would be too good."""


class OtherParametersError(PoshError, ValueError):
    """A recorded result is of the same unit, but of other parameters or data than now."""
