"""Data sets for measurements.

>>> from posh import datasets
>>> datasets.load("digits")
Dataset('digits', base=(1597, 64), queries=(200, 64), classes=10)
"""

from posh.datasets._fetch import data_dir
from posh.datasets._registry import Dataset, Info, catalogue, fetch, is_cached, load, names

__all__ = ["Dataset", "Info", "catalogue", "data_dir", "fetch", "is_cached", "load", "names"]
