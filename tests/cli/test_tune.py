"""``posh tune``: what it measures is so, and what it prints is the useful part of that."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import posh
from posh import metrics, tuning
from posh.cli import _tune_candidates as candidates
from posh.cli import main
from posh.errors import find_install_command
from posh.tuning import Setting, choose_setting, find_best, select_front
from tests.cli.running import one_error, run_json
from tests.conftest import clusters

X = clusters(4000, 16, n_clusters=100, seed=3).astype(np.float32)
DIGITS = posh.datasets.load("digits")


def plain_scores(metric: str, Q: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Scores (m, n) in float64, by the definition of the metric."""
    Q, X = Q.astype(np.float64), X.astype(np.float64)
    if metric == "euclidean":
        return -cdist(Q, X, "sqeuclidean")
    return Q @ X.T / (np.linalg.norm(Q, axis=1)[:, None] * np.linalg.norm(X, axis=1))


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSH_DEBUG", raising=False)
    np.save("x.npy", X)
    np.save("digits.npy", DIGITS.base)
    np.save("labels.npy", DIGITS.base_labels)
    np.save("floats.npy", np.ones(len(DIGITS.base)))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("tuned") / "x.npy"
    np.save(path, X)
    data = tuning.split_vectors(X)
    return {
        "data": data,
        "settings": list(tuning.measure_settings(data, "euclidean", 0.9)),
    }


def test_queries_are_held_out() -> None:
    data = tuning.split_vectors(X)
    assert (len(data.base), len(data.queries)) == (3600, 400)
    together = np.concatenate([data.base, data.queries])
    np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(X, axis=0))
    assert not set(map(bytes, data.queries)) & set(map(bytes, data.base))


def test_recall_is_the_share_of_the_true_nearest(tuned: dict[str, Any]) -> None:
    data = tuned["data"]
    true = plain_scores("euclidean", data.queries, data.base)
    last = np.sort(true, axis=1)[:, -10][:, None]
    stores = {one.store for one in tuned["settings"]}
    assert stores == {"float32", "float16", "int8"}
    for store in stores:
        index = posh.Index.build(data.base, metric="euclidean", recall=0.9, store=store)
        own = [one for one in tuned["settings"] if one.store == store]
        (default,) = [one for one in own if one.is_default]
        assert len(own) > 3
        for one in own:
            hits = index.search(data.queries, 10, recall=one.asked, exact=one.asked is None)
            share = np.mean(np.take_along_axis(true, hits.ids, axis=1) >= last - 1e-5 * np.abs(last))
            assert one.recall == pytest.approx(share, abs=1e-3)
            assert one.bytes_per_vector == index.memory_usage()["total"] / 3600
        plain = index.search(data.queries, 10)
        np.testing.assert_array_equal(plain.ids, index.search(data.queries, 10, recall=default.asked).ids)
        assert default.recall >= 0.88


def setting(recall: float, rate: float, size: float, **more: Any) -> Setting:
    return Setting("float32", 0.95, recall, rate, rate, size, **more)


def test_the_front_leaves_out_what_another_one_beats() -> None:
    good, small, careful = setting(0.9, 1000, 400), setting(0.9, 500, 100), setting(0.99, 100, 400)
    slow, alike = setting(0.9, 800, 400), setting(0.9015, 990, 410)
    default = setting(0.8, 10, 400, is_default=True)
    settings = [careful, slow, good, alike, small, default]
    assert select_front(settings, good) == [default, good, small, careful]
    assert select_front(settings, alike) == [default, good, small, alike, careful]


def test_the_choice_is_small_if_that_is_about_as_fast() -> None:
    fast = setting(0.96, 1000, 400, is_default=True)
    small = setting(0.95, 900, 100, is_default=True)
    slow = setting(0.97, 300, 50, is_default=True)
    assert choose_setting([fast, small, slow, setting(0.99, 5000, 10)], 0.95) is small
    assert choose_setting([fast, slow], 0.95) is fast
    assert choose_setting([small], 0.97) is None


