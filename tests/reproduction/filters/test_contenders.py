"""Every contender answers the same questions with a filter; those that are not installed are skipped."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from posh.errors import MissingExtraError, find_install_command
from posh_reproduction.ann.cases import Case, Prepared
from posh_reproduction.filters.cells import RELATIONS, FilteredData
from posh_reproduction.filters.contenders import CONTENDERS, OURS, chosen

RIVALS = [name for name in CONTENDERS if name not in OURS]
N, D, K = 2500, 16, 5


@pytest.fixture(scope="module", params=["cosine", "euclidean"])
def data(request) -> FilteredData:
    X = np.random.default_rng(0).normal(size=(N + 12, D)).astype(np.float32)
    if request.param == "cosine":
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    return FilteredData(Prepared(Case("toy", "toy", request.param), X[:N], {"report": X[N:]}, {}, "toy"), 12)


def installed(name):
    contender = CONTENDERS[name]
    if name in RIVALS:
        reason = f"{contender.package} is not installed"
        pytest.importorskip(contender.module, reason=reason, exc_type=ImportError)
    return contender


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from the bindings of rivals
@pytest.mark.parametrize("name", CONTENDERS)
def test_with_generous_parameters_everybody_finds_the_nearest_that_pass(name, data, tmp_path):
    contender = installed(name)
    (tmp_path / "a").mkdir()
    contender.build(data).save(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    index = contender.load(tmp_path / "b", D, data.prepared.case.metric)
    queries = data.queries("report")
    params = contender.efforts(N, K)[-1]
    for relation in (None, *RELATIONS):
        for share in (0.5, 0.02, 2 / N):
            filters = [None] * len(queries) if relation is None else data.filters(relation, share)
            n_shared = n_true = 0
            for query, own in zip(queries, filters, strict=True):
                enlarged = contender.enlarge(params, share, N) or params
                found = index.searching(K, own, **enlarged)(query[None])[0].tolist()
                passing = np.arange(N) if own is None else np.flatnonzero(own.mask)
                order = np.argsort(((data.base[passing] - query) ** 2).sum(axis=1))[:K]
                ids = [i for i in found if i >= 0]
                assert set(ids) <= set(passing.tolist())
                n_shared += len({*ids} & {*passing[order].tolist()})
                n_true += len(order)
            is_fair = name != "faiss-hnsw" or share > 0.01  # it may never come near the few that pass
            assert n_shared >= 0.9 * n_true or not is_fair, (relation, share)


@pytest.mark.parametrize("name", CONTENDERS)
def test_enlarged_parameters_are_no_smaller(name):
    contender = CONTENDERS[name]
    for params in contender.efforts(100_000, 10):
        for share in (1.0, 0.1, 0.0001):
            enlarged = contender.enlarge(params, share, 100_000)
            assert (enlarged is None) == (name in OURS)
            for key, value in (enlarged or {}).items():
                assert params[key] <= value <= 100_000
                assert share < 1 or params[key] == value


@pytest.mark.parametrize("name", RIVALS)
def test_a_missing_library_is_an_error_with_the_pip_line(name, monkeypatch):
    def missing(module):
        raise ImportError(module)

    monkeypatch.setattr(importlib, "import_module", missing)
    pattern = rf"'{name}' needs .*: {re.escape(find_install_command('bench-filters'))}"
    with pytest.raises(MissingExtraError, match=pattern):
        chosen([name])


def test_an_unknown_contender_is_answered_with_all_names():
    with pytest.raises(ValueError, match=r"unknown contender 'nope'; choose from posh, .*zvec"):
        chosen(["nope"])


def test_every_rival_is_in_the_extra():
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    extra = tomllib.loads(text)["project"]["optional-dependencies"]["bench-filters"]
    packages = {re.split("[><=;]", requirement)[0] for requirement in extra}
    assert packages == {CONTENDERS[name].package for name in RIVALS} | {"posh-reproduction"}
