"""``posh bench``, with a stand-in for the rival."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import posh
from posh import bench
from posh.cli import main
from tests.cli.running import run_json

SMALL = ["--n-bits", "64", "--n-active", "4", "--set", "n_epochs=2", "--rounds", "2"]
DIGITS = posh.datasets.load("digits")


@pytest.fixture(autouse=True)
def _without_faiss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)


class PlainBinaryFlat:
    """What ``faiss.IndexBinaryFlat`` promises."""

    def __init__(self, n_bits: int) -> None:
        self.codes = np.empty((0, n_bits // 8), np.uint8)

    def add(self, codes: np.ndarray) -> None:
        self.codes = np.concatenate([self.codes, codes])

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        differing = np.unpackbits(queries[:, None] ^ self.codes[None], axis=2).sum(axis=2)
        order = np.argsort(differing, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(differing, order, axis=1), order


@pytest.mark.parametrize("method", [SMALL, [*SMALL[4:], "--method", "ITQ", "--n-bits", "20"]], ids=str)
def test_bench_search_beside_faiss(
    method: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    faiss = SimpleNamespace(__version__="0", IndexBinaryFlat=PlainBinaryFlat, omp_get_max_threads=lambda: 7)
    faiss.omp_set_num_threads = threads.append
    monkeypatch.setitem(sys.modules, "faiss", faiss)
    few = posh.datasets.Dataset("digits", DIGITS.base[:200], DIGITS.queries[:10])
    monkeypatch.setattr(posh.datasets, "load", lambda name: few)
    values = run_json(capsys, "bench", "search", *method, "-k", "5")
    assert threads == [1, 7]
    assert values["same_distances"] is True
    for way in ("batch", "single"):
        rates = values[way]
        assert rates["ratio"] == pytest.approx(rates["posh_per_second"] / rates["faiss_per_second"])
    assert (values["k"], values["threads"], values["n_documents"]) == (5, 1, 200)
    assert main(["bench", "search", *method]) == 0
    assert "rival: faiss.IndexBinaryFlat 0, which finds the same distances" in capsys.readouterr().out


def test_bench_search_without_faiss_names_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "search", *SMALL]) == 0
    assert "pip install faiss-cpu" in capsys.readouterr().out
    values = run_json(capsys, "bench", "search", *SMALL)
    assert (values["faiss"], values["batch"]["ratio"]) == (None, None)


def test_bench_encode_and_fit(capsys: pytest.CaptureFixture[str]) -> None:
    encode = run_json(capsys, "bench", "encode", *SMALL)
    ratio = encode["encode_per_second"] / encode["product_per_second"]
    assert encode["fraction_of_product"] == pytest.approx(ratio)
    assert encode["environment"]["kernel"] == posh.kernels.active()
    fit = run_json(capsys, "bench", "fit", *SMALL)
    assert fit["seconds"] > 0
    assert (fit["bench"], fit["params"]["n_bits"], fit["rounds"]) == ("fit", 64, 2)


def test_contenders_take_turns() -> None:
    calls: list[str] = []
    bench.best_times({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "b", "a", "b"]
