"""Collections to play with."""

from __future__ import annotations

import posh
from posh import datasets
from posh.cli import main
from posh.collection.embedded import Collection
from posh.errors import DataUnavailableError
from posh.serve import samples


def test_digits_under_two_hashers(tmp_path):
    assert (
        samples.make_samples(tmp_path, "digits") == "digits, digits-fruitfly: created from 1,597 vectors each"
    )
    data = posh.datasets.load("digits")
    for name, method in (("digits", posh.POSH), ("digits-fruitfly", posh.FruitFly)):
        with Collection(tmp_path / name) as collection:
            assert isinstance(collection.hasher, method)
            assert collection.count({"label": 3}) == (data.base_labels == 3).sum()
            assert collection.metadata["image"]["width"] ** 2 == collection.n_features
            assert collection.metadata["label"]["values"] == list(range(10))


def test_what_is_there_is_not_made_again(tmp_path):
    samples.make_samples(tmp_path, "digits")
    with Collection(tmp_path / "digits") as collection:
        collection.delete([0])
    assert samples.make_samples(tmp_path, "digits") == "digits, digits-fruitfly: already exist"
    with Collection(tmp_path / "digits") as collection:
        assert collection.count() == 1596


def test_an_interrupted_one_is_made_again(tmp_path):
    half = tmp_path / ".digits"
    half.mkdir()
    (half / "something").write_text("half")
    samples.make_samples(tmp_path, "digits")
    with Collection(tmp_path / "digits") as collection:
        assert collection.count() == 1597
    assert not half.exists()


def test_an_unknown_sample_is_refused(tmp_path, capsys):
    assert main(["serve", str(tmp_path / "new"), "--sample", "nonsense"]) == 2
    assert "expected --sample of one of mnist, digits, glove-100, got 'nonsense'" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_digits_stand_in_for_mnist(tmp_path, monkeypatch):
    real = datasets.load

    def load(name):
        if name == "mnist":
            raise DataUnavailableError("no network")
        return real(name)

    monkeypatch.setattr(datasets, "load", load)
    assert "digits-fruitfly: created from" in samples.make_samples(tmp_path, "mnist")
    assert (tmp_path / "digits").is_dir()
