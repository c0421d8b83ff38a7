"""Pytest plugin: test the extension of build/coverage-native, which counts the lines that it executes.

Use it as ``pytest -p tests.native.instrumented``; ``make coverage-native`` builds the extension.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build" / "coverage-native"


def load_extension() -> None:
    """Import the instrumented extension as ``posh._native``, before any test imports posh."""
    (path,) = BUILD.glob("_native*.so")
    loader = ExtensionFileLoader("posh._native", str(path))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    loader.exec_module(module)


load_extension()
