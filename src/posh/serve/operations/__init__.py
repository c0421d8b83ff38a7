"""What can be asked of the service: handlers from a request to an answer."""

from posh.serve.operations.collections import CollectionOperations
from posh.serve.operations.hashers import HasherOperations
from posh.serve.operations.items import ItemOperations
from posh.serve.operations.overview import OverviewOperations
from posh.serve.operations.search import SearchOperations

__all__ = ["CollectionOperations", "HasherOperations", "ItemOperations", "OverviewOperations"]
__all__ += ["SearchOperations"]
