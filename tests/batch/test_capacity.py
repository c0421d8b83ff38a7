"""The capacity model: it adds up what was measured, and the page has its tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks import capacity

PAGE = Path(__file__).parent.parent.parent / "docs" / "scaling.md"


def measured(kind, times):
    rows = [
        {
            "kind": kind,
            "documents": n,
            "microseconds_per_query": t,
            "microseconds_per_added": 3600.0,
            "bytes_per_document": 100,
        }
        for n, t in times.items()
    ]
    return {"rows": rows, "microseconds_per_merged_list": 0.5}


def test_codes_cost_what_a_line_says():
    costs = capacity.costs(measured("codes", {n: 5 + 2e-4 * n for n in capacity.SIZES}), "codes")
    assert costs.formula == "5.0 + 200.0 n / 10⁶"
    assert costs.search(1e6, 10, 100_000) == pytest.approx(10 * (5 + 20 + 0.5))


def test_a_metric_costs_what_a_power_says():
    costs = capacity.costs(measured("metric", {n: 0.2 * n**0.4 for n in capacity.SIZES}), "metric")
    assert costs.formula == "0.20 n^0.40"
    assert costs.search(1e6, 2, 100_000) == pytest.approx(2 * (0.2 * 100_000**0.4 + 0.5))


def test_the_table_adds_up():
    both = measured("codes", {n: 1e-3 * n + 1e-9 for n in capacity.SIZES})
    both["rows"] += measured("metric", dict.fromkeys(capacity.SIZES, 10.0))["rows"]
    row = capacity.capacity_table(both)[2].split(" | ")
    assert row[2:5] == ["13", "1.0 GB", "1"]
    assert row[5:8] == ["10.00", "10.4 ms", "11"]  # 13 shards of 800 and 0.5 µs, 1,000 times a second
    assert row[8] == "120 bytes |"


def test_the_page_has_the_tables_of_the_results():
    page = PAGE.read_text()
    for line in capacity.tables().splitlines():
        assert line in page


def test_what_is_measured(monkeypatch):
    monkeypatch.setattr(capacity, "N_SIMULATED", 3)
    hasher = capacity.posh.POSH(64, 4, n_epochs=1, random_state=0)
    base = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    row = capacity.measure_index("codes", hasher.fit(base), base, base[:20])
    assert row["documents"] == 300
    assert row["bytes_per_document"] > 8
    done = capacity.simulate(hasher, base, base[:20])
    assert (done["shards"], done["documents"], done["queries"]) == (3, 300, 20)
    assert capacity.measure_merge(base) > 0
