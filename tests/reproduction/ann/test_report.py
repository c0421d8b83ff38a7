"""The report, from made-up records and without data."""

from __future__ import annotations

import json

import numpy as np
import pytest

from posh import datasets
from posh.cli import main
from posh_reproduction.ann import labels, report
from posh_reproduction.ann.evidence import cases_in
from posh_reproduction.ann.measure import Setting

MAIN = Setting(10, 1000, 1)
SETTINGS = [MAIN, Setting(10, 1, 1), Setting(10, 1000, 2), Setting(100, 1000, 1)]
CURVES = {  # contender: (parameter, recall, queries per second)
    "posh-ivf": [(1, 0.88, 60_000.0), (2, 0.96, 40_000.0), (3, 0.99, 20_000.0)],
    "posh-exact": [(1, 0.97, 10_000.0)],
    "scann": [(1, 0.90, 20_000.0), (2, 0.95, 10_000.0)],
    "hnswlib": [(1, 0.85, 5000.0), (2, 0.985, 1000.0)],
}


def records(identity="now", scale=1.0):
    shared = {"case": "toy", "metric": "cosine", "n_base": 1234}
    for name, points in CURVES.items():
        environment = {"chip": "a chip", "cores": "2", "kernel": "scalar"}
        build = {"kind": "build", **shared, "contender": name, "build": {"lists": 4}, "threads": 2}
        costs = {"seconds": 3.5, "bytes_per_vector": 321.0, "n_features": 56}
        yield {"unit": build, "identity": {}, **costs, "environment": environment}
        for parameter, recall, rate in points:
            for setting in SETTINGS:
                for half, number in (("choose", 0), ("report", 0), ("report", 1)):
                    unit = {"contender": name, "build": {"lists": 4}, "search": {"p": parameter}}
                    unit |= {**setting._asdict(), "half": half, "round": number}
                    seconds = 1000 / (rate * scale * setting.threads) * (1 + number)
                    yield {
                        "unit": {"kind": "search", **shared, **unit},
                        "identity": {"versions": dict.fromkeys(CURVES, "1.0"), "content": identity},
                        "recall": recall - (0.01 if half == "choose" else 0),
                        "seconds": seconds,
                        "cpu_seconds": seconds,
                        "n_queries": 1000,
                    }


