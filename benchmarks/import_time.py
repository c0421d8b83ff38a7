"""CPU time of imports in a new process, compared with that of ``sklearn.base``; the best of several rounds.

    python -m benchmarks.import_time [--rounds 7]

Each round goes through all cases, so that a busy machine slows all of them alike.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

RIVAL = "import sklearn.base"
HELP = "import sys; sys.argv = ['posh', '--help']; from posh.cli import main; main()"
CASES = {
    "an empty program": "pass",
    RIVAL: RIVAL,
    "import posh": "import posh",
    "posh --help": HELP,
    "posh.Index": "import posh; posh.Index",
}


def cpu_seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    best = dict.fromkeys(CASES, float("inf"))
    for _ in range(arguments.rounds):
        for name, code in CASES.items():
            best[name] = min(best[name], cpu_seconds(code))
    for name, seconds in best.items():
        print(f"{name:<24} {seconds:6.3f} s   {seconds / best[RIVAL]:5.2f} times sklearn.base")


if __name__ == "__main__":
    main()
