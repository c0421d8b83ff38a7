r"""Readers and writers of files with vectors, ids and payloads.

>>> import pathlib, tempfile
>>> from posh.files import choose_roles, open_file
>>> with tempfile.TemporaryDirectory() as folder:
...     path = pathlib.Path(folder, "two.jsonl")
...     _ = path.write_text('{"id": "a", "vector": [1, 2]}\n{"id": "b", "vector": [3, 4], "year": 1999}\n')
...     file = open_file(path)
...     for batch in file.batches(choose_roles(file).roles, 100):
...         print(batch.ids, batch.vectors, batch.payloads)
['a', 'b'] [[1, 2], [3, 4]] [{}, {'year': 1999}]
"""

from posh.files.contract import BadRowHandler, Batch, Column, Roles, RowError, VectorFile
from posh.files.formats import SUFFIXES, WRITERS, open_file, read_vectors, write_items
from posh.files.roles import Choice, OptionNames, choose_roles, take_valid_vectors

__all__ = [
    "SUFFIXES",
    "WRITERS",
    "BadRowHandler",
    "Batch",
    "Choice",
    "Column",
    "OptionNames",
    "Roles",
    "RowError",
    "VectorFile",
]
__all__ += ["choose_roles", "open_file", "read_vectors", "take_valid_vectors", "write_items"]