def label_records():
    summary = {"mean": 0.8, "std": 0.1, "n_queries": 100}
    measures = {f"{metric}_map_1000": summary for metric in labels.FLOATS}
    yield {"unit": labels.units(("mnist",))[0], "identity": {}, "measures": measures}
    for seed in range(2):
        unit = {"kind": "labels", "data": "mnist", "method": "POSH 128", "seed": seed}
        gains = {"gain_over_euclidean": summary | {"mean": 0.04}, "gain_over_cosine": summary | {"mean": 0.0}}
        yield {"unit": unit, "identity": {}, "measures": {"map_1000": summary, **gains}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    def no_data(*_, **__):
        raise AssertionError("a report needs no data")

    monkeypatch.setattr(datasets, "load", no_data)
    for record in [*records(), *label_records()]:
        with (tmp_path / f"{record['unit']['kind']}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
    return tmp_path


def test_ours_are_divided_by_the_best_peer_at_the_same_recall(folder):
    (case,) = cases_in(folder)
    at_95 = case.compared(MAIN, 0.95)
    assert at_95.peer == "scann"
    assert at_95.peer_rate == pytest.approx(10_000)
    share = (0.95 - 0.88) / (0.96 - 0.88)
    assert at_95.ours["posh-ivf"] == pytest.approx(60_000 ** (1 - share) * 40_000**share)
    assert at_95.ours["posh-exact"] == 10_000.0
    at_98 = case.compared(MAIN, 0.98)
    assert at_98.peer == "hnswlib"  # scann does not reach it
    assert at_98.ours["posh-exact"] is None


def test_the_summary_has_a_table_for_the_readme(folder):
    text = "\n".join(report.summary(cases_in(folder)))
    assert "| data | one query at a time | batches of 1,000 |" in text
    rates = "42,080 posh-ivf (scann 10,000: **4.2×**)"
    assert f"| toy: 1,234 × 56, cosine | {rates} | {rates} |" in text


def test_the_default_is_compared_with_the_best_of_ours(folder, tmp_path):
    report.write(folder, tmp_path / "without")
    assert "posh-default`, compared" not in (tmp_path / "without" / "benchmarks.md").read_text()
    path = folder / "search.jsonl"
    path.write_text(path.read_text().replace("posh-exact", "posh-default"))
    report.write(folder, tmp_path / "with")
    text = (tmp_path / "with" / "benchmarks.md").read_text()
    assert "| toy: 1,234 × 56, cosine | 10,000 | 42,080 (posh-ivf) | 0.24 |" in text


def test_each_contender_has_its_costs_next_to_its_speed(folder, tmp_path):
    report.write(folder, tmp_path)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "| scann | 20,000 | 10,000 | not reached | 0.24 | 3.5 | 2 | 321 | 2 | 1.00 |" in text


def test_a_run_with_another_kernel_is_a_case_of_its_own(folder):
    with (folder / "search.jsonl").open("a") as file:
        for record in records(scale=0.5):
            if record["unit"]["kind"] == "search":
                record["unit"]["kernel"] = "avx2"
                file.write(json.dumps(record) + "\n")
    plain, limited = cases_in(folder)
    assert (plain.kernel, limited.kernel) == (None, "avx2")
    assert limited.compared(MAIN, 0.95).peer_rate == pytest.approx(5000.0)
    assert limited.builds == plain.builds


def test_the_best_round_counts(folder):
    (case,) = cases_in(folder)
    assert [point.rate for point in case.curve("scann", MAIN)] == pytest.approx([20_000, 10_000])
    assert case.rounds == 2


def test_a_run_of_other_versions_is_not_mixed_with_the_latest(folder):
    """The later run was slower in everything: the earlier, faster one does not count."""
    with (folder / "search.jsonl").open("a") as file:
        for record in records("later", scale=0.5):
            if record["unit"]["kind"] == "search":
                record["unit"]["search"] |= {"new": 1}
                file.write(json.dumps(record) + "\n")
    (case,) = cases_in(folder)
    assert case.compared(MAIN, 0.95).peer_rate == pytest.approx(5000.0)


def test_the_report_has_ratios_costs_and_pictures(folder, tmp_path):
    paths = report.write(folder, tmp_path / "docs")
    text = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert "## toy: 1,234 × 56, cosine" in text
    assert "| recall@10, batches of 1,000, 1 thread | 0.95 | 10,000 (scann) |" in text
    assert "(**4.21×**) | 10,000 (**1.00×**) |" in text
    assert "not reached" in text
    assert "| scann | lists:4 | 3.5 | 2 | 321 |" in text
    assert "| POSH 128 | 80.00 ± " in text
    assert "| **+4.00 ± " in text
    pictures = [path for path in paths if path.suffix == ".png"]
    assert len(pictures) == 2
    for path in pictures:
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert f"benchmarks/{path.name}" in text


def test_a_busy_machine_is_not_hidden(folder, tmp_path):
    report.write(folder, tmp_path / "quiet")
    assert "busy" not in (tmp_path / "quiet" / "benchmarks.md").read_text().replace("cores busy", "")
    lines = (folder / "search.jsonl").read_text().splitlines()
    starved = [json.loads(line) for line in lines]
    for record in starved:
        record["cpu_seconds"] *= 0.5
    (folder / "search.jsonl").write_text("".join(json.dumps(record) + "\n" for record in starved))
    report.write(folder, tmp_path / "busy")
    assert "The machine was busy with other work" in (tmp_path / "busy" / "benchmarks.md").read_text()


def test_an_empty_folder_gives_a_report_that_says_so(tmp_path):
    report.write(tmp_path, tmp_path)
    assert "No records yet." in (tmp_path / "benchmarks.md").read_text()


def test_the_command_measures_and_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("POSH_DATA", str(tmp_path / "data"))
    arguments = ["bench", "ann", "--data", "digits", "--n-base", "500", "--quick", "--rounds", "1"]
    arguments += ["--contenders", "brute-force", "posh-exact", "--batches", "1000"]
    arguments += ["--results", str(tmp_path / "r"), "--output", str(tmp_path / "docs")]
    assert main(arguments) == 0
    assert "recall 0.95: best peer" in capsys.readouterr().out
    assert "digits" in (tmp_path / "docs" / "benchmarks.md").read_text()
    before = (tmp_path / "r" / "search.jsonl").read_bytes()
    assert main([*arguments, "--report", "--json"]) == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert case["compared"][0]["peer"] == "brute-force"
    assert (tmp_path / "r" / "search.jsonl").read_bytes() == before


def test_label_retrieval_compares_query_by_query(tmp_path, monkeypatch):
    """Codes of digits beside exact searches of their pixels; the gain is the difference of the means."""
    monkeypatch.setattr(labels, "_DEPTH", 100)
    monkeypatch.setitem(labels.METHODS, "POSH 128", ("FruitFly", 16, False))
    exact = labels.measure({"kind": "labels", "data": "digits", "method": "float", "seed": 0})
    coded = labels.measure({"kind": "labels", "data": "digits", "method": "POSH 128", "seed": 0})
    for metric in labels.FLOATS:
        mean = exact[f"{metric}_map_1000"]["mean"]
        assert 0.5 < mean < 1
        gain = coded["map_1000"]["mean"] - mean
        assert np.isclose(coded[f"gain_over_{metric}"]["mean"], gain)
        assert coded[f"gain_over_{metric}"]["std"] < exact[f"{metric}_map_1000"]["std"] * 1.5
