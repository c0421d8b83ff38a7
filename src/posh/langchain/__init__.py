"""A vector store for LangChain, over a collection: ``pip install 'posh-ann[langchain]'``."""

from posh.errors import MissingExtraError

try:
    import langchain_core  # noqa: F401
except ImportError as error:
    raise MissingExtraError("langchain-core", "langchain", "posh.langchain") from error

from posh.langchain.store import PoshVectorStore

__all__ = ["PoshVectorStore"]
