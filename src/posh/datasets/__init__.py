"""Data sets to measure with, and readers for your own.

>>> from posh import datasets
>>> datasets.load("digits")
Dataset('digits', base=(1597, 64), queries=(200, 64), classes=10)
"""

from posh.datasets._cache import data_dir
from posh.datasets._dataset import Dataset
from posh.datasets._formats import read_dataset, read_vectors
from posh.datasets._registry import Info, cached, catalogue, fetch, load, names

__all__ = [
    "Dataset",
    "Info",
    "cached",
    "catalogue",
    "data_dir",
    "fetch",
    "load",
    "names",
    "read_dataset",
    "read_vectors",
]
