"""The report, from a handful of made-up records."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from posh.cli import main
from posh_reproduction import report
from posh_reproduction.experiments import SPECS, learning, orthogonality, sbiht, scale, trial
from posh_reproduction.report import claims_trials, objectives, outline, paper
from posh_reproduction.report.estimates import Difference, estimate, gain, mean_of, paired, versus_paper
from posh_reproduction.report.evidence import Evidence
from posh_reproduction.report.judge import CONFIRMED, MISSING, MIXED, REFUTED, UNDECIDED, always, mostly
from posh_reproduction.report.paper import Printed
from posh_reproduction.report.sections_trials import agreement


def value(mean, std=0.2, n_queries=400):
    return {"mean": mean, "std": std, "n_queries": n_queries}


def record(unit, **measured):
    environment = {"chip": "a chip", "kernel": "scalar", "commit": "abc"}
    return {"unit": unit, "identity": {}, "environment": environment, **measured}


def trial_record(data, method, size, seed, mean, **measures):
    found = {name: value(mean) for name in ("map_100", "map_1000", "precision_1000")}
    return record(trial.unit(data, method, size, seed), measures=found | measures)


def written(folder, records):
    for one in records:  # not by Records, which waits for the disk after each
        with (folder / f"{one['unit']['kind']}.jsonl").open("a") as file:
            file.write(json.dumps(one) + "\n")
    return Evidence(folder, quick=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def evidence(folder):
    """Two trials in which everything is as the paper has it, but POSH at 64 bits on MNIST."""
    records = []
    for unit in SPECS["figure-3"].full:
        if unit["seed"] < 2 and unit["data"] != "cifar10-gist":
            mean = paper.figure_3(unit["data"], unit["method"], unit["size"]).mean / 100
            mean += 0.0005 * unit["seed"]
            if (unit["data"], unit["method"], unit["size"]) == ("mnist", "POSH", 64):
                mean -= 0.3
            one = trial_record(unit["data"], unit["method"], unit["size"], unit["seed"], mean)
            if unit["method"] == "POSH":
                for factor, extra in ((2, 0.02), (5, 0.01), (10, 0.005)):
                    one["measures"][f"map_100_cr{factor}"] = value(mean + extra)
                    one["measures"][f"map_100_cr{factor}_gain"] = value(extra, 0.01)
            records.append(one)
    return written(folder, records)


def verdict(claims, start):
    (found,) = [claim for claim in claims if claim.text.startswith(start)]
    return found.verdict


# Formulas ------------------------------------------------------------------------------------------------


def test_the_joint_interval_is_that_of_the_formula():
    trials = [
        {"measures": {"map": value(mean, std)}} for mean, std in ((0.5, 0.2), (0.52, 0.3), (0.51, 0.25))
    ]
    gap = versus_paper(estimate(trials, "map"), Printed(50.0, 0.4))
    trial_part = np.var([50, 52, 51], ddof=1) / 3
    query_part = np.mean([20**2, 30**2, 25**2]) / 400
    parts = [(trial_part, 2), (query_part, 399), (0.4**2 / 10, 9), (query_part, 399)]
    total = sum(variance for variance, _ in parts)
    freedom = total**2 / sum(variance**2 / degrees for variance, degrees in parts)
    assert gap.value == pytest.approx(1.0)
    assert gap.half == pytest.approx(scipy.stats.t.ppf(0.975, freedom) * np.sqrt(total))
    assert gap.agrees


def test_the_interval_over_trials_is_students():
    trials = [{"measures": {"map": value(mean)}} for mean in (0.5, 0.52, 0.54)]
    expected = scipy.stats.t.ppf(0.975, 2) * 2 / np.sqrt(3)
    assert estimate(trials, "map").half == pytest.approx(expected)
    assert np.isnan(estimate(trials[:1], "map").half)


def test_trials_are_paired_by_seed():
    ours = [trial_record("mnist", "POSH", 64, seed, mean) for seed, mean in ((0, 0.5), (1, 0.7), (5, 0.1))]
    others = [trial_record("mnist", "LSH", 64, seed, mean) for seed, mean in ((1, 0.6), (0, 0.3))]
    found = paired(ours, others, "map_1000")
    assert found.value == pytest.approx(15.0)
    assert found.half == pytest.approx(scipy.stats.t.ppf(0.975, 1) * np.std([20, 10], ddof=1) / np.sqrt(2))
    assert paired(ours, [], "map_1000") is None


def test_a_gain_is_uncertain_by_trials_and_by_queries():
    trials = [{"measures": {"gain": value(mean, 0.1, 100)}} for mean in (0.01, 0.03)]
    found = gain(estimate(trials, "gain"))
    parts = [(0.1**2 * 100**2 / 100, 99), (np.var([1, 3], ddof=1) / 2, 1)]
    total = sum(variance for variance, _ in parts)
    freedom = total**2 / sum(variance**2 / degrees for variance, degrees in parts)
    assert found.half == pytest.approx(scipy.stats.t.ppf(0.975, freedom) * np.sqrt(total))


@pytest.mark.parametrize(
    ("gap", "agrees"),
    [((1.4, 0.1), True), ((1.6, 1.7), True), ((-1.6, 0.1), False), ((1.6, float("nan")), False)],
)
def test_agreement_is_closeness_or_an_interval_around_zero(gap, agrees):
    assert Difference(*gap).agrees is agrees


# Verdicts ------------------------------------------------------------------------------------------------

UP, DOWN, OPEN = Difference(2, 1), Difference(-2, 1), Difference(1, 2)


@pytest.mark.parametrize(
    ("leads", "every", "most"),
    [
        ([UP, UP, UP], CONFIRMED, CONFIRMED),
        ([UP, UP, OPEN], UNDECIDED, CONFIRMED),
        ([UP, UP, DOWN], REFUTED, CONFIRMED),
        ([DOWN, DOWN, UP], REFUTED, REFUTED),
        ([OPEN, OPEN, UP], UNDECIDED, UNDECIDED),
        ([OPEN, DOWN, UP], REFUTED, MIXED),
        ([UP, UP, None], UNDECIDED, CONFIRMED),
        ([None, None], MISSING, MISSING),
    ],
)
def test_verdicts(leads, every, most):
    assert always("a claim", leads).verdict == every
    assert mostly("a claim", leads).verdict == most


def test_orderings_are_judged_both_ways(evidence):
    claims = list(claims_trials.claims(evidence))
    assert verdict(claims, "SphericalHash and BOSL dominate at few") == CONFIRMED
    assert verdict(claims, "POSH dominates at many") == CONFIRMED
    assert (
        verdict(claims, "POSH is superior to SphericalHash at 64") == REFUTED
    )  # it was made 30 points worse
    assert verdict(claims, "Refinement by a factor 2") == UNDECIDED  # one of the three sets is missing
    assert verdict(claims, "SphericalHash and POSH are competitive with deep") == MISSING


def test_a_loss_by_refinement_would_be_seen(tmp_path):
    gains = {f"map_100_cr{factor}": value(0.4) for factor in (2, 5, 10)}
    gains["map_100_cr2_gain"] = value(-0.02, 0.01)
    records = [trial_record("mnist", "POSH", 64, seed, 0.42, **gains) for seed in (0, 1)]
    claims = list(claims_trials.claims(written(tmp_path, records)))
    assert verdict(claims, "Refinement by a factor 2") == REFUTED


def epochs(objectives, means):
    pairs = enumerate(zip(objectives, means, strict=True), 1)
    return [{"epoch": n, "objective": o, **value(m)} for n, (o, m) in pairs]


@pytest.mark.parametrize(
    ("means", "expected"), [([0.1, 0.2, 0.3, 0.4], CONFIRMED), ([0.4, 0.3, 0.2, 0.1], REFUTED)]
)
def test_objectives_and_accuracies_are_compared(tmp_path, means, expected):
    falling = epochs([4, 3, 2, 1], means)  # POSH's objective is better when it is lower
    records = [record(learning.unit("POSH", 0, batches=True), epochs=falling)]
    records += [
        record(learning.unit("BioHash", 0, learning_rate=rate), epochs=epochs([0.1, rate, rate, rate], means))
        for rate in (0.02, 0.04)
    ]
    claims = list(objectives.claims(written(tmp_path, records)))
    assert (
        verdict(claims, "A better (lower) objective of POSH goes with better accuracy: from the random")
        == expected
    )
    assert verdict(claims, "A larger learning rate") == CONFIRMED


# The files -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def records(folder, evidence):
    """The folder with a few records of the other kinds as well."""
    entries = {"mean": 1.0, "std": 0.1, "quantiles": {"0.025": 0.8, "0.975": 1.2}, "n": 9}
    found = {
        f"{prefix}{name}": value(0.5)
        for prefix in ("", "cr2_", "coarse_")
        for name in ("recall_1000", "recall_100", "map_1000")
    }
    steps = [{"iteration": n, "loss": 2.0 - n, "met": 0.5, **value(0.3)} for n in (0, 1, 2)]
    others = [
        record(orthogonality.unit(0.2), entries={"diagonal": entries, "others": entries}),
        record(learning.unit("POSH", 0), epochs=epochs([4, 3, 2, 1], [0.1, 0.2, 0.3, 0.4])),
        record(sbiht.unit(16, 0), iterations=steps, unrefined=value(0.2)),
        record(
            scale.unit("glove-100", "POSH", 64, 0),
            measures=found,
            queries_per_second={"exact": 9, "coarse": 99},
        ),
    ]
    for unit in SPECS["figure-1b"].full:
        if unit["seed"] < 2 and unit["data"] == "mnist":
            extra = 0.01 if "weights" in unit["params"] else 0.0
            others.append(record(unit, measures={"map_1000": value(0.5 + extra + 0.001 * unit["seed"])}))
    written(folder, others)
    return folder


@pytest.fixture(scope="module")
def files(records, tmp_path_factory):
    """The paths of a report, which takes seconds to write; no test changes it."""
    return report.write(records, tmp_path_factory.mktemp("docs"))


def content(files, name):
    (path,) = [path for path in files if path.name == name]
    return path.read_text()


def test_the_files(files):
    markdown = content(files, "reproduction.md")
    names = re.findall(r"\]\((reproduction/[^)]+)\)", markdown)
    assert {"reproduction/figure-3.png", "reproduction/figure-1a.png", "reproduction/sbiht.png"} <= set(names)
    assert all((files[0].parent / name).read_bytes().startswith(b"\x89PNG") for name in names)
    assert "**75.29 ± 0.32**<br>paper 75.26 ± 0.35<br>+0.03" in markdown  # POSH, 8 bits, MNIST
    assert "**MNIST**: 39 of 40 cells" in markdown
    assert "**CIFAR10-GIST**: no trials yet" in markdown
    assert "| figure-3 | MAP@1000 of eight methods at 8 to 128 bits | 160 of 1200 units |" in markdown
    assert {path.suffix for path in files} == {".md", ".html", ".png"}


@pytest.mark.parametrize(("seeds", "shown"), [(0, "0 of 10"), (1, "1 of 10"), (10, None)])
def test_an_unfinished_run_says_so_in_the_beginning(tmp_path, seeds, shown):
    cells = [unit for unit in SPECS["figure-3"].full if unit["seed"] <= min(seeds, 9)]
    cells = [unit for unit in cells if unit["seed"] < seeds or unit["data"] == "mnist"]
    evidence = written(
        tmp_path, (trial_record(u["data"], u["method"], u["size"], u["seed"], 0.5) for u in cells)
    )
    text = " ".join(str(block) for block in outline._unfinished(evidence))
    assert (f"{shown} trials are complete" in text) if shown else not text


def test_the_difference_that_disagrees_is_marked(evidence):
    trials = evidence.trials("figure-3")
    assert agreement(trials, "mnist") == (39, 40)
    assert agreement(trials, "cifar10-gist") == (0, 0)


def test_sets_that_cannot_be_had_are_named_and_have_no_numbers(files):
    markdown = content(files, "reproduction.md")
    for name in ("cifar10-vgg", "labelme-gist", "places205"):
        assert f"Needs the authors' file: `posh data fetch {name}`" in markdown
    section = markdown.split("## Table 3: Places205")[1].split("\n## ")[0]
    assert "|" not in section


def test_the_page_needs_nothing_else(files):
    page = content(files, "reproduction.html")
    pictures, links = (re.findall(rf'{name}="([^"]{{0,80}})', page) for name in ("src", "href"))
    assert pictures
    assert all(source.startswith("data:image/png;base64,") for source in pictures)
    assert links
    assert all(link[0] == "#" and f'id="{link[1:]}"' in page for link in links)
    assert not re.search(r"url\(|@import|<script|<link|https?://", page)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_the_same_records_give_the_same_files(records, files, tmp_path):
    again = report.write(records, tmp_path)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in files]


def test_quick_runs_are_not_judged(tmp_path):
    records = [
        record(unit, measures={name: value(0.5) for name in ("map_100", "map_1000", "precision_1000")})
        for unit in SPECS["figure-3"].quick
    ]
    written(tmp_path, records)
    markdown = next(p for p in report.write(tmp_path, tmp_path, quick=True) if p.suffix == ".md").read_text()
    assert "| claim | measurement |" in markdown
    assert "clearly ahead in" in markdown
    for word in ("confirmed", "refuted", "undecided", "What holds", "agree with the paper"):
        assert word not in markdown


def test_quick_runs_train_on_enough_vectors_for_a_decoder():
    units = [unit for spec in SPECS.values() for unit in spec.quick]
    sizes = [unit["n_train"] for unit in units if "n_train" in unit]
    assert sizes
    assert min(sizes) >= 3000
    assert all(10 * unit["per_class"][0] >= unit["n_train"] for unit in units if "per_class" in unit)


@pytest.mark.parametrize("quick", [[], ["--quick"]], ids=["full", "quick"])
def test_nothing_recorded_is_a_report_too(tmp_path, monkeypatch, capsys, quick):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "report", *quick, "--json"]) == 0
    paths = [Path(path) for path in json.loads(capsys.readouterr().out)["written"]]
    assert {path.parent.name for path in paths} == {"reproduction-quick" if quick else "docs"}
    markdown = next(path for path in paths if path.suffix == ".md").read_text()
    assert "0 of 1200 units" in markdown if not quick else "quick twin" in markdown
    assert "confirmed**" not in markdown


def test_means_of_differences():
    assert mean_of([]) is None
    assert np.isnan(mean_of([1.0]).half)
