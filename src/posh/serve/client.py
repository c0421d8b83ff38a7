"""The Python client of the service."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

from posh import errors
from posh.hashers.base import Hasher
from posh.serve.info import Info
from posh.serve.limits import checked_name
from posh.serve.remote import RemoteCollection

try:
    import httpx
except ImportError as error:
    raise errors.MissingExtraError("httpx", "client", "posh.serve.client") from error

__all__ = ["Client"]

_ERRORS: dict[str, type[Exception]] = {
    "invalid-argument": ValueError,
    "wrong-type": TypeError,
    "too-large": ValueError,
    "no-hasher": ValueError,
    "unknown-item": KeyError,
    "unknown-collection": errors.UnknownCollectionError,
    "collection-exists": errors.CollectionExistsError,
    "not-a-hasher": errors.FormatError,
    "storage-full": errors.StorageError,
    "read-only": errors.StorageError,
    "storage-failed": errors.StorageError,
}


class Client:
    """A connection to ``posh serve``, for any number of threads.

    ``url`` is the address that the service prints, ``token`` its token if it has one, ``timeout`` the seconds
    to wait for an answer. What goes wrong raises the library's own exceptions, in the same words; a service
    that cannot be reached or is too busy is a :class:`posh.errors.ServiceError`.

    Examples
    --------
    >>> with Client("http://127.0.0.1:8765", token="secret") as client:  # doctest: +SKIP
    ...     shop = client.create("shop", hasher=hasher)
    ...     shop.upsert(["a", "b"], vectors, [{"price": 3}, {"price": 5}])
    ...     shop.search(vectors[0], k=10, filter={"price": {"lt": 4}})

    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 60.0) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, trust_env=False)

    def __repr__(self) -> str:
        return f"Client({str(self._http.base_url)!r})"

    def __reduce__(self) -> Any:
        """Refuse to pickle: the token would be in the pickle, and connections cannot be."""
        raise TypeError(f"{self!r} cannot be pickled: make another one from the address where it is needed")

    def collections(self) -> list[Info]:
        """What collections there are."""
        return [Info.from_json(one) for one in self.request("GET", "/v1/collections")["collections"]]

    def create(
        self,
        name: str,
        hasher: Hasher[Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> RemoteCollection:
        """Make a collection; ``hasher`` (fitted) and ``options`` are as in ``reindex``.

        Without a hasher, ``metric="cosine", recall=0.95`` lets the first items make the index. Without a
        metric either, the collection keeps the options for the hasher that it gets later.
        """
        body = {"metadata": dict(metadata or {}), "index": options}
        self.request("PUT", f"/v1/collections/{checked_name(name)}", body)
        collection = self.collection(name)
        if hasher is not None:
            collection.reindex(hasher, **options)
        return collection

    def collection(self, name: str) -> RemoteCollection:
        """The collection of this name, which need not exist yet."""
        return RemoteCollection(self.request, f"/v1/collections/{checked_name(name)}")

    def delete(self, name: str) -> None:
        """Delete a collection for ever."""
        self.request("DELETE", f"/v1/collections/{checked_name(name)}")

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def request(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        """Send a request with JSON or bytes, and return the JSON or the bytes of the answer."""
        content, kind = None, {}
        if body is not None:
            is_file = isinstance(body, bytes)
            content = body if is_file else json.dumps(body, separators=(",", ":")).encode()
            kind = {"content-type": "application/octet-stream" if is_file else "application/json"}
        try:
            answer = self._http.request(method, path, content=content, headers=kind, params=params)
        except httpx.HTTPError as error:
            raise errors.ServiceError(
                f"{self._http.base_url}: expected an answer, got none ({error}): see whether the service runs"
            ) from error
        if answer.is_error:
            raise _error(answer)
        is_json = answer.headers.get("content-type") == "application/json"
        return json.loads(answer.content) if is_json else answer.content


def _error(answer: httpx.Response) -> Exception:
    try:
        problem = answer.json()
        kind, detail = problem["type"].removeprefix("urn:posh:"), str(problem["detail"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return errors.ServiceError(
            f"expected an answer of posh serve, got {answer.status_code} of another service"
        )
    return _ERRORS.get(kind, errors.ServiceError)(detail)