def test_the_choice_reached_the_recall() -> None:
    short = setting(0.945, 1000, 100, is_default=True)
    exact = setting(float(np.full(3, 0.95).mean()), 900, 400, is_default=True)
    assert choose_setting([short], 0.95) is None
    assert choose_setting([short, exact], 0.95) is exact
    fast, faster = setting(0.96, 500, 400), setting(0.955, 550, 400)
    assert choose_setting([short, fast, faster], 0.95) is faster  # no default reached it
    assert choose_setting([short, fast, faster, exact], 0.95) is exact
    assert find_best([short, fast, faster]) is fast
    assert find_best([fast, setting(0.96, 600, 400)]).per_second == 600


@pytest.mark.parametrize("recall", [0.9, 0.95, 0.99])
def test_a_choice_among_measured_settings_reached_the_recall(tuned: dict[str, Any], recall: float) -> None:
    choice = choose_setting(tuned["settings"], recall)
    assert choice is not None
    assert choice.recall >= recall


def test_a_missing_document_counts_as_not_found(tuned: dict[str, Any]) -> None:
    """Its id, -1, would be the last vector."""
    data = tuned["data"]
    index = posh.Index(metric="euclidean").add(data.base[:10])
    ids = np.full((len(data.queries), 3), -1)
    ids[:, 1] = 7
    expected = plain_scores("euclidean", data.queries, data.base[7:8])
    found = tuning.compute_scores(index, data, ids)
    np.testing.assert_allclose(found[:, :1], expected, rtol=1e-5)
    assert (found[:, 1:] == -np.inf).all()


def test_a_table_a_plot_and_a_line_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "x.npy", "--metric", "dot", "--recall", "0.8", "-o", "picture.png"]) == 0
    text = capsys.readouterr().out
    assert Path("picture.png").read_bytes().startswith(b"\x89PNG")
    assert len(re.findall("<- chosen", text)) == 1
    (line,) = re.findall(r"^  (index = .*)$", text, flags=re.MULTILINE)
    scope: dict[str, Any] = {"posh": posh, "X": X}
    exec(line, scope)
    options = scope["index"].options
    assert (options.metric, options.recall) == ("dot", 0.8)
    assert options.store in text
    values = run_json(capsys, "tune", "x.npy", "--metric", "dot", "--recall", "0.8", "--no-plot")
    assert values["n_documents"] == 3600
    assert values["chosen"] in values["settings"]
    assert values["python"].startswith("index = posh.Index.build(X, metric='dot', recall=0.8")
    assert not Path("tune.png").exists()


def test_few_vectors_are_compared_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    values = run_json(capsys, "tune", "digits.npy", "--no-plot")
    assert {one["recall"] for one in values["settings"] if one["store"] == "float32"} <= {1.0}


def tuned_with(monkeypatch: pytest.MonkeyPatch, *settings: Setting) -> None:
    monkeypatch.setattr(tuning, "measure_settings", lambda *_: iter(settings))


