"""Runs that stop, go on, fail or find other parameters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import posh
from posh.cli import main
from posh.hashers import HASHERS
from posh_reproduction.experiments import SPECS, Spec, key, remaining, run, trial
from posh_reproduction.experiments.records import OtherParametersError
from posh_reproduction.experiments.spec import seed_major

UNITS = [
    trial.unit("digits", method, 16, seed, n_train=200, n_queries=50)
    for method in ("LSH", "ITQ")
    for seed in (0, 1)
]


def lines(folder):
    return [json.loads(line) for line in (folder / "trial.jsonl").read_text().splitlines()]


def cells(records):
    return [(record["unit"]["method"], record["unit"]["seed"]) for record in records]


def test_all_of_the_first_seed_comes_first(tmp_path):
    list(run(UNITS, tmp_path))
    assert cells(lines(tmp_path)) == [("LSH", 0), ("ITQ", 0), ("LSH", 1), ("ITQ", 1)]


def test_a_run_that_stopped_goes_on(tmp_path):
    first = run(UNITS, tmp_path)
    next(first)
    next(first)
    first.close()
    assert cells(lines(tmp_path)) == [("LSH", 0), ("ITQ", 0)]
    assert [outcome.unit["seed"] for outcome in run(UNITS, tmp_path)] == [1, 1]
    assert len(lines(tmp_path)) == 4
    assert list(run(UNITS, tmp_path)) == []


def test_a_unit_that_two_experiments_share_is_done_once():
    assert len(seed_major([*UNITS, *reversed(UNITS)])) == 4


def test_a_record_says_what_was_measured_how_and_where(tmp_path):
    (outcome,) = run(UNITS[:1], tmp_path)
    (record,) = lines(tmp_path)
    assert record == outcome.record
    assert record["unit"] == UNITS[0]
    assert record["identity"]["hasher"] == {"n_bits": 16, "random_state": 0}
    assert record["identity"]["data"]["base"] == [1597, 64]
    assert {"chip", "kernel", "posh", "numpy", "scipy", "thread pools", "commit"} <= set(
        record["environment"]
    )
    assert record["fit_seconds"] > 0
    assert set(record["measures"]["map_1000"]) == {"mean", "std", "n_queries"}


class OtherLSH(posh.LSH):
    """LSH after somebody gave it another parameter."""

    def __init__(self, n_bits=64, *, scale=2.0, random_state=None):
        super().__init__(n_bits, random_state=random_state)
        self.scale = scale


def test_a_run_with_other_parameters_is_noticed(tmp_path, monkeypatch):
    list(run(UNITS[:1], tmp_path))
    monkeypatch.setitem(HASHERS, "LSH", OtherLSH)
    with pytest.raises(OtherParametersError, match=r"'scale': 2\.0"):
        list(run(UNITS[:1], tmp_path))
    assert len(lines(tmp_path)) == 1
    assert remaining(UNITS[:1], tmp_path, recompute=True) == UNITS[:1]
    list(run(UNITS[:1], tmp_path, recompute=True))
    assert lines(tmp_path)[1]["identity"]["hasher"]["scale"] == 2.0
    assert remaining(UNITS[:1], tmp_path) == []


def test_two_processes_measure_what_one_does(tmp_path):
    list(run(UNITS, tmp_path / "one"))
    list(run(UNITS, tmp_path / "two", jobs=2))
    one, two = ({key(r["unit"]): r["measures"] for r in lines(tmp_path / name)} for name in ("one", "two"))
    assert one == two
    assert all("x2" not in record["environment"]["thread pools"] for record in lines(tmp_path / "two"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_unit_that_fails_does_not_stop_the_others(tmp_path, jobs):
    broken = {**UNITS[0], "n_train": 1}
    outcomes = {key(outcome.unit): outcome for outcome in run([broken, UNITS[1]], tmp_path, jobs=jobs)}
    assert "ValueError" in outcomes[key(broken)].error
    assert outcomes[key(UNITS[1])].record is not None
    assert remaining([broken, UNITS[1]], tmp_path) == [broken]


SCRIPT = """
import signal, sys
from pathlib import Path
from posh_reproduction.experiments import run, trial

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits that it is ignored
    units = [trial.unit("digits", "FruitFly", 16, seed, n_queries=20) for seed in range(5000)]
    for outcome in run(units, Path(sys.argv[1]), jobs=2):
        print("done", flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_a_killed_run_leaves_whole_lines_and_no_workers(tmp_path, how):
    script = tmp_path / "many.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, script, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "done\n"
    process.send_signal(how)
    _, errors = process.communicate(timeout=120)  # ends when the last worker does: they hold the pipes too
    if how == signal.SIGINT:  # after kill -9, joblib cleans up, and says so
        assert "leaked" not in errors
    assert process.returncode != 0
    done = lines(tmp_path)
    assert 1 <= len(done) < 5000


def test_a_killed_worker_is_an_error_with_a_remedy(tmp_path):
    units = [trial.unit("digits", "FruitFly", 16, seed, n_queries=20) for seed in range(5000)]
    running = run(units, tmp_path, jobs=2)
    next(running)
    children = [int(pid) for task in Path("/proc/self/task").iterdir() for pid in _words(task / "children")]
    workers = [
        pid for pid in children if any("popen_loky" in word for word in _words(f"/proc/{pid}/cmdline"))
    ]
    os.kill(workers[0], signal.SIGKILL)
    with pytest.raises(ChildProcessError, match="start again, with fewer jobs"):
        list(running)
    assert 1 <= len(lines(tmp_path)) < 5000


def _words(path):
    try:
        return Path(path).read_text().replace("\0", " ").split()
    except OSError:  # of a thread or a process that has ended
        return []


@pytest.fixture
def tiny(monkeypatch):
    spec = Spec("tiny", "a title", "a claim", "a protocol", full=tuple(UNITS), quick=tuple(UNITS[:1]))
    monkeypatch.setitem(SPECS, "tiny", spec)


@pytest.mark.usefixtures("tiny")
def test_the_command_runs_and_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "run", "tiny", "--quick"]) == 0
    output = capsys.readouterr()
    assert "1 units done" in output.out
    assert "1/1 digits LSH 16 seed 0: MAP@1000" in output.err
    assert len(lines(tmp_path / "reproduction-quick")) == 1
    assert main(["reproduce", "run", "tiny", "--results", "reproduction-quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"done": 3, "results": "reproduction-quick"}


@pytest.mark.usefixtures("tiny")
def test_the_command_lists_costs(capsys):
    assert main(["reproduce", "list"]) == 0
    assert "4 units, about" in capsys.readouterr().out


@pytest.mark.usefixtures("tiny")
def test_the_command_reports_failures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(posh.LSH, "fit", lambda self, X: 1 / 0)
    assert main(["reproduce", "run", "tiny", "--quick", "--results", str(tmp_path)]) == 1
    assert "1 of 1 units failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["--all", "figure-3"], ["figure-99"]], ids=["none", "both", "unknown"]
)
def test_the_command_wants_names(arguments, capsys):
    assert main(["reproduce", "run", *arguments]) == 2
    assert "figure-3" in capsys.readouterr().err
