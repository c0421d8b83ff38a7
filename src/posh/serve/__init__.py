"""An HTTP service over collections, and its client: ``posh serve`` and :class:`posh.serve.client.Client`.

``app.py`` puts the parts together. The rest of the library imports nothing of this, because it needs the
extra ``posh-ann[serve]``.
"""

from importlib.util import find_spec

from posh.errors import MissingExtraError

for _package in ("starlette", "httptools", "httpx", "orjson", "prometheus_client", "uvicorn"):
    if find_spec(_package) is None:
        raise MissingExtraError(_package, "serve", "posh.serve")
