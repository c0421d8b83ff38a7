"""Progress bars."""

from __future__ import annotations

import subprocess
import sys

ALONE = """
import threading
from posh._progress import progress
assert list(progress(range(3), "counting")) == [0, 1, 2]
assert threading.active_count() == 1
"""


def test_no_thread_is_left_that_a_fork_could_meet_with_its_lock_held():
    subprocess.run([sys.executable, "-c", ALONE], check=True)
