"""Names that other distributions add to ours, found through entry points.

A group of entry points is ``posh.commands`` (what ``posh`` can run), ``posh.bench`` (what ``posh bench`` can
run) or ``posh.datasets`` (what ``posh.datasets.load`` can load). The distribution ``posh-reproduction`` adds
to all of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["hint", "plugins"]


@cache
def plugins(group: str) -> dict[str, Any]:
    """Import what every installed distribution offers in a group: objects by name."""
    from importlib.metadata import entry_points  # slow to import, and most calls need no plugin

    return {point.name: point.load() for point in entry_points(group=group)}


def hint(group: str) -> str:
    """The end of an error about an unknown name: where more names come from, if nothing adds any here."""
    if plugins(group):
        return ""
    return "; posh-reproduction adds more: pip install posh-reproduction, or in a clone: make"
