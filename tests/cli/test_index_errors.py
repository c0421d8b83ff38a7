"""The errors of commands about indexes: one line each, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from posh.cli import main
from tests.cli.running import fails_in_one_line

pytestmark = pytest.mark.usefixtures("at_home")

BUILD = ["build", "digits", "--model", "digits.safetensors", "-o", "new"]
DENSE = ["build", "digits", "--model", "dense.safetensors", "-o", "new"]
SEARCH = ["search", "digits-index", "digits"]
TUNE = ["tune", "digits", "--index", "digits-index"]
ERRORS = {
    "no index": (1, ["search", "nope", "digits"], "nope: expected a saved index, found no manifest.json"),
    "no index to measure": (1, ["tune", "digits", "--index", "nope"], "nope: expected a saved index"),
    "nothing to tell about": (1, ["info", "nope"], "nope: No such file or directory"),
    "foreign folder": (1, ["search", "text", "digits"], "text: expected a saved index, found no manifest"),
    "foreign folder to tell about": (1, ["info", "text"], "text: expected a saved index"),
    "foreign file": (1, ["info", "ids.npy"], "ids.npy: not a readable POSH model"),
    "queries of another width": (
        1,
        ["search", "digits-index", "wide.npy"],
        "expected vectors with 64 columns",
    ),
    "documents of another width": (
        1,
        ["build", "wide.npy", *BUILD[2:]],
        "expected vectors with 64 columns",
    ),
    "output is a file": (1, [*BUILD[:5], "ids.npy"], "ids.npy: expected a folder to write, got a file"),
    "unknown structure": (2, [*BUILD, "--structure", "x"], "'x' (choose from 'exact', 'ivf')"),
    "unknown scoring": (2, [*BUILD, "--scoring", "x"], "'x' (choose from 'overlap', 'asymmetric')"),
    "unknown refiner": (
        2,
        [*BUILD, "--refine", "x"],
        "'sbiht', 'vectors', 'cosine') (see 'posh build --help')",
    ),
    "dense and lists": (
        1,
        [*DENSE, "--structure", "ivf"],
        "structure='ivf' needs sparse codes, got LSH: leave",
    ),
    "lists without ivf": (2, [*BUILD, "--n-lists", "9"], "--n-lists is for --structure ivf, got exact"),
    "filter of floats": (1, [*SEARCH, "--filter", "floats.npy"], "or a 1-D array of ids, got float64 (5,)"),
    "filter of another kind": (1, [*SEARCH, "--filter", "dense.safetensors"], "expected an .npy file of ids"),
    "no filter": (1, [*SEARCH, "--filter", "nope.npy"], "nope.npy: No such file or directory"),
    "hits in a text": (2, [*SEARCH, "-o", "hits.txt"], "expected --output to end in .npz, got hits.txt"),
    "probes without lists": (2, [*SEARCH, "--n-probe", "3"], "--n-probe is for lists, got CodeIndex(1,597"),
    "nothing to refine": (
        2,
        ["search", "lists", "digits", "--oversample", "3"],
        "--oversample is for candid",
    ),
    "neither model nor metric": (
        2,
        ["build", "digits", "-o", "new"],
        "expected --model or --metric, got neither: for example '--metric cosine'",
    ),
    "recall without a metric": (2, [*BUILD, "--recall", "0.9"], "--recall is for --metric: add it, or"),
    "store without a metric": (2, [*BUILD, "--store", "int8"], "--store is for --metric: add it, or"),
    "recall of codes": (2, [*SEARCH, "--recall", "0.9"], "--recall is for an index with a metric"),
    "exact codes": (2, [*SEARCH, "--exact"], "--exact is for an index with a metric"),
    "too few candidates": (1, [*SEARCH, "--oversample", "0.5"], "expected oversample in [1, inf), got 0.5"),
    "no results": (2, [*SEARCH, "-k", "0"], "expected a whole number of at least 1, got '0'"),
    "some of the base": (
        2,
        ["tune", "digits", "--index", "few"],
        "all 1,597 base vectors of digits with the ids 0, 1, …",
    ),
    "another order": (
        2,
        ["tune", "digits", "--index", "reversed"],
        "documents with other codes: build it with",
    ),
    "another width": (
        2,
        ["tune", "digits", "--index", "narrow"],
        "base vectors of digits, 64 wide, got one for width 8",
    ),
    "unknown data": (
        1,
        ["tune", "nope", "--index", "digits-index"],
        "unknown data set 'nope'; choose",
    ),
    "too deep": (2, [*TUNE, "-k", "2000"], "expected -k of at most 1597"),
    "neighbours by label": (2, [*TUNE, "--n-neighbors", "5"], "digits has labels: add --metric"),
    "more neighbours than results": (
        2,
        [*TUNE, "--metric", "cosine", "--n-neighbors", "9", "-k", "5"],
        "expected --n-neighbors of at most 5",
    ),
    "dot with a base": (2, [*TUNE, "--metric", "dot"], "expected --metric of one of euclidean, cosine"),
    "labels of an index": (2, [*TUNE, "--labels", "ids.npy"], "--labels is for candidates, and --index"),
    "plot of an index": (2, [*TUNE, "-o", "a.png"], "--output is for candidates, and --index for an index"),
    "depth without an index": (2, [*TUNE[:2], "-k", "5"], "-k is for --index: add it, or leave it out"),
    "probes without an index": (2, [*TUNE[:2], "--n-probe", "5"], "--n-probe is for --index: add it"),
    "both model and metric": (2, [*BUILD, "--metric", "dot"], "expected --model or --metric, got both"),
    "bench of nothing": (2, ["bench"], "required: COMMAND (see 'posh bench --help')"),
    "bench of unknown data": (1, ["bench", "fit", "--data", "nope"], "unknown data set 'nope'"),
    "bench with too large a k": (2, ["bench", "search", "-k", "2000"], "expected -k of at most 1597"),
}


@pytest.mark.parametrize(("code", "arguments", "message"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_one_line(
    code: int, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fails_in_one_line(capsys, code, arguments, message)
    assert not Path("new").exists()


def test_build_leaves_other_files_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BUILD[:5], "text"]) == 1
    assert "text: expected an empty folder or a saved index, found other files" in capsys.readouterr().err
    assert [path.name for path in Path("text").iterdir()] == ["thesis.txt"]
