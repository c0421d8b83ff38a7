"""The commands that this package adds to ``posh``; their modules are imported when they are chosen."""

from __future__ import annotations

from posh.cli._command import Command

__all__ = ["BENCH", "DEMO", "REPRODUCE"]

BENCH = Command(
    "measure the speed of this machine, and compare with other libraries",
    "posh_reproduction.commands.bench:add_bench",
)
DEMO = Command(
    "learn, encode and search handwritten digits, and draw the neighbours found",
    "posh_reproduction.commands.demo:add_demo",
)
REPRODUCE = Command("run the experiments of the paper", "posh_reproduction.commands.reproduce:add_reproduce")
