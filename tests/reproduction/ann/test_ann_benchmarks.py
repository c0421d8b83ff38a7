"""The module for ann-benchmarks, asked as that program asks: its folder, its configuration, its methods."""

from __future__ import annotations

import importlib
import inspect
import shutil
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from posh_reproduction.ann.contenders import CONTENDERS

SOURCE = Path(__file__).parents[3] / "benchmarks" / "ann_benchmarks" / "posh"
# A stand-in with the methods that ann-benchmarks' class has, and what it does if a module leaves them out.
BASE = """
class BaseANN:
    def done(self): pass
    def get_memory_usage(self): return 1.0
    def fit(self, X): pass
    def query(self, q, n): return []
    def batch_query(self, X, n): self.res = [self.query(q, n) for q in X]
    def get_batch_results(self): return self.res
    def get_additional(self): return {}
    def __str__(self): return self.name
"""


@pytest.fixture
def algorithms(tmp_path, monkeypatch):
    """The folder of algorithms in a clone, with ours in it."""
    folder = tmp_path / "ann_benchmarks" / "algorithms"
    (folder / "base").mkdir(parents=True)
    (folder / "base" / "module.py").write_text(BASE)
    shutil.copytree(SOURCE, folder / "posh")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "ann_benchmarks"]:
        del sys.modules[name]


def definitions(folder):
    """Constructor, arguments and groups of query arguments of each run, as ann-benchmarks reads them."""
    yaml = pytest.importorskip("yaml")
    (entry,) = yaml.safe_load((folder / "posh" / "config.yml").read_text())["float"]["any"]
    module = importlib.import_module(f"{entry['module']}.module")
    constructor = getattr(module, entry["constructor"])
    assert entry["docker_tag"] == "ann-benchmarks-posh"
    for group in entry["run_groups"].values():
        lists = [arg if isinstance(arg, list) else [arg] for arg in group["args"]]
        queries = [arg if isinstance(arg, list) else [arg] for arg in group["query_args"]]
        for arguments in product(*lists):
            yield constructor, entry["base_args"], list(arguments), [list(one) for one in product(*queries)]


def test_it_has_the_methods_of_the_interface(algorithms):
    constructor, *_ = next(iter(definitions(algorithms)))
    base = importlib.import_module("ann_benchmarks.algorithms.base.module").BaseANN
    assert issubclass(constructor, base)
    for name in ("fit", "query", "batch_query", "get_batch_results", "get_additional"):
        wanted = list(inspect.signature(getattr(base, name)).parameters)
        assert list(inspect.signature(getattr(constructor, name)).parameters) == wanted
    assert callable(constructor.set_query_arguments)


@pytest.mark.parametrize("metric", ["angular", "euclidean"])
def test_every_configuration_runs(algorithms, metric):
    rng = np.random.default_rng(0)
    base, queries = (rng.normal(size=(n, 12)).astype(np.float32) for n in (3000, 5))
    names = set()
    for constructor, base_args, arguments, query_arguments in definitions(algorithms):
        assert base_args == ["@metric"]
        algorithm = constructor(metric, *arguments)
        algorithm.fit(base)
        for group in (query_arguments[0], query_arguments[-1]):
            algorithm.set_query_arguments(*group)
            names.add(str(algorithm))
            single = [algorithm.query(query, 10) for query in queries]
            algorithm.batch_query(queries, 10)
            batch = algorithm.get_batch_results()
            # Small and large batches visit lists in another order, so that they may find other documents.
            same = [len(set(a) & set(b)) / 10 for a, b in zip(single, batch, strict=True)]
            assert np.mean(same) > 0.9
        assert [len(row) for row in batch] == [10] * len(queries)  # the last group is the most careful
        assert true_share(base, queries, np.array(batch), metric) > 0.5
        assert algorithm.get_additional()["bytes_per_vector"] > 0
        assert algorithm.get_memory_usage() is not None
        algorithm.done()
    assert len(names) == 2 * len(list(definitions(algorithms)))


def test_what_was_not_found_is_left_out(algorithms):
    """ann-benchmarks refuses ids that come twice, so fewer than n results must be a shorter row."""
    constructor, *_ = next(iter(definitions(algorithms)))
    algorithm = constructor("euclidean", "posh-exact", {})
    base = np.random.default_rng(0).normal(size=(7, 12)).astype(np.float32)
    algorithm.fit(base)
    algorithm.batch_query(base[:3], 10)
    for row in [algorithm.query(base[0], 10), *algorithm.get_batch_results()]:
        assert sorted(row) == list(range(7))


def true_share(base, queries, ids, metric):
    if metric == "angular":
        base, queries = (X / np.linalg.norm(X, axis=1, keepdims=True) for X in (base, queries))
    distances = np.linalg.norm(queries[:, None] - base[None], axis=2)
    true = np.argsort(distances, axis=1)[:, : ids.shape[1]]
    return np.mean([len({*a} & {*b}) / len(b) for a, b in zip(ids, true, strict=True)])


def test_an_unknown_metric_is_refused(algorithms):
    constructor, *_ = next(iter(definitions(algorithms)))
    with pytest.raises(ValueError, match="expected a metric of angular, euclidean, got 'jaccard'"):
        constructor("jaccard", "posh-ivf", {})


def test_the_configured_contenders_exist(algorithms):
    assert {arguments[0] for _, _, arguments, _ in definitions(algorithms)} <= set(CONTENDERS)
