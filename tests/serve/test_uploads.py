"""Files that the service converts for the page."""

from __future__ import annotations

import io

import numpy as np
import pytest

from posh._wire import unpack_vectors

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'posh-ann[data]'")
pq = pytest.importorskip("pyarrow.parquet")
VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3)


def parquet(**columns):
    content = io.BytesIO()
    pq.write_table(pa.table(columns), content)
    return content.getvalue()


def lists(rows):
    return pa.array(list(map(list, rows)), pa.list_(pa.float32()))


@pytest.fixture
def read(http):
    def post(content, name="rows.parquet"):
        headers = {"content-type": "application/octet-stream"}
        answer = http.post("/v1/read", params={"name": name}, content=content, headers=headers)
        return answer.status_code, answer.json()

    return post


def check_vectors(found, name, expected):
    (packed,) = [one for one in found["vectors"] if one["name"] == name]
    np.testing.assert_array_equal(unpack_vectors(packed["shape"], packed["float32"]), expected)


def test_a_table_has_rows_and_every_choice_for_the_vector(read):
    content = parquet(
        id=[1, 2, 3, 4], title=["a", None, "c", "d"], one=lists(VECTORS), other=lists(VECTORS[:, :2])
    )
    status, found = read(content)
    assert status == 200
    assert found["columns"] == ["id", "title"]
    assert found["rows"] == [
        {"id": 1, "title": "a"},
        {"id": 2},
        {"id": 3, "title": "c"},
        {"id": 4, "title": "d"},
    ]
    check_vectors(found, "one", VECTORS)
    check_vectors(found, "other", VECTORS[:, :2])


def test_numbered_columns_are_a_vector(read):
    status, found = read(parquet(x0=[1.0, 2.0], x1=[3.0, 4.0]))
    assert status == 200
    assert (found["columns"], found["rows"]) == ([], [{}, {}])
    check_vectors(found, "x0 … x1", [[1, 3], [2, 4]])


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"something else", "no.parquet", "no.parquet: "),
        (
            b"a b",
            "words.txt",
            "expected a file whose name ends in one of .parquet, .arrow, .feather, got 'words.txt'",
        ),
        (parquet(title=["a"]), "plain.parquet", "plain.parquet: expected one column that can be the vector"),
        (parquet(v=lists([[1, 2], [1, np.nan]])), "nan.parquet", "Row 2: expected finite numbers, got nan"),
        (parquet(v=lists([[1, 2], [1]])), "wide.parquet", "Row 2: expected a vector of 2 numbers, got 1"),
        (parquet(v=lists([])), "empty.parquet", "expected"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.endswith(("parquet", "txt")) else "",
)
def test_a_bad_file_is_explained_without_paths_of_the_service(read, content, name, message):
    status, problem = read(content, name)
    assert status == 422
    assert message.lower() in problem["detail"].lower()
    assert "/" not in problem["detail"].replace("and/or", "")


def test_the_bytes_of_vectors_are_bounded(read, monkeypatch):
    monkeypatch.setattr(
        "posh.serve.handlers.write_table", lambda content, name, most: write_table(content, name, 40)
    )
    from posh.serve.uploads import write_table

    status, problem = read(parquet(v=lists(VECTORS)))
    assert status == 422
    assert "“posh import” on the command line takes any size" in problem["detail"]
