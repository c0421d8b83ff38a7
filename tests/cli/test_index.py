"""The commands about indexes, run in this process on the bundled digits."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import posh
from posh import metrics
from posh.cli import main
from posh.index import brute_force as neighbours
from posh.index.codes.refine import REFINERS
from tests.cli.running import help_of, run_json
from tests.conftest import clusters

DIGITS = posh.datasets.load("digits")
COMMANDS = [["build"], ["search"], ["info"], ["tune"], ["bench"]]
COMMANDS += [["bench", command] for command in ("search", "encode", "fit")]

pytestmark = pytest.mark.usefixtures("at_home")


def hits_of(capsys: pytest.CaptureFixture[str], output: Path, *arguments: str) -> dict[str, Any]:
    run_json(capsys, "search", *arguments, "-o", str(output))
    with np.load(output) as file:
        return dict(file)


def assert_same(found: dict[str, Any], expected: posh.Hits) -> None:
    np.testing.assert_array_equal(found["ids"], expected.ids)
    np.testing.assert_array_equal(found["scores"], expected.scores)
    assert found["kind"] == expected.kind


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_example_in_the_help_works(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = re.search(r"^example:\n  posh (.*)$", help_of(command, capsys), re.MULTILINE)
    assert example is not None
    for name in ("digits.safetensors", "digits-index"):
        (tmp_path / name).symlink_to(Path(name).resolve())
    monkeypatch.chdir(tmp_path)
    if command == ["build"]:
        (tmp_path / "digits-index").unlink()
    assert main(shlex.split(example[1])) == 0


# Build, search, tune, info -----------------------------------------------------------------------------


def test_from_vectors_to_numbers_as_the_library(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model, folder = str(tmp_path / "m"), str(tmp_path / "index")
    shape = ["--n-bits", "128", "--n-active", "8", "--set", "n_epochs=4"]
    run_json(capsys, "fit", "digits", "-o", model, *shape)
    built = run_json(capsys, "build", "digits", "--model", model, "-o", folder, "--refine", "decoder")
    found = hits_of(capsys, tmp_path / "hits.npz", folder, "digits", "-k", "20")
    measured = run_json(capsys, "tune", "digits", "--index", folder, "-k", "20")
    told = run_json(capsys, "info", folder)

    hasher = posh.POSH(128, 8, n_epochs=4, random_state=0).fit(DIGITS.base)
    index = posh.CodeIndex(hasher, refine="decoder").add(DIGITS.base)
    hits = index.search(DIGITS.queries, 20)
    assert_same(found, hits)
    assert DIGITS.base_labels is not None
    assert DIGITS.query_labels is not None
    labels = DIGITS.base_labels[hits.ids]
    for name, measure in (("MAP", metrics.average_precision), ("precision", metrics.precision)):
        expected = metrics.interval(measure(labels, DIGITS.query_labels))
        assert measured["results"][f"{name}@20"] == expected._asdict()
    assert built["index"] == repr(index)
    assert built["n_documents"] == told["n_documents"] == len(index)
    assert built["estimated_bytes"] == index.estimate_memory(len(index))
    assert built["memory_bytes"] == told["memory_bytes"]["total"] == index.memory_usage()["total"]
    assert built["disk_bytes"] == told["disk_bytes"] > 0
    assert (told["format"], told["version"], told["params"]["refine"]) == ("posh-index", 3, "decoder")
    assert told["hasher"] == {
        "class": "POSH",
        "params": hasher.get_params(),
        "n_features": 64,
        "weights": [128, 64],
        "weights_bytes": 4 * 128 * 64,
    }


BUILDS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "ivf": (
        ["--structure", "ivf", "--n-lists", "5", "--n-probe", "2"],
        {"structure": "ivf", "n_lists": 5, "n_probe": 2},
    ),
    "active": (
        ["--document-active", "12", "--query-active", "3"],
        {"document_active": 12, "query_active": 3},
    ),
    "asymmetric": (["--scoring", "asymmetric"], {"scoring": "asymmetric"}),
    **{name: (["--refine", name], {"refine": name}) for name in REFINERS},
}
NEAREST_BUILDS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "metric": (["--metric", "dot", "--store", "float16"], {"metric": "dot", "store": "float16"}),
    "recall": (["--metric", "cosine", "--recall", "0.8"], {"metric": "cosine", "recall": 0.8}),
    "lists": (["--metric", "cosine", "--n-lists", "3"], {"metric": "cosine", "n_lists": 3}),
}


@pytest.mark.parametrize(("arguments", "expected"), BUILDS.values(), ids=BUILDS)
def test_options_of_build_reach_the_index(
    arguments: list[str], expected: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    new = tmp_path / "new"
    run_json(capsys, "build", "queries.npy", "--model", "digits.safetensors", "-o", str(new), *arguments)
    index = posh.CodeIndex.load(new)
    assert index.options == posh.CodeIndex(index.hasher, **expected).options
    assert len(index) == 7


@pytest.mark.parametrize(("arguments", "expected"), NEAREST_BUILDS.values(), ids=NEAREST_BUILDS)
def test_options_of_build_reach_an_index_with_a_metric(
    arguments: list[str], expected: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run_json(capsys, "build", "queries.npy", "-o", str(tmp_path / "new"), *arguments)
    index = posh.Index.load(tmp_path / "new")
    assert index.options == posh.Index(**expected).options
    assert len(index) == 7


def test_a_metric_needs_no_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    X = clusters(5000, 16).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    folder, asked = str(tmp_path / "near"), str(tmp_path / "x.npy")
    built = run_json(capsys, "build", asked, "-o", folder, "--metric", "cosine")
    index = posh.Index.build(X)
    assert posh.Index.load(folder).options == index.options
    assert built["report"]["asked"] == 0.95
    assert built["estimated_bytes"] == index.estimate_memory(len(X))
    options = ["--metric", "cosine", "--recall", "0.9", "--optimize", "build"]  # lists: recalls differ more
    assert main(["build", asked, "-o", folder, *options]) == 0
    assert "asked for: 0.9" in capsys.readouterr().out
    index = posh.Index.load(folder)
    for options, expected in (
        (["--exact"], {"exact": True}),
        (["--recall", "0.6"], {"recall": 0.6}),
        (["--oversample", "1", "--n-probe", "1"], {"oversample": 1.0, "n_probe": 1}),
    ):
        found = hits_of(capsys, tmp_path / "h.npz", folder, asked, "-k", "20", *options)
        assert_same(found, index.search(X, 20, **expected))
        assert not np.array_equal(found["ids"], index.search(X, 20).ids)


@pytest.mark.parametrize("store", ["float32", "int8"])
def test_an_index_with_a_metric_is_measured(
    store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = str(tmp_path / "near")
    run_json(capsys, "build", "digits", "-o", folder, "--metric", "euclidean", "--store", store)
    measured = run_json(capsys, "tune", "digits", "--index", folder, "--metric", "euclidean", "-k", "10")
    assert measured["results"]["recall 10@10"]["mean"] >= (1.0 if store == "float32" else 0.9)
    posh.Index.build(DIGITS.base[::-1], metric="euclidean", store=store).save(folder)
    assert main(["tune", "digits", "--index", folder]) == 2
    assert "got documents with other vectors" in capsys.readouterr().err


SEARCHES: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "oversample": ("digits-index", ["--oversample", "9.5"], {"oversample": 9.5}),
    "probes": ("lists", ["--n-probe", "30"], {"n_probe": 30}),
    "ids": ("digits-index", ["--filter", "ids.npy"], {"filter": np.arange(30, 60)}),
    "mask": ("lists", ["--filter", "mask.npy"], {"filter": np.arange(30, 60)}),
    "threads": ("digits-index", ["--n-threads", "1"], {}),
    "mmap": ("digits-index", ["--mmap"], {}),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_options_of_search_reach_the_index(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder, options, expected = SEARCHES[name]
    found = hits_of(capsys, tmp_path / "h.npz", folder, "queries.npy", "-k", "40", *options)
    index = posh.CodeIndex.load(folder)
    assert_same(found, index.search(DIGITS.queries[:7], 40, **expected))
    if expected:
        assert not np.array_equal(found["ids"], index.search(DIGITS.queries[:7], 40).ids)


def test_texts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["build", "digits", "--model", "digits.safetensors", "-o", str(tmp_path / "i")]) == 0
    captured = capsys.readouterr()
    assert re.fullmatch(r"estimated memory: [\d.]+ kB for 1,597 documents\n", captured.err)
    assert re.search(r"^added: 1,597 documents in .*\nmemory: .*\nsaved: .*kB on disk", captured.out, re.M)
    assert main(["search", "lists", "queries.npy", "-k", "12"]) == 0
    out = capsys.readouterr().out
    assert "ids and scores (overlap, higher is better):\n  query 0: " in out
    assert re.search(r"query 4: .*\(\d\), and 2 more\n7 queries in ", out)
    assert main(["tune", "digits", "--index", "digits-index"]) == 0
    assert re.search(r"  MAP@1000 +\d\d\.\d\d \[[\d.]+, [\d.]+\]\n  precision@1000 ", capsys.readouterr().out)
    assert main(["info", "digits-index"]) == 0
    assert "memory: " in capsys.readouterr().out
    assert main(["info", "dense.safetensors"]) == 0
    assert "hasher: LSH 24 bits, for vectors with 64 columns" in capsys.readouterr().out


def test_a_search_that_finds_nothing_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "none.npy", np.array([99_999]))
    arguments = ["search", "digits-index", "queries.npy", "--filter", str(tmp_path / "none.npy")]
    assert main(arguments) == 0
    assert "query 0: no hits\n" in capsys.readouterr().out
    assert run_json(capsys, *arguments)["first"][0] == {"ids": [], "scores": []}


# Recall by distance --------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_recall_equals_a_count_of_the_true_neighbours(
    metric: str, capsys: pytest.CaptureFixture[str]
) -> None:
    values = run_json(
        capsys,
        "tune",
        "digits",
        "--index",
        "digits-index",
        "--metric",
        metric,
        "-k",
        "50",
        "--n-queries",
        "60",
    )
    away = cdist(DIGITS.queries[:60], DIGITS.base, metric)
    near = away <= np.sort(away, axis=1)[:, 9:10] * (1 + 1e-6)  # equally far counts as near
    ids = posh.CodeIndex.load("digits-index").search(DIGITS.queries[:60], 50).ids
    for n in (10, 50):
        found = np.take_along_axis(near, ids[:, :n], axis=1).sum(axis=1)
        result = values["results"][f"recall 10@{n}"]
        assert result["mean"] == pytest.approx(np.minimum(found, 10).mean() / 10)
        assert result["low"] < result["mean"] < result["high"]
    assert (values["by"], values["n_queries"]) == (metric, 60)


def test_a_set_without_labels_is_measured_by_distance(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = posh.datasets.Dataset("digits", DIGITS.base, DIGITS.queries)
    monkeypatch.setattr(posh.datasets, "load", lambda name: plain)
    values = run_json(
        capsys, "tune", "digits", "--index", "digits-index", "--n-neighbors", "3", "--n-queries", "1"
    )
    assert values["by"] == "euclidean"
    assert list(values["results"]) == ["recall 3@3", "recall 3@1000"]
    assert values["results"]["recall 3@1000"] == {"mean": 1.0, "low": None, "high": None}  # one query
    assert main(["tune", "digits", "--index", "digits-index", "--n-queries", "1"]) == 0
    assert "nan" not in capsys.readouterr().out


def test_places_without_a_result_count_as_misses(capsys: pytest.CaptureFixture[str]) -> None:
    values = run_json(capsys, "tune", "digits", "--index", "lists", "-k", "1000", "--n-probe", "1")
    ids = posh.CodeIndex.load("lists").search(DIGITS.queries, 1000, n_probe=1).ids
    assert DIGITS.base_labels is not None
    assert DIGITS.query_labels is not None
    right = (DIGITS.base_labels[ids] == DIGITS.query_labels[:, None]) & (ids >= 0)
    assert (ids < 0).any()
    assert values["results"]["precision@1000"]["mean"] == pytest.approx(right.mean())


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_true_distances_in_many_blocks(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "_QUERIES", 2)
    monkeypatch.setattr(neighbours, "_DOCUMENTS", 7)
    rng = np.random.default_rng(0)
    base, queries = rng.normal(size=(90, 5)).astype(np.float32), rng.normal(size=(6, 5)).astype(np.float32)
    found = neighbours.measure_true_distances(base, queries, 4, metric)
    expected = np.sort(cdist(queries, base, metric), axis=1)[:, :4]
    # The distance of unit vectors stands for the cosine: c = 1 - r² / 2.
    np.testing.assert_allclose(found**2 / 2 if metric == "cosine" else found, expected, rtol=1e-4)
    few = neighbours.measure_true_distances(base[:3], queries, 4, metric)
    np.testing.assert_array_equal(np.isfinite(few), [[True, True, True, False]] * 6)


def test_more_results_than_documents(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = hits_of(capsys, tmp_path / "h.npz", "few", "queries.npy", "-k", "1000000000000")
    assert np.sort(found["ids"]).tolist() == [list(range(100))] * 7


def test_ids_that_are_strings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In files, which hold no objects, ids are then text, and "" is nobody."""
    folder, output, wanted = (str(tmp_path / name) for name in ("index", "h.npz", "wanted.npy"))
    index = posh.Index(metric="cosine").add(DIGITS.base[:99], [*range(9), *(f"digit {i}" for i in range(90))])
    index.save(folder)
    np.save(wanted, ["digit 7", "digit 5"])
    found = hits_of(capsys, Path(output), folder, "digits", "-k", "3", "--filter", wanted)
    expected = index.search(DIGITS.queries, 3, filter=["digit 7", "digit 5"])
    assert_same(found, posh.Hits(np.where(expected.is_hit, expected.ids, ""), expected.scores, expected.kind))
    assert found["ids"][0, 2] == ""
    assert main(["search", folder, "digits", "-k", "99", "-o", output]) == 0
    first, saved = re.findall(
        r"query 0: (.*? \(.*?\)),|saved: .*: (ids text and scores float32, .*)", capsys.readouterr().out
    )
    assert first[0].startswith(f"{index.search(DIGITS.queries[:1], 1).ids[0, 0]} (")
    assert saved[1] == f"ids text and scores float32, ({len(DIGITS.queries)}, 99)"
