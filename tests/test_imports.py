"""``import posh`` and ``posh --help`` are quick, because heavy modules are imported when they are used.

Each case runs in a process of its own, and looks at the modules that were imported there.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from posh import cli

HELP = """
from posh.cli import main
try:
    main([*{words}, "--help"])
except SystemExit:
    pass
"""
pytestmark = pytest.mark.skipif("coverage" in sys.modules, reason="coverage imports modules of its own")
HEAVY = {"numpy", "scipy", "sklearn", "sqlite3", "tarfile", "tqdm", "urllib.request"}


def imported(code: str) -> set[str]:
    show = "import sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], check=True, capture_output=True, text=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("code", ["import posh", HELP.format(words=[])], ids=["import posh", "posh --help"])
def test_nothing_heavy_is_imported(code: str) -> None:
    assert not imported(code) & (HEAVY | {"posh.hashers", "posh.index", "posh.collection", "posh.datasets"})


@pytest.mark.parametrize("command", cli._COMMANDS)
def test_the_help_of_a_command_imports_at_most_numpy(command: str) -> None:
    heavy = HEAVY - {"numpy", "urllib.request"}
    assert not imported(HELP.format(words=[command])) & (heavy | {"posh.hashers", "posh.index.codes"})


def test_data_sets_need_no_more_than_numpy() -> None:
    assert not imported("import posh; posh.datasets.is_cached('mnist')") & (HEAVY - {"numpy"})


def test_an_index_needs_neither_a_database_nor_the_network() -> None:
    # scikit-learn imports pandas if it is there, and pandas imports tarfile.
    found = imported("import sys; sys.modules['pandas'] = None; import posh; posh.Index")
    assert not found & {"sqlite3", "tarfile", "tqdm", "urllib.request"}
    assert not found & {"sklearn.datasets", "sklearn.decomposition", "sklearn.neighbors"}
    assert not {name for name in found if name.startswith(("posh.datasets", "posh.collection", "posh.serve"))}


def test_a_command_imports_only_its_own_module() -> None:
    found = imported("from posh.cli import main; main(['data', 'fetch', 'digits'])")
    commands = {name for name in found if name.startswith("posh.cli._")}
    assert commands == {"posh.cli._command", "posh.cli._data"}
