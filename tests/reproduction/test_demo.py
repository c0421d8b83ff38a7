"""The demo on the bundled digits, also when they stand in for MNIST."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import posh
from posh import datasets
from posh.cli import main
from posh.datasets import Dataset
from posh.errors import DataUnavailableError
from posh_reproduction import demo

SIZE = (1600, 1090)
load = datasets.load


def image_size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


@pytest.fixture
def no_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_digits_only(name: str) -> Dataset:
        if name == "mnist":
            raise DataUnavailableError("mnist could not be fetched")
        return load(name)

    monkeypatch.setattr(datasets, "load", load_digits_only)


def test_digits_are_measured_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = demo.run("digits", tmp_path / "new" / "folder")
    assert image_size(result.picture) == SIZE
    assert result.picture == tmp_path / "new" / "folder" / "neighbours.png"
    posh, fly, lsh = result.measurements
    assert posh.map_percent.mean > fly.map_percent.mean > lsh.map_percent.mean > 60
    assert [row.code_bytes for row in result.measurements] == [128, 128, 8]
    assert capsys.readouterr().out.count("learning, encoding, searching digits") == 3
    assert "MAP@100, %" in str(result)
    assert "paper" not in str(result)


def test_mnist_stands_beside_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load", lambda name: dataclasses.replace(load("digits"), name=name))
    result = demo.run(output=tmp_path)
    assert (result.data, result.k) == ("mnist", 1000)
    assert [row.paper_percent for row in result.measurements] == [82.93, 78.37, 69.49]
    assert "paper 82.93" in str(result)
    assert "the paper's table for MNIST, mean of 10 trials" in str(result)


@pytest.mark.usefixtures("no_mnist")
def test_digits_take_the_place_of_mnist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--output", str(tmp_path), "--json"]) == 0
    captured = capsys.readouterr()
    values = json.loads(captured.out)
    assert values["data"] == "digits"
    assert image_size(Path(values["picture"])) == SIZE
    assert np.isfinite(values["measurements"][0]["map_percent"]["low"])
    said = [line for line in captured.err.splitlines() if "MNIST" in line]
    assert said == [
        "MNIST cannot be fetched here ('posh data fetch mnist' says why): the bundled digits take its place"
    ]


@pytest.mark.usefixtures("no_mnist")
def test_mnist_by_name_has_no_substitute(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailableError):
        demo.run("mnist", tmp_path)


def test_other_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected data to be one of mnist, digits, got 'glove'"):
        demo.run("glove", tmp_path)


def test_searches_are_those_of_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer's first number of queries per second must be that of the index, as users search it."""
    searched = []
    real = posh.CodeIndex.search

    def search(self: posh.CodeIndex, X: np.ndarray, k: int = 10) -> posh.Hits:
        searched.append(X.shape)
        return real(self, X, k)

    monkeypatch.setattr(posh.CodeIndex, "search", search)
    demo.run("digits", tmp_path)
    assert searched == [(200, 64)] * 3
