"""POSH: sparse binary codes for vectors, and exact search over them.

``import posh`` is quick: each public name is imported when it is first used. ``__init__.pyi`` lists them.

>>> import posh
>>> data = posh.datasets.load("digits")
>>> hasher = posh.POSH(n_bits=256, n_active=16, random_state=0).fit(data.base)
>>> hasher.encode(data.queries)
Codes(n=200, n_active=16, n_bits=256)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
