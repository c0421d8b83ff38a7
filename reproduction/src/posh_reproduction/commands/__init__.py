"""The commands that this package adds to ``posh``; their modules are imported when they are chosen."""

from __future__ import annotations

from posh.cli._command import Command

__all__ = ["BENCH_ANN", "DEMO", "REPRODUCE"]

BENCH_ANN = Command(
    "compare recall and queries per second with other libraries", "posh_reproduction.commands.bench_ann"
)
DEMO = Command(
    "learn, encode and search handwritten digits, and draw the neighbours found",
    "posh_reproduction.commands.demo",
)
REPRODUCE = Command("run the experiments of the paper", "posh_reproduction.commands.reproduce")
