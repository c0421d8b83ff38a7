"""Raw results survive what happens to long runs."""

from __future__ import annotations

import json

import pytest

from posh.errors import FormatError
from posh_reproduction.experiments.records import OtherParametersError, Records

UNIT = {"kind": "trial", "seed": 0}
IDENTITY = {"hasher": {"n_bits": 64}, "data": {"name": "digits"}}


def record(seed, **more):
    return {"unit": {"kind": "trial", "seed": seed}, "identity": IDENTITY, **more}


def test_a_record_is_found_again(tmp_path):
    Records(tmp_path).append(record(0, measures={"map": 0.5}))
    assert Records(tmp_path).find(UNIT, IDENTITY)["measures"] == {"map": 0.5}
    assert Records(tmp_path).find({"kind": "trial", "seed": 1}, IDENTITY) is None


@pytest.mark.parametrize("torn", [b'{"unit": {"kind": "tri', b"{", b'{"unit":{}}'])
def test_a_torn_last_line_is_ignored_and_cut_off(tmp_path, torn):
    Records(tmp_path).append(record(0))
    path = tmp_path / "trial.jsonl"
    path.write_bytes(path.read_bytes() + torn)
    records = Records(tmp_path)
    assert records.find(UNIT, IDENTITY) is not None
    records.append(record(1))
    assert [json.loads(line)["unit"]["seed"] for line in path.read_text().splitlines()] == [0, 1]


def test_a_file_that_is_nothing_but_a_torn_line(tmp_path):
    (tmp_path / "trial.jsonl").write_bytes(b'{"unit"')
    Records(tmp_path).append(record(0))
    assert Records(tmp_path).find(UNIT, IDENTITY) is not None


def test_damage_before_the_last_line_is_an_error(tmp_path):
    (tmp_path / "trial.jsonl").write_text('{"unit\n' + json.dumps(record(0)) + "\n")
    with pytest.raises(FormatError, match=r"trial\.jsonl: expected JSON in line 1"):
        Records(tmp_path).find(UNIT, IDENTITY)


@pytest.mark.parametrize(
    "now",
    [
        {"hasher": {"n_bits": 128}, "data": {"name": "digits"}},
        {"hasher": {"n_bits": 64}, "data": {"name": "mnist"}},
    ],
    ids=["hasher", "data"],
)
def test_other_parameters_are_not_taken_for_the_same(tmp_path, now):
    Records(tmp_path).append(record(0))
    with pytest.raises(OtherParametersError, match=r"recorded: .*--recompute"):
        Records(tmp_path).find(UNIT, now)


def test_the_later_record_counts(tmp_path):
    for value in (1, 2):
        Records(tmp_path).append(record(0, value=value))
    assert Records(tmp_path).latest(UNIT)["value"] == 2


def test_two_runs_cannot_write_to_one_folder(tmp_path):
    with (
        Records(tmp_path).locked(),
        pytest.raises(BlockingIOError, match="another run writes here"),
        Records(tmp_path).locked(),
    ):
        pass
    with Records(tmp_path).locked():
        pass
