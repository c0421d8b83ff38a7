"""A comparison chooses on one half only, takes turns, and goes on where it was stopped."""

from __future__ import annotations

import json

import numpy as np
import pytest

from posh_reproduction.ann import runner
from posh_reproduction.ann.cases import Case, Prepared, _true
from posh_reproduction.ann.measure import measure_search
from posh_reproduction.ann.plan import Plan
from posh_reproduction.ann.runner import compare
from posh_reproduction.experiments.records import OtherParametersError, Records

from .stubs import Stub, never

PLAN = Plan(batches=(1000, 1), threads=(1,), depths=(10,), choosing=1, reporting=2)


@pytest.fixture
def data(tmp_path, monkeypatch) -> Prepared:
    monkeypatch.setenv("POSH_DATA", str(tmp_path / "data"))
    rng = np.random.default_rng(0)
    base = rng.normal(size=(300, 8)).astype(np.float32)
    queries = {half: rng.normal(size=(20, 8)).astype(np.float32) for half in ("choose", "report")}
    true = {half: _true(base, asked, half) for half, asked in queries.items()}
    return Prepared(Case("toy", "toy", "euclidean"), base, queries, true, "content")


def run(data, contenders, folder, **options):
    compare(data, contenders, PLAN, Records(folder), say=lambda line: None, **options)
    return [json.loads(line) for line in (folder / "search.jsonl").read_text().splitlines()]


def lines_of(folder):
    path = folder / "search.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def test_parameters_are_chosen_on_one_half_and_reported_on_the_other(data, tmp_path):
    """One parameter is perfect on the first half and useless on the second, the other the reverse."""
    first = {query.tobytes() for query in data.queries["choose"]}
    stub = Stub(
        "stub",
        [{"good_on": "choose"}, {"good_on": "report"}],
        lambda search, query: (query.tobytes() in first) != (search["good_on"] == "choose"),
    )
    records = run(data, [stub], tmp_path / "r")
    reported = [record for record in records if record["unit"]["half"] == "report"]
    assert {record["unit"]["search"]["good_on"] for record in reported} == {"choose"}
    assert {record["recall"] for record in reported} == {0.0}  # and the report does not hide it


def test_a_line_of_parameters_ends_where_nearly_everything_is_found(data, tmp_path):
    careless = {query.tobytes() for query in data.queries["choose"][:1]}
    stub = Stub(
        "stub",
        [{"care": care} for care in range(4)],
        lambda search, query: search["care"] == 0 and query.tobytes() in careless,
    )
    records = run(data, [stub], tmp_path / "r")
    assert {r["unit"]["search"]["care"] for r in records if r["unit"]["half"] == "choose"} == {0, 1}


def test_every_setting_and_round_is_reported(data, tmp_path):
    records = run(data, [Stub("stub", [{}], never)], tmp_path / "r")
    reported = [r["unit"] for r in records if r["unit"]["half"] == "report"]
    assert sorted((unit["batch"], unit["round"]) for unit in reported) == [
        (1, 0),
        (1, 1),
        (1000, 0),
        (1000, 1),
    ]
    assert all(record["recall"] == 1.0 and record["seconds"] > 0 for record in records)


def test_contenders_take_turns(data, tmp_path, monkeypatch):
    """Both have three rungs: the better the recall, the slower they are."""
    spoiled = [{query.tobytes() for query in data.queries["choose"][:n]} for n in (4, 2, 0)]

    def timed(index, queries, setting, params):
        return measure_search(index, queries, setting, params)._replace(seconds=1.0 + params["rung"])

    def spoils(search, query):
        return query.tobytes() in spoiled[search["rung"]]

    monkeypatch.setattr(runner, "measure_search", timed)
    searches = [{"rung": rung} for rung in range(3)]
    records = run(data, [Stub("one", searches, spoils), Stub("two", searches, spoils)], tmp_path / "r")
    reported = [r["unit"] for r in records if r["unit"]["half"] == "report"]
    assert [unit["contender"] for unit in reported] == [*["one"] * 6, *["two"] * 6] * 2  # in 2 rounds
    assert [unit["search"]["rung"] for unit in reported[:6]] == [0, 1, 2] * 2  # in 2 settings


