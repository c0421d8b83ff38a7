"""Collections on Milvus: ``pip install 'posh-ann[milvus]'``; docs/milvus.md says how.

A file (Milvus Lite) or a server: the address alone decides.
"""

from posh.milvus.collection import MilvusCollection
from posh.milvus.connection import Milvus

__all__ = ["Milvus", "MilvusCollection"]
