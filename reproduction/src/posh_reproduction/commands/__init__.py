"""The commands that this package adds to ``posh``; their modules are imported when they are chosen."""

from __future__ import annotations

from posh.cli._command import Command

__all__ = ["DEMO", "REPRODUCE"]

DEMO = Command(
    "learn, encode and search handwritten digits, and draw the neighbours found",
    "posh_reproduction.commands.demo",
)
REPRODUCE = Command("run the experiments of the paper", "posh_reproduction.commands.reproduce")
