"""The promise of ``recall=``, from outside: situations that broke it once, and the harness that measures it.

Each situation has a fixed seed. A search may find 0.02 less than promised, plus two standard errors of the
mean over its queries (0.007 each at 0.95 with the 1,000 queries of k = 1; less for larger k).
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmarks.promise import read_complete, summary_lines
from benchmarks.promise_data import DISTRIBUTIONS
from benchmarks.promise_situations import SITUATIONS, Queries, measure_case
from benchmarks.promise_sweep import HISTORIES, Group, measure_group, n_settings, quick_groups
from benchmarks.promise_truth import Measured, true_answers

from tests.index.test_metric import plain_scores

N_DOCUMENTS = 8000  # so that every search is approximate; some situations take a multiple of it


@pytest.mark.parametrize("cases", SITUATIONS.values(), ids=lambda cases: cases.__name__)
def test_the_promise_is_kept(cases):
    broken = []
    for case in cases(np.random.default_rng(0), N_DOCUMENTS):
        for measured in measure_case(case, Queries()):
            if measured.is_short or measured.n_different:
                broken.append(f"{case.variant}: {measured}")
    assert not broken, "\n".join(broken)


# The harness ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_true_answers_are_those_of_a_plain_comparison(name, metric):
    rng = np.random.default_rng(1)
    draw = DISTRIBUTIONS[name](rng)
    vectors, queries, ids = draw(rng, 600), draw(rng, 70), np.flatnonzero(rng.random(600) < 0.7)
    scores = plain_scores(metric, queries, vectors)[:, ids]
    for k, answers in true_answers(metric, vectors, ids, queries, [1, 10, 1000]).items():
        last = -np.sort(-scores, axis=1)[:, min(k, len(ids)) - 1][:, None]
        rows, columns = np.nonzero(scores >= last - 1e-6 * np.abs(last))
        np.testing.assert_array_equal(answers.keys, rows * 600 + ids[columns])
        assert answers.n_true == min(k, len(ids))


def test_only_distinct_right_answers_count():
    vectors = np.arange(1, 11, dtype=np.float32)[:, None]
    queries = np.float32([[1], [2], [5]])
    answers = true_answers("euclidean", vectors, np.arange(9), queries, [2])[2]
    found = np.array([[0, 1], [1, 1], [9, -1]])  # the nearest of 2 are 1 and, equally far, 0 and 2
    np.testing.assert_array_equal(answers.shares(found), [1.0, 0.5, 0.0])
    np.testing.assert_array_equal(answers.shares(np.array([[0, 1], [2, 0]])), [1.0, 1.0])


def test_noise_alone_is_not_short():
    def measured(found, error, single=1.0):
        return Measured(10, 0.95, found, error, 1000, single, 0.02, 60, 0)

    assert not measured(0.93, 0.0).is_short
    assert not measured(0.92, 0.006).is_short
    assert measured(0.92, 0.004).is_short
    assert not measured(0.95, 0.0, single=0.90).is_short
    assert measured(0.95, 0.0, single=0.88).is_short


@pytest.mark.parametrize("group", quick_groups(600, 0), ids=lambda group: group.distribution)
def test_few_documents_are_found_completely(group):
    """Every history and metric of the sweep; the library compares all of so few documents."""
    records = list(measure_group(group, Queries(few_neighbours=20, many_neighbours=10, single=3)))
    assert len(records) == n_settings(group)
    assert {(record["found"], record["found_single"], record["n_different"]) for record in records} == {
        (1.0, 1.0, 0)
    }


def test_an_interrupted_sweep_resumes(tmp_path):
    groups = [Group("ties", "dot", history, 100, 0) for history in HISTORIES]
    queries = Queries(few_neighbours=2, many_neighbours=2, single=1)
    records = [record for group in groups[:2] for record in measure_group(group, queries)]
    output = tmp_path / "records.jsonl"
    text = "".join(json.dumps(record) + "\n" for record in records)
    output.write_text(text[:-30])
    complete = read_complete(output, groups)
    assert complete == records[:60]
    assert [json.loads(line) for line in output.read_text().splitlines()] == complete
    assert read_complete(output, groups[1:]) == []
    assert summary_lines(complete)[0].startswith("60 settings. More than 0.02 below the promise: 0 (0)")
