"""An HTTP service over collections, and its client: ``posh serve`` and :class:`posh.client.Client`.

``app.py`` puts the parts together. The service needs the extra ``posh-ann[serve]``, the client
``posh-ann[client]``; the rest of the library imports nothing of this.
"""

from importlib.util import find_spec

from posh.errors import MissingExtraError

__all__ = ["require_extra"]


def require_extra() -> None:
    """Raise a :class:`posh.errors.MissingExtraError` if a package of the service is not installed."""
    for package in ("granian", "orjson", "prometheus_client", "pydantic", "starlette"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "serve", "posh.serve")