def test_a_run_goes_on_where_it_was_stopped(data, tmp_path):
    whole = run(data, [Stub("stub", [{"a": 1}], never)], tmp_path / "whole")

    def stop():
        if stub.n_asked == 4:
            raise KeyboardInterrupt

    stub = Stub("stub", [{"a": 1}], never)
    stub.on_search = stop
    with pytest.raises(KeyboardInterrupt):
        run(data, [stub], tmp_path / "r")
    before = lines_of(tmp_path / "r")
    assert 0 < len(before) < len(whole)
    stub.on_search = lambda: None
    run(data, [stub], tmp_path / "r")
    after = lines_of(tmp_path / "r")
    assert after[: len(before)] == before
    units = [json.dumps(json.loads(line)["unit"]) for line in after]
    assert len(units) == len(set(units))


def test_a_complete_run_measures_and_builds_nothing_again(data, tmp_path):
    run(data, [Stub("stub", [{}], never)], tmp_path / "r")
    before = lines_of(tmp_path / "r")
    again = Stub("stub", [{}], never)
    run(data, [again], tmp_path / "r")
    assert (again.n_built, again.n_asked) == (0, 0)
    assert lines_of(tmp_path / "r") == before


def test_records_of_other_code_do_not_count(data, tmp_path):
    """After a change of one contender, all are compared again: a ratio is of one run."""
    old, rival = Stub("stub", [{}], never), Stub("rival", [{}], never)
    run(data, [old, rival], tmp_path / "r")
    new, rival = Stub("stub", [{}], never), Stub("rival", [{}], never)
    new.number = "2"
    with pytest.raises(OtherParametersError, match="--recompute"):
        run(data, [new, rival], tmp_path / "r")
    before = len(lines_of(tmp_path / "r"))
    records = run(data, [new, rival], tmp_path / "r", recompute=True)[before:]
    measured = {(r["unit"]["contender"], r["unit"]["half"]) for r in records}
    assert measured == {("stub", "choose"), ("stub", "report"), ("rival", "report")}


def test_what_a_build_costs_is_recorded(data, tmp_path):
    run(data, [Stub("stub", [{}], never)], tmp_path / "r")
    (line,) = (tmp_path / "r" / "build.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record["bytes_per_vector"] == pytest.approx(8 * 4, abs=1)  # of the saved vectors
    assert record["seconds"] >= 0
    assert record["environment"]["chip"]


def test_an_index_is_built_once_and_then_read_from_disk(data, tmp_path):
    """Choosing ahead does not report. The later run needs the same index, which is not built again."""
    first, second = (Stub("stub", [{"a": 1}], never) for _ in range(2))
    chosen = run(data, [first], tmp_path / "r", choose_only=True)
    assert {record["unit"]["half"] for record in chosen} == {"choose"}
    reported = run(data, [second], tmp_path / "r")
    assert (first.n_built, second.n_built) == (1, 0)
    assert {record["unit"]["half"] for record in reported} == {"choose", "report"}


def test_a_run_with_another_kernel_has_its_own_records(data, tmp_path):
    run(data, [Stub("stub", [{}], never)], tmp_path / "r")
    records = run(data, [Stub("stub", [{}], never)], tmp_path / "r", kernel="avx2")
    kernels = [record["unit"].get("kernel") for record in records]
    assert kernels.count("avx2") == kernels.count(None) == len(records) / 2


def test_recall_counts_an_id_once_and_a_missing_one_never(data):
    exact = Stub("stub", [{}], never).build(data.base, "euclidean", 1).searching(10, 1)
    ids = exact(data.queries["report"])
    assert data.recall("report", ids, 10) == 1.0
    twice = ids.copy()
    twice[:, 1] = twice[:, 0]
    assert data.recall("report", twice, 10) == pytest.approx(0.9)
    ids[:, 5:] = -1
    assert data.recall("report", ids, 10) == pytest.approx(0.5)
