"""Every contender answers the same questions; those that are not installed are skipped."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from posh.errors import MissingExtraError
from posh_reproduction.ann.contenders import CONTENDERS, DEFAULT, OURS, chosen
from posh_reproduction.ann.measure import Setting, measure_search

N, D, K = 2000, 16, 10


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, D))
    X = centres[rng.integers(20, size=N + 50)] + 0.5 * rng.normal(size=(N + 50, D))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    return X[:N], X[N:]


def installed(name):
    contender = CONTENDERS[name]
    module = getattr(contender, "module", None)
    if module is not None:
        pytest.importorskip(module, reason=f"{contender.package} is not installed", exc_type=ImportError)
    return contender


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from the bindings of rivals
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("name", CONTENDERS)
def test_with_generous_parameters_everybody_finds_the_neighbours(name, metric, vectors):
    base, queries = vectors
    contender = installed(name)
    distances = np.linalg.norm(queries[:, None] - base[None], axis=2)
    true = np.argsort(distances, axis=1)[:, :K]
    build = contender.builds(*base.shape, metric)[0]
    index = contender.build(base, metric, 2, **build)
    assert index.bytes_per_vector > D
    params = contender.searches(build, K)[-1][-1]
    for setting in (Setting(K, 1000, 1), Setting(K, 7, 1), Setting(K, 1, 1), Setting(K, 1000, 2)):
        result = measure_search(index, queries, setting, params)
        assert result.ids.shape == (len(queries), K)
        assert result.seconds > 0
        shared = np.mean([len({*a} & {*b}) / K for a, b in zip(result.ids, true, strict=True)])
        assert shared > 0.8, setting


def test_rivals_try_as_many_parameters_as_we_do():
    """Of those that have lists; a graph has one parameter of a search, and a finer grid of it."""
    n_tried = {
        name: sum(
            len(line)
            for build in CONTENDERS[name].builds(340_000, 100, "cosine")
            for line in CONTENDERS[name].searches(build, K)
        )
        for name in DEFAULT
    }
    ours = max(n_tried[name] for name in OURS)
    assert n_tried["scann"] >= ours
    assert n_tried["faiss-ivfpq"] >= ours
    assert min(n_tried.values()) >= 6


@pytest.mark.parametrize("k", [10, 100])
@pytest.mark.parametrize("name", CONTENDERS)
def test_parameters_are_distinct_and_allow_k_results(name, k):
    contender = CONTENDERS[name]
    for build in contender.builds(70_000, 784, "euclidean"):
        searches = [search for line in contender.searches(build, k) for search in line]
        assert searches
        assert len({str(search) for search in searches}) == len(searches)
        assert all(search.get("visited", k) >= k for search in searches)


@pytest.mark.parametrize("name", [name for name in DEFAULT if name not in OURS])
def test_a_missing_library_is_an_error_with_the_pip_line(name, monkeypatch):
    def missing(module):
        raise ImportError(module)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=rf"'{name}' needs .*: pip install 'posh-ann\[bench-ann\]'"):
        chosen([name])


def test_every_rival_is_in_the_extra():
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    extra = tomllib.loads(text)["project"]["optional-dependencies"]["bench-ann"]
    packages = {re.split("[><=;]", requirement)[0] for requirement in extra}
    assert packages == {CONTENDERS[name].package for name in DEFAULT if name not in OURS} | {
        "posh-reproduction"
    }


def test_an_unknown_contender_is_answered_with_all_names():
    with pytest.raises(ValueError, match=r"unknown contender 'nope'; choose from posh-ivf, .*brute-force"):
        chosen(["nope"])
