"""Vectors in any form: each equals the plain array."""

from __future__ import annotations

import subprocess
import sys
import uuid

import numpy as np
import pytest

import posh
from posh._validate import as_array
from tests.collection.implementations import DATA, SPARSE

ROWS = DATA[:20]
pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))


def objects(rows) -> np.ndarray:
    array = np.empty(len(rows), object)
    array[:] = list(rows)
    return array


def arrow_fixed(rows):
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.ravel()), rows.shape[1])


FORMS = {
    "array": lambda rows: rows,
    "lists": lambda rows: rows.tolist(),
    "tuples": lambda rows: tuple(map(tuple, rows.tolist())),
    "list of arrays": list,
    "objects that are arrays": lambda rows: objects(list(rows)),
    "objects that are lists": lambda rows: objects(rows.tolist()),
    "objects that are numbers": lambda rows: rows.astype(object),
    "pandas frame": pandas.DataFrame,
    "pandas series of arrays": lambda rows: pandas.Series(list(rows), index=range(5, 25)),
    "pandas series of lists": lambda rows: pandas.Series(rows.tolist()),
    "pandas frame with a column of arrays": lambda rows: pandas.DataFrame({"vector": list(rows)}),
    "polars frame": polars.DataFrame,
    "polars lists": lambda rows: polars.Series(rows.tolist()),
    "polars arrays": lambda rows: polars.Series(rows.tolist(), dtype=polars.Array(polars.Float32, 8)),
    "arrow lists": lambda rows: pyarrow.array(rows.tolist()),
    "arrow fixed lists": arrow_fixed,
    "arrow slice": lambda rows: arrow_fixed(np.vstack([rows, rows])).slice(20, 20),
    "arrow chunks": lambda rows: pyarrow.chunked_array([arrow_fixed(rows[:7]), arrow_fixed(rows[7:])]),
    "arrow half precision": lambda rows: pyarrow.array(list(rows.astype(np.float16))),
}


@pytest.mark.parametrize("form", list(FORMS))
def test_every_form_is_the_same_vectors(form):
    expected = ROWS if "half" not in form else ROWS.astype(np.float16)
    found = as_array(FORMS[form](ROWS))
    assert found.shape == (20, 8)
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize(
    "form",
    [
        "lists",
        "pandas series of arrays",
        "pandas frame with a column of arrays",
        "polars lists",
        "arrow chunks",
    ],
)
def test_every_entrance_takes_them(form, tmp_path):
    rows = FORMS[form](ROWS)
    assert SPARSE.encode(rows) == SPARSE.encode(ROWS)
    fitted = posh.LSH(16, random_state=0).fit(rows)
    assert fitted.encode(rows) == posh.LSH(16, random_state=0).fit(ROWS).encode(ROWS)
    index = posh.CodeIndex(SPARSE).add(rows)
    assert index.search(rows, 3).ids.tolist() == index.search(ROWS, 3).ids.tolist()
    with posh.Collection(tmp_path, SPARSE) as collection:
        collection.upsert(range(20), rows)
        np.testing.assert_array_equal([item.vector for item in collection.items()], ROWS)
        assert collection.search(rows, 3).ids.tolist() == collection.search(ROWS, 3).ids.tolist()
        one = collection.search(pandas.Series(ROWS[3]), 1)
        assert (one.ids.shape, one.scores[0, 0]) == ((1, 1), 4.0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1, 2], [3, 4, 5]], "expected rows of X with 2 numbers, as row 0 has, got 3 in row 1"),
        (pyarrow.array([[1.0, 2.0], [3.0]]), "with 2 numbers, as row 0 has, got 1 in row 1"),
        (pandas.Series([[1.0, 2.0], [3.0], [4.0, 5.0]]), "with 2 numbers, as row 0 has, got 1 in row 1"),
        (polars.Series([[1.0], [2.0], []]), "with 1 numbers, as row 0 has, got 0 in row 2"),
        (pyarrow.array([[1.0, 2.0], None]), "expected numbers in row 1 of X, got None: leave it out"),
        (pandas.Series([None, [1.0]]), "expected numbers in row 0 of X, got None"),
        (pandas.Series([[1.0, 2.0], "3, 4"]), "expected numbers in row 1 of X, got '3, 4'"),
        ([[1, 2], [3, [4]]], r"expected a list of numbers in row 1 of X, got \[3, \[4\]\]"),
        ([[1, 2], 3], "expected a list of numbers in row 1 of X, got 3"),
        (objects([["a", None], [1, 2]]), "row 0 of X has objects that are not numbers"),
        (objects([[1, 2], [3, "b", None]]), "row 1 of X has objects that are not numbers"),
    ],
)
def test_wrong_rows_are_named(rows, message):
    with pytest.raises(ValueError, match=message):
        as_array(rows)


@pytest.mark.parametrize("wrap", [list, objects, pandas.Series], ids=lambda wrap: wrap.__name__)
def test_uuids_become_strings(wrap, tmp_path):
    ids = [uuid.UUID(int=i) for i in range(3)]
    with posh.Collection(tmp_path, SPARSE) as collection:
        collection.upsert(wrap(ids), ROWS[:3])
        assert [item.id for item in collection.items()] == [str(one) for one in ids]
        assert ids[0] in collection
        assert collection.get(wrap(ids[1:2]))[0].id == str(ids[1])
        assert collection.search(ids=wrap(ids[:1]), k=2).ids.shape == (1, 2)
        assert collection.delete(wrap(ids)) == 3


@pytest.mark.parametrize(
    "column", [pandas.Series, polars.Series, pyarrow.array], ids=["pandas", "polars", "arrow"]
)
def test_columns_of_ids(column, tmp_path):
    with posh.Collection(tmp_path, SPARSE) as collection:
        collection.upsert(column([1, 2]), ROWS[:2]).upsert(column(["a", "b"]), ROWS[2:4])
        assert [item.id for item in collection.items()] == [1, 2, "a", "b"]
        with pytest.raises(ValueError, match=r"expected ids to be int or str, got (None|nan)"):
            collection.get(column(["a", None]))
    index = posh.CodeIndex(SPARSE).add(ROWS[:2], column([5, 7]))
    assert index.ids.tolist() == [5, 7]
    assert index.add(ROWS[:1], column(["a"])).ids.tolist() == [5, 7, "a"]
    assert index.delete(column(["a"])).ids.tolist() == [5, 7]
    with pytest.raises(ValueError, match=r"expected ids to be int or str, got (None|nan)"):
        index.add(ROWS[:2], column(["b", None]))


def test_none_of_these_libraries_is_imported():
    code = (
        "import sys; sys.modules['pandas'] = None; import numpy as np; from posh._validate import as_array; "
        "as_array([[1, 2]]); as_array(np.array([[1, 2]], object)); "
        "print({'polars', 'pyarrow'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