def test_a_recall_that_nothing_reached(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    short, best = setting(0.93, 2000, 400), setting(0.945, 1000, 400, is_default=True)
    tuned_with(monkeypatch, best, short)
    assert main(["tune", "digits.npy", "--no-plot"]) == 0
    text = capsys.readouterr().out
    assert "<- chosen" not in text
    assert re.search(r"0\.9450 .*<- best seen", text)
    assert "no setting reached a recall of 0.95; best seen, 0.9450 measured:" in text
    assert "for a higher recall, compare all vectors:\n  hits = index.search(Q, k=10, exact=True)" in text
    values = run_json(capsys, "tune", "digits.npy", "--no-plot")
    assert (values["chosen"], values["python"]) == (None, None)
    assert values["best_seen"]["recall"] == 0.945


def test_a_setting_that_index_build_does_not_choose_comes_with_its_search(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    default = setting(0.945, 2000, 400, is_default=True)
    other = Setting("float32", 0.97, 0.9612, 1000, 1000, 400)
    tuned_with(monkeypatch, default, other)
    assert main(["tune", "x.npy", "--no-plot"]) == 0
    text = capsys.readouterr().out
    assert "for a recall of 0.95, 0.9612 measured:" in text
    scope: dict[str, Any] = {"posh": posh, "X": X, "Q": X[:3]}
    for_index, for_collection = text.split("or, for a collection:")
    exec("\n".join(re.findall(r"^  (\w+ = .*)$", for_index, flags=re.MULTILINE)), scope)
    expected = scope["index"].search(X[:3], 10, recall=0.97)
    np.testing.assert_array_equal(scope["hits"].ids, expected.ids)
    values = run_json(capsys, "tune", "x.npy", "--no-plot")
    assert values["chosen"] == values["best_seen"] == values["settings"][-1]
    assert values["python"].endswith("\nhits = index.search(Q, k=10, recall=0.97)")
    create, search = re.findall(r"^  (\w+ = .*)$", for_collection, flags=re.MULTILINE)
    assert values["python_collection"] == f"{create}\n{search}"
    scope["FOLDER"] = "new"
    exec(create, scope)
    with scope["collection"].upsert(range(len(X)), X) as created:
        exec(search, scope)
        expected = created.search(X[:3], 10, recall=0.97)
    np.testing.assert_array_equal(scope["hits"].ids, expected.ids)


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[posh.Collection]:
    with posh.Collection(tmp_path / "shop", metric="euclidean", recall=0.8) as collection:
        yield collection.upsert(range(len(X)), X)


def test_a_collection_is_tuned_with_its_own_metric_and_recall(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, collection: posh.Collection
) -> None:
    tuned_with(monkeypatch, Setting("float16", 0.8, 0.83, 1000, 1000, 400, is_default=True))
    values = run_json(capsys, "tune", "shop", "--no-plot")
    assert (values["metric"], values["recall"]) == ("euclidean", 0.8)
    assert (values["n_documents"], values["n_queries"]) == (3600, 400)
    assert values["python_collection"] == (
        "collection.reindex(metric='euclidean', recall=0.8, store='float16')"
    )
    exec(values["python_collection"], {"collection": collection})
    assert collection.index_options["store"] == "float16"
    values = run_json(capsys, "tune", "shop", "--no-plot", "--metric", "dot", "--recall", "0.5")
    assert (values["metric"], values["recall"]) == ("dot", 0.5)


def test_a_collection_takes_no_key(capsys: pytest.CaptureFixture[str], collection: posh.Collection) -> None:
    assert main(["tune", "shop", "--key", "x", "--no-plot"]) == 2
    assert "--key is for files, and shop is a collection: leave it out" in one_error(capsys)


def test_the_function_takes_vectors_a_collection_or_its_folder(
    monkeypatch: pytest.MonkeyPatch, collection: posh.Collection
) -> None:
    tuned_with(monkeypatch, setting(0.97, 1000, 400, is_default=True))
    for source in (collection, collection.path, str(collection.path)):
        result = posh.tune(source)
        assert (result.problem.metric, result.problem.recall, result.n_queries) == ("euclidean", 0.8, 400)
        np.testing.assert_array_equal(result.problem.data.base, posh.tune(X).problem.data.base)
    result = posh.tune(X.tolist(), metric="dot", recall=0.9)
    assert result.chosen == result.best == result.marked
    assert result.format_index() == ["index = posh.Index.build(X, metric='dot', recall=0.9)"]
    assert result.format_collection() == ["collection = posh.create(FOLDER, metric='dot', recall=0.9)"]
    with pytest.raises(ValueError, match="expected metric"):
        posh.tune(X, metric="hamming")
    with pytest.raises(ValueError, match="expected recall"):
        posh.tune(X, recall=2.0)
    with pytest.raises(ValueError, match="expected at least 2 vectors"):
        posh.tune(X[:1])


def test_progress_is_printed_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("few.npy", X[:300])
    assert main(["tune", "few.npy", "--no-plot"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("building index")] == [
        f"building index {i} of 3, store={store!r}"
        for i, store in enumerate(["float32", "float16", "int8"], 1)
    ]
    assert sum("recall=0.95" in line for line in lines) == 3
    assert not tuning.logger.handlers


def interrupted_after(n: int, call: Any) -> Any:
    calls = iter(range(n))

    def limited(*args: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return call(*args)

    return limited


def test_an_interruption_prints_what_there_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "_measure_setting", interrupted_after(2, tuning._measure_setting))
    assert main(["tune", "x.npy"]) == 130
    captured = capsys.readouterr()
    assert "float32" in captured.out
    assert "float16" not in captured.out
    assert "interrupted: the results so far" in captured.err
    assert Path("tune.png").exists()
    monkeypatch.setattr(tuning, "_measure_setting", interrupted_after(0, None))
    assert main(["tune", "x.npy", "--no-plot"]) == 130
    assert capsys.readouterr().out == ""


def test_labels_compare_hashers(capsys: pytest.CaptureFixture[str]) -> None:
    values = run_json(capsys, "tune", "digits.npy", "--labels", "labels.npy", "--n-bits", "64", "-o", "l.png")
    assert Path("l.png").read_bytes().startswith(b"\x89PNG")
    results = values["results"]
    assert [one["map"] for one in results] == sorted((one["map"] for one in results), reverse=True)
    assert {(one["hasher"], one["n_active"]) for one in results if one["hasher"]} == {
        (name, n) for name in ("POSH", "SphericalHash", "FruitFly") for n in (8, 16, 32)
    }
    data = candidates.split_labelled(DIGITS.base, DIGITS.base_labels)
    index = posh.CodeIndex(posh.POSH(64, 16, random_state=0).fit(data.base)).add(data.base)
    found = index.search(data.queries, 1000).ids
    expected = metrics.average_precision(data.base_labels[found], data.query_labels)
    (own,) = [one for one in results if (one["hasher"], one["n_active"]) == ("POSH", 16)]
    assert own["map"] == pytest.approx(expected.mean())
    assert own["bytes_per_vector"] == index.memory_usage()["total"] / len(data.base)
    cosine = plain_scores("cosine", data.queries, data.base)
    order = np.argsort(-cosine, axis=1, kind="stable")[:, :1000]
    exact = metrics.average_precision(data.base_labels[order], data.query_labels).mean()
    (flat,) = [one for one in results if one["name"] == "float vectors, cosine"]
    assert flat["map"] == pytest.approx(exact, abs=1e-4)
    assert re.match(r"index = posh\.CodeIndex\(posh\.\w+\(n_bits=64, n_active=\d+\)", values["python"])


def test_an_interrupted_comparison_of_hashers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "_measure_codes", interrupted_after(1, candidates._measure_codes))
    assert main(["tune", "digits.npy", "--labels", "labels.npy", "--no-plot"]) == 130
    out = capsys.readouterr().out
    assert "POSH, 8 of 1024 bits" in out
    assert "FruitFly" not in out


def test_without_matplotlib_the_table_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["tune", "digits.npy"]) == 1
    line = f"(or --no-plot) needs matplotlib: {find_install_command('plot')}"
    assert line in one_error(capsys)
    assert main(["tune", "digits.npy", "--no-plot"]) == 0


ERRORS = {
    "bits without labels": (2, ["--n-bits", "64"], "--n-bits is for --labels: leave it out"),
    "recall of labels": (
        2,
        ["--labels", "labels.npy", "--recall", "0.9"],
        "--recall is for nearest neighbours",
    ),
    "metric of labels": (
        2,
        ["--labels", "labels.npy", "--metric", "dot"],
        "--metric is for nearest neighbours",
    ),
    "no recall": (2, ["--recall", "0"], "expected --recall above 0 and up to 1, got 0.0"),
    "another suffix": (2, ["-o", "tune.pdf"], "expected --output to end in .png, got tune.pdf"),
    "no folder": (1, ["-o", "nowhere/tune.png"], "expected an existing folder, got nowhere"),
    "labels of others": (
        1,
        ["--labels", "x.npy"],
        "expected 1597 whole numbers, one for each vector, got float32",
    ),
    "labels that are not whole": (1, ["--labels", "floats.npy"], "expected 1597 whole numbers"),
    "no labels": (1, ["--labels", "nope.npy"], "nope.npy: No such file"),
}


@pytest.mark.parametrize(("code", "arguments", "message"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_one_line(
    code: int, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "digits.npy", *arguments]) == code
    assert message in one_error(capsys)


def test_too_few_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("one.npy", X[:1])
    assert main(["tune", "one.npy", "--no-plot"]) == 1
    assert "expected at least 2 vectors to tune with, got 1" in one_error(capsys)
