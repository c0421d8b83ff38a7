"""The command line, run in this process; a pipe that closes needs a process of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import posh
from posh.cli import main
from posh.cli._fit import METHODS
from posh.errors import DataUnavailableError
from posh.hashers import HASHERS
from tests.cli.running import fails_in_one_line, help_of, one_error, run_json

COMMANDS = [[], ["data"], ["data", "list"], ["data", "fetch"], ["fit"], ["batch", "encode"], ["demo"]]
RUN = [sys.executable, "-c", "import sys; from posh.cli import main; sys.exit(main())"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSH_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("POSH_DEBUG", raising=False)


@pytest.fixture
def model() -> str:
    posh.LSH(n_bits=12, random_state=0).fit(posh.datasets.load("digits").base).save("lsh.safetensors")
    return "lsh.safetensors"


# Help --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_example_in_the_help_works(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    example = re.search(r"^example:\n  posh (.*)$", help_of(command, capsys), re.MULTILINE)
    assert example is not None
    monkeypatch.setattr(posh.datasets, "fetch", lambda name: None)
    posh.POSH(64, 8, n_epochs=1).fit(posh.datasets.load("digits").base).save("digits.safetensors")
    assert main(shlex.split(example[1])) == 0


def test_help_imports_little() -> None:
    """Scikit-learn alone takes more than a second."""
    code = "import sys; from posh.cli import build_full_parser; build_full_parser(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"posh.cli._transfer", "posh.cli._maintenance"} <= {*done.stdout.split()}
    assert {"sklearn", "scipy", "pandas", "pyarrow"}.isdisjoint(done.stdout.split())


def test_help_lists_commands_by_group(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of([], capsys)
    titles = re.findall(r"^(\w+):$", text, re.MULTILINE)
    assert titles == ["options", "collections", "vectors", "codes", "data", "more", "example"]
    assert re.search(r"^collections:\n(  .*\n)*  reindex ", text, re.MULTILINE)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert re.fullmatch(r"posh \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_fit_knows_every_public_hasher() -> None:
    assert tuple(HASHERS) == METHODS


# Data --------------------------------------------------------------------------------------------------


def test_data_list_shows_every_set(capsys: pytest.CaptureFixture[str]) -> None:
    values = run_json(capsys, "data", "list")
    assert [row["name"] for row in values["data"]] == list(posh.datasets.names())
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(posh.datasets.names())
    assert re.search(r"digits +1,597 +200 +64 +yes .*scikit-learn", lines[1])


def test_data_fetch_reports_each_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(posh.datasets, "fetch", fetched.append)
    values = run_json(capsys, "data", "fetch", "digits", "mnist")
    assert fetched == ["digits", "mnist"]
    assert [(row["name"], row["was_cached"]) for row in values["fetched"]] == [
        ("digits", True),
        ("mnist", False),
    ]


# Fit and encode ----------------------------------------------------------------------------------------


def test_fit_and_encode_equal_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    data = posh.datasets.load("digits")
    shape = ["--n-bits", "128", "--n-active", "8", "--random-state", "3", "--set", "n_epochs=4"]
    fitted = run_json(capsys, "fit", "digits", "-o", "m.safetensors", *shape)
    encoded = run_json(capsys, "batch", "encode", "m.safetensors", "digits", "-o", "c.npz")
    run_json(capsys, "batch", "encode", "m.safetensors", "digits", "--queries", "-o", "q.npy")

    hasher = posh.POSH(128, 8, n_epochs=4, random_state=3).fit(data.base)
    with np.load("c.npz") as file:
        assert posh.Codes(file["active"], int(file["n_bits"])) == hasher.encode(data.base)
        assert file["active"].dtype == np.uint16
    np.testing.assert_array_equal(np.load("q.npy"), hasher.encode(data.queries).active)
    assert fitted["objective_first"] == hasher.objective_[0] > fitted["objective_last"]
    assert (fitted["n_vectors"], fitted["n_features"]) == data.base.shape
    assert encoded["shape"] == [len(data.base), 8]
    assert encoded["vectors_per_second"] > 0


def test_encode_reads_an_array_of_a_file(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = posh.datasets.load("digits").base
    np.savez("x.npz", few=base[:5], many=base[:9])
    values = run_json(capsys, "batch", "encode", model, "x.npz", "--vector", "many", "-o", "c.npy")
    assert values["shape"] == [9, 2]
    np.testing.assert_array_equal(np.load("c.npy"), posh.LSH.load(model).encode(base[:9]).bits)


@pytest.mark.parametrize("method", HASHERS)
def test_every_method_goes_from_file_to_codes(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.random.default_rng(0).normal(size=(60, 10)))
    values = run_json(capsys, "fit", "x.npy", "-o", "m", "--method", method.lower(), "--n-bits", "160")
    assert values["method"] == method
    assert main(["batch", "encode", "m", "x.npy", "-o", "c.npz"]) == 0
    assert "per second" in capsys.readouterr().out
    codes = posh.Hasher.load("m").encode(np.load("x.npy").astype(np.float32))
    with np.load("c.npz") as file:
        key, expected = ("active", codes.active) if isinstance(codes, posh.Codes) else ("bits", codes.bits)
        assert sorted(file) == sorted([key, "n_bits"])
        np.testing.assert_array_equal(file[key], expected)
        assert file["n_bits"] == 160


def test_train_takes_a_seeded_sample(capsys: pytest.CaptureFixture[str]) -> None:
    means = []
    for seed in ("0", "0", "1"):
        values = run_json(
            capsys, "fit", "digits", "-o", "m", "--method", "LSH", "--n-sample", "50", "--random-state", seed
        )
        assert values["n_vectors"] == 50
        means.append(posh.LSH.load("m").preprocess_.mean)
    np.testing.assert_array_equal(means[0], means[1])
    assert not np.array_equal(means[0], means[2])


def test_set_takes_words_and_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--set", "weights=orthogonal", "--set", "p=0.5"]
    values = run_json(capsys, "fit", "digits", "-o", "m", "--method", "FruitFly", *settings)
    assert (values["params"]["weights"], values["params"]["p"]) == ("orthogonal", 0.5)


def test_set_reaches_the_reduction(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("x.npz", X=np.random.default_rng(0).normal(size=(100, 40)))
    for rule, expected in (("auto", 32), ("paper", 4)):
        values = run_json(
            capsys, "fit", "x.npz", "-o", "m", "--n-bits", "32", "--n-active", "4", "--set", f"reduce={rule}"
        )
        assert values["params"]["reduce"] == rule
        assert posh.POSH.load("m").preprocess_.n_features_out == expected


def test_key_chooses_an_array_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("x.npz", few=np.eye(5), many=np.eye(9))
    values = run_json(capsys, "fit", "x.npz", "--key", "many", "-o", "m", "--method", "LSH", "--n-bits", "4")
    assert values["n_vectors"] == 9


def test_fit_text_tells_time_objective_and_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "digits", "-o", "m", "--n-bits", "64", "--n-active", "4", "--set", "n_epochs=2"]) == 0
    out = capsys.readouterr().out
    assert re.match(
        r"POSH fitted to 1,597 x 64 vectors in [\d.]+ s\nobjective: .* 2 epochs\nsaved: m\n$", out
    )


# Errors ------------------------------------------------------------------------------------------------

FIT = ["fit", "digits", "-o", "m"]
ERRORS = {
    "unknown data set": (
        1,
        ["fit", "nope", "-o", "m"],
        "nope: no such data set or file; choose from digits, mnist",
    ),
    "unknown set to fetch": (1, ["data", "fetch", "nope"], "unknown data set 'nope'"),
    "missing file": (1, ["fit", "nope.npy", "-o", "m"], "nope.npy: no such file"),
    "missing folder": (
        1,
        ["fit", "digits", "-o", "no/m"],
        "no/m: expected an existing folder, got no: create",
    ),
    "output is a folder": (1, ["fit", "digits", "-o", "."], "expected a file to write, got a folder"),
    "too many bits": (1, [*FIT, "--n-bits", "99999"], "expected n_bits between 2 and 65536, got 99999"),
    "bad value": (1, [*FIT, "--set", "n_epochs=many"], "n_epochs"),
    "bad key": (2, [*FIT, "--set", "epochs=3"], "'epochs' in --set; POSH takes: batch_size, lag, n_epochs"),
    "key with an option": (2, [*FIT, "--set", "n_bits=64"], "use --n-bits instead of --set n_bits"),
    "no value": (2, [*FIT, "--set", "n_epochs"], "expected KEY=VALUE, got 'n_epochs'"),
    "active and dense": (2, [*FIT, "--method", "LSH", "--n-active", "4"], "got --method LSH: leave it out"),
    "unknown method": (2, [*FIT, "--method", "SHA"], f"expected one of {', '.join(HASHERS)}, got 'SHA'"),
    "too many to fit to": (2, [*FIT, "--n-sample", "9999"], "expected --n-sample of at most 1597"),
    "no vectors to train on": (
        2,
        [*FIT, "--n-sample", "0"],
        "expected a whole number of at least 1, got '0'",
    ),
    "key and data set": (2, [*FIT, "--key", "train"], "--key is for files"),
    "no command": (2, [], "required: COMMAND (see 'posh --help')"),
    "no output": (2, ["fit", "digits"], "required: -o/--output (see 'posh fit --help')"),
}


@pytest.mark.parametrize(("code", "arguments", "message"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_one_line(
    code: int, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fails_in_one_line(capsys, code, arguments, message)
    assert not Path("m").exists()


def test_encode_refuses_vectors_of_another_width(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.eye(7))
    assert main(["batch", "encode", model, "x.npy", "-o", "c.npz"]) == 1
    assert "expected vectors with 64 columns" in one_error(capsys)


def test_encode_refuses_a_damaged_model(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray(Path(model).read_bytes())
    content[-1] ^= 1
    Path(model).write_bytes(content)
    assert main(["batch", "encode", model, "digits", "-o", "c.npz"]) == 1
    assert "the checksum does not match" in one_error(capsys)


def test_encode_refuses_a_missing_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", "encode", "none.safetensors", "digits", "-o", "c.npz"]) == 1
    assert one_error(capsys) == "posh: error: none.safetensors: No such file or directory\n"


def test_encode_refuses_other_suffixes_and_queries_of_files(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", "encode", model, "digits", "-o", "c.txt"]) == 2
    assert "end in .npz or .npy with the data set digits, got c.txt" in one_error(capsys)
    assert main(["batch", "encode", model, "x.npy", "--queries", "-o", "codes"]) == 2
    assert "end in .npz or .npy with --queries, got codes" in one_error(capsys)
    assert main(["batch", "encode", model, "x.npy", "y.npy", "-o", "c.npz"]) == 2
    assert "expected one file or data set for c.npz, got 2: give a folder" in one_error(capsys)
    assert main(["batch", "encode", model, "x.npy", "--local", "-o", "c.npz"]) == 2
    assert "--local is for a folder of codes, got --output c.npz: leave it out" in one_error(capsys)
    assert main(["batch", "encode", model, "x.npy", "--queries", "-o", "c.npy"]) == 2
    assert "--queries is for data sets by name, got x.npy" in one_error(capsys)


def test_a_message_of_many_lines_becomes_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise DataUnavailableError("Tried:\n  here\n  there")

    monkeypatch.setattr(posh.datasets, "fetch", fail)
    assert main(["data", "fetch", "digits"]) == 1
    assert one_error(capsys) == "posh: error: Tried: here there\n"


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSH_DEBUG", "1")
    with pytest.raises(FileNotFoundError):
        main(["fit", "nope", "-o", "m"])


def test_an_interrupt_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(posh.datasets, "catalogue", interrupt)
    assert main(["data", "list"]) == 130
    assert capsys.readouterr().err == "posh: interrupted\n"


@pytest.mark.parametrize("arguments", [["data", "list"], ["--help"]], ids=" ".join)
def test_a_closed_pipe_is_silent(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*RUN, *arguments], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.stderr == b""
    assert done.returncode in (0, 141)  # argparse itself ignores the pipe when Python is unbuffered
