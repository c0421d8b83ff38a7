r"""Files of vectors with ids and payloads, read in batches: the rows that ``posh import`` brings.

>>> import pathlib, tempfile
>>> from posh.vector_files import choose_roles, open_file
>>> with tempfile.TemporaryDirectory() as folder:
...     path = pathlib.Path(folder, "two.jsonl")
...     _ = path.write_text('{"id": "a", "vector": [1, 2]}\n{"id": "b", "vector": [3, 4], "year": 1999}\n')
...     file = open_file(path)
...     for batch in file.batches(choose_roles(file).roles, 100):
...         print(batch.ids, batch.vectors, batch.payloads)
['a', 'b'] [[1, 2], [3, 4]] [{}, {'year': 1999}]
"""

from posh.vector_files.checks import checked_vectors
from posh.vector_files.contract import Batch, Column, Roles, RowError, VectorFile
from posh.vector_files.formats import SUFFIXES, open_file
from posh.vector_files.roles import Choice, choose_roles

__all__ = ["SUFFIXES", "Batch", "Choice", "Column", "Roles", "RowError", "VectorFile"]
__all__ += ["checked_vectors", "choose_roles", "open_file"]
