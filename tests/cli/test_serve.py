"""``posh serve`` as a process; ``tests/serve`` has the tests of the service."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import sys
from posh.cli import main
try:
    main(["serve", sys.argv[1], "--host", "0.0.0.0"])
except SystemExit:
    pass
import numpy
from threadpoolctl import threadpool_info
print({pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"})
"""


def test_a_service_does_not_wake_the_threads_of_blas(tmp_path):
    """They would spin on the cores that requests need. The command ends early, because it has no token."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS", "POSH_TOKEN"))
    }
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "{1}\n"
