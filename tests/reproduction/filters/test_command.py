"""``posh bench filters`` measures, goes on where it was stopped, and writes its report from records."""

from __future__ import annotations

import json

import pytest

from posh.cli import main
from posh_reproduction.filters.evidence import cases_in

ARGUMENTS = ["bench", "filters", "--data", "digits", "--n-base", "900", "--quick", "--n-queries", "10"]


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    monkeypatch.setenv("POSH_DATA", str(tmp_path / "data"))
    folders = ["--results", str(tmp_path / "r"), "--output", str(tmp_path / "docs")]
    return [*ARGUMENTS, "--contenders", "posh", "posh-collection", *folders]


def test_the_command_measures_and_writes(arguments, tmp_path, capsys):
    assert main([*arguments, "--k", "10", "100", "--rounds", "2"]) == 0
    assert "posh: lowest recall 1.000, below 0.93 in 0" in capsys.readouterr().out  # all are compared
    text = (tmp_path / "docs" / "recall-under-filters.md").read_text()
    assert " | posh | 1.000 | 0 of 36 | – | 1.00 |" in text
    assert "| anti-correlated, 4 % (" in text
    for k in (10, 100):
        (picture,) = (tmp_path / "docs" / "recall-under-filters").glob(f"digits-*-{k}.png")
        assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert f"recall-under-filters/{picture.name}" in text
    before = {path.name: path.read_bytes() for path in (tmp_path / "r").glob("*.jsonl")}
    assert main([*arguments, "--k", "10", "100", "--rounds", "2"]) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "r").glob("*.jsonl")} == before
    capsys.readouterr()
    assert main([*arguments, "--report", "--json"]) == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert len(case["cells"]) == 72
    assert {cell["recall"] for cell in case["cells"]} == {1.0}


def test_a_run_goes_on_where_it_was_stopped(arguments, tmp_path):
    assert main(arguments) == 0
    path = tmp_path / "r" / "search.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:7]) + "\n")
    assert main(arguments) == 0
    after = path.read_text().splitlines()
    assert after[:7] == lines[:7]
    assert [json.loads(line)["unit"] for line in after] == [json.loads(line)["unit"] for line in lines]


def made_up(folder):
    unit = {"case": "toy", "metric": "cosine", "n_base": 1000, "relation": "independent", "k": 10}
    for name, effort, share, recall, rate in (
        ("posh", "plain", 0.5, 0.96, 1000),
        ("posh", "plain", 0.1, 0.97, 2000),
        ("zvec", "plain", 0.5, 0.92, 9000),
        ("zvec", "plain", 0.1, 0.94, 3000),
        ("zvec", "enlarged", 0.5, 0.99, 500),
        ("zvec", "enlarged", 0.1, 0.99, 600),
    ):
        for number in (0, 1):
            own = {"contender": name, "effort": effort, "share": share, "round": number}
            seconds = {"cpu_seconds": (1 + number) / rate, "seconds": 9.0}
            values = {"recall": recall, "error": 0.001, "n_passing": 7, "n_queries": 1}
            yield {"unit": {"kind": "search", **unit, **own}, "identity": {}, **values, **seconds}
    folder.mkdir()


def test_the_best_round_counts_and_too_low_recall_does_not(tmp_path):
    records = list(made_up(tmp_path / "r"))
    (tmp_path / "r" / "search.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (case,) = cases_in(tmp_path / "r")
    assert list(case.points) == ["posh", "zvec", "zvec+"]
    half, tenth = case.cells
    assert case.points["zvec"][tenth].rate == pytest.approx(3000)
    assert [case.fastest(cell) for cell in (half, tenth)] == ["posh", "zvec"]
    assert case.verdict("zvec") == (0.92, 1, 1, pytest.approx(1.5))
    assert case.verdict("zvec+") == (0.99, 0, 0, pytest.approx(0.4))
