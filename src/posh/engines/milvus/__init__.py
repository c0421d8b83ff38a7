"""Collections on Milvus, in a file (Milvus Lite) or on a server. Needs the extra ``milvus``."""

from posh.engines.milvus.collection import MilvusCollection
from posh.engines.milvus.connection import Milvus

__all__ = ["Milvus", "MilvusCollection"]
