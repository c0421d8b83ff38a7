"""Every contender answers the same questions; those that are not installed are skipped."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from posh import kernels
from posh.errors import MissingExtraError, find_install_command
from posh_reproduction.ann.contenders import CONTENDERS, DEFAULT, OURS, chosen
from posh_reproduction.ann.measure import Setting, measure_search

RIVALS = [name for name in CONTENDERS if name not in (*OURS, "brute-force")]
N, D, K = 2000, 64, 10  # SymphonyQG refuses 16 features


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, 16))
    X = centres[rng.integers(20, size=N + 50)] + 0.5 * rng.normal(size=(N + 50, 16))
    X = X @ rng.normal(size=(16, D))
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
def test_with_generous_parameters_everybody_finds_the_neighbours(name, metric, vectors, tmp_path):
    base, queries = vectors
    contender = installed(name)
    distances = np.linalg.norm(queries[:, None] - base[None], axis=2)
    true = np.argsort(distances, axis=1)[:, :K]
    build = contender.builds(*base.shape, metric)[0]
    index = contender.build(base, metric, 2, **build)
    params = contender.searches(build, K)[-1][-1]
    (tmp_path / "a").mkdir()
    index.save(tmp_path / "a")
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) > D * N
    (tmp_path / "a").rename(tmp_path / "b")
    loaded = contender.load(tmp_path / "b", D, metric, **build)
    for setting in (Setting(K, 1000, 1), Setting(K, 7, 1), Setting(K, 1, 1), Setting(K, 1000, 2)):
        result = measure_search(index, queries, setting, params)
        assert result.ids.shape == (len(queries), K)
        assert result.seconds > 0
        shared = np.mean([len({*a} & {*b}) / K for a, b in zip(result.ids, true, strict=True)])
        assert shared > 0.8, setting
        again = measure_search(loaded, queries, setting, params)
        assert np.mean(again.ids == result.ids) > 0.99, setting


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


@pytest.mark.parametrize("name", RIVALS)
def test_a_missing_library_is_an_error_with_the_pip_line(name, monkeypatch):
    def missing(module):
        raise ImportError(module)

    monkeypatch.setattr(importlib, "import_module", missing)
    pattern = rf"'{name}' needs .*: {re.escape(find_install_command('bench-ann'))}"
    with pytest.raises(MissingExtraError, match=pattern):
        chosen([name])


@pytest.fixture
def unlimited():
    yield
    kernels.use(None)


@pytest.mark.skipif("avx2" not in kernels.available(), reason="this CPU has no AVX2")
def test_ours_and_faiss_can_be_limited_to_older_instructions(unlimited):
    assert CONTENDERS["posh-ivf"].limit("avx2")
    assert kernels.active() == "avx2"
    faiss = pytest.importorskip("faiss", exc_type=ImportError)
    level = faiss.SIMDConfig.get_level()
    try:
        assert CONTENDERS["faiss-ivfpq"].limit("avx2")
        assert faiss.SIMDConfig.get_level_name() == "AVX2"
    finally:
        faiss.SIMDConfig.set_level(level)


def test_a_library_that_cannot_be_limited_says_so():
    assert not CONTENDERS["symphonyqg"].limit("avx2")
    assert not CONTENDERS["brute-force"].limit("avx2")


def test_every_rival_is_in_the_extra():
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    extra = tomllib.loads(text)["project"]["optional-dependencies"]["bench-ann"]
    packages = {re.split("[><=;]", requirement)[0] for requirement in extra}
    assert packages == {CONTENDERS[name].package for name in RIVALS} | {"posh-reproduction"}


def test_an_unknown_contender_is_answered_with_all_names():
    with pytest.raises(
        ValueError, match=r"unknown contender 'nope'; choose from posh-default, .*brute-force"
    ):
        chosen(["nope"])
