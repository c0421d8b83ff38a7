"""The connection to Milvus: one address, the calls of ``pymilvus``, and its errors in our words."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from posh import _validate
from posh.errors import MissingExtraError, ServiceError, StorageError

__all__ = ["CONSISTENCIES", "TOKEN", "Milvus"]

TOKEN = "POSH_MILVUS_TOKEN"
CONSISTENCIES = ("Strong", "Session", "Bounded", "Eventually")
_SERVERS = ("http://", "https://", "tcp://")
_FILE = re.compile(r"[A-Za-z0-9._-]{1,32}\.db")  # what Milvus Lite accepts
_REFUSED = (
    "auth check failure",
    "missing authorization",
    "unauthenticated",
    "not authenticated",
    "permission den",
    "invalid token",
)
_GONE = 100  # Milvus's number for a collection that is not there
_CONNECT = 10.0  # seconds for the first answer, or fewer
_OLDEST = (2, 4)  # the first with sparse vectors


class Milvus:
    """A Milvus, by its address: a file of Milvus Lite, such as ``shop.db``, or ``http://host:19530``.

    Parameters
    ----------
    uri : a file that ends in ``.db``, which is made if it is not there, or the address of a server.
    token : what a server asks for, ``user:password`` or a key. By default the environment variable
        ``POSH_MILVUS_TOKEN``, if there is one.
    database : the database of the server.
    consistency : what searches and reads see: ``"Strong"`` is every write that has returned, ``"Session"``
        those of this connection, ``"Bounded"`` those of some seconds ago, ``"Eventually"`` some.
    timeout : seconds after which a call is a :class:`~posh.errors.ServiceError`.
    ca_file, certificate, key, server_name : for TLS: the file of the authority to trust, the files of the
        client's certificate and of its key, the name that the server's certificate must have. They need
        ``https://``, and a certificate needs a key and an authority.

    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        token: str | None = None,
        database: str = "",
        consistency: str = "Strong",
        timeout: float = 60.0,
        ca_file: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
        server_name: str | None = None,
    ) -> None:
        self.uri = _checked_uri(os.fspath(uri))
        _validate.choice("consistency", consistency, CONSISTENCIES)
        self.timeout = _validate.real("timeout", timeout, 0.0, open_low=True)
        self.consistency = consistency
        tls = _tls_options(self.uri, ca_file, certificate, key, server_name)
        token = os.environ.get(TOKEN) if token is None else token
        self._client: Any = None
        self._client = self._connect({"token": token or "", "db_name": database} | tls)

    @property
    def is_file(self) -> bool:
        """Whether this is a file of Milvus Lite."""
        return not self.uri.startswith(_SERVERS)

    def __repr__(self) -> str:
        return f"Milvus({self.uri!r})"

    def call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of ``pymilvus.MilvusClient``; errors of Milvus become ours."""
        if self._client is None:
            raise ValueError(f"expected an open connection to {self.uri}, got a closed one: make another")
        with self._own_errors(operation):
            return getattr(self._client, operation)(*arguments, timeout=self.timeout, **options)

    def read(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Call a method that reads, in the consistency of this connection."""
        return self.call(operation, *arguments, consistency_level=self.consistency, **options)

    def pages(self, name: str, **options: Any) -> Iterator[list[dict[str, Any]]]:
        """Yield all rows that a query selects, page by page."""
        found = self.read("query_iterator", name, **options)
        try:
            while True:
                with self._own_errors("query"):
                    page = found.next()
                if not page:
                    return
                yield page
        finally:
            found.close()

    def new_schema(self) -> Any:
        """An empty schema, whose fields are all declared."""
        return _pymilvus().MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)

    def new_index_params(self) -> Any:
        """No indexes yet."""
        return _pymilvus().MilvusClient.prepare_index_params()

    def create(self, name: str, schema: Any, indexes: Any, consistency: str) -> None:
        """Make a collection of Milvus, with indexes, and load it.

        It is empty, so its indexes are complete at once: waiting for each would take half a second.
        """
        self.call("create_collection", name, schema=schema, consistency_level=consistency)
        try:
            self.call("create_index", name, indexes, sync=False)
            self.call("load_collection", name)
        except BaseException:
            with contextlib.suppress(ServiceError):
                self.call("drop_collection", name)
            raise

    def names(self) -> list[str]:
        """The names of all collections that Milvus has, ours or not."""
        return list(self.call("list_collections"))

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connect(self, options: Mapping[str, Any]) -> Any:
        client_class = _pymilvus().MilvusClient
        if self.is_file:
            _require_lite(self.uri)
        with self._own_errors("connect"):
            patience = min(self.timeout, _CONNECT)
            client = client_class(uri=self.uri, timeout=patience, **options)
            client.list_collections(timeout=patience)  # pymilvus may not have asked anybody
            if not self.is_file:
                _require_sparse_vectors(self.uri, _version(client, patience))
            return client

    @contextlib.contextmanager
    def _own_errors(self, operation: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._translated(error, operation) from error

    def _translated(self, error: Exception, operation: str) -> Exception:
        text = _reason(error)
        if type(error).__module__.partition(".")[0] not in ("pymilvus", "grpc", "milvus_lite"):
            return error
        if any(word in text.lower() for word in _REFUSED) and "failed to connect" not in text:
            return ServiceError(
                f"{self.uri}: Milvus refuses the token ({text:.200}): give another one, or set {TOKEN}"
            )
        if self.is_file and operation == "connect":
            return StorageError(
                f"{self.uri}: expected a file that Milvus Lite can open, got an error ({text:.200}): "
                "close it in other processes, or choose another"
            )
        if operation == "connect" or "connecting" in text or "UNAVAILABLE" in text:
            return ServiceError(
                f"{self.uri}: expected a Milvus that answers, got none ({text:.200}): start it, or correct "
                "the address, or the files for TLS"
            )
        if getattr(error, "code", None) == _GONE:
            return ServiceError(
                f"{self.uri}: expected a collection that is there, got none ({text:.200}): somebody has "
                "dropped it or changed its hasher, open it again"
            )
        return ServiceError(f"{self.uri}: Milvus could not {operation} ({text:.300})")


def _reason(error: Exception) -> str:
    """What went wrong, in one line. If pymilvus could not connect, only gRPC's error before it says why."""
    details = getattr(error.__cause__, "details", None)
    text = details() if callable(details) else getattr(error, "message", "")
    return " ".join(str(text or error).split())


def _checked_uri(uri: str) -> str:
    if uri.startswith(_SERVERS):
        return uri
    if "://" in uri or _FILE.fullmatch(Path(uri).name) is None:
        raise ValueError(
            "expected the address of a server, http://host:19530, or a file with a name of up to 36 letters, "
            f"digits, '.', '-' and '_' that ends in .db, got {uri!r:.80}"
        )
    if not Path(uri).absolute().parent.is_dir():
        raise StorageError(f"{uri}: expected a file in a folder that exists, got another: make the folder")
    return str(Path(uri).absolute())


def _tls_options(
    uri: str, ca_file: str | None, certificate: str | None, key: str | None, server_name: str | None
) -> dict[str, str]:
    """What pymilvus calls the files: without a certificate of the client, the authority has another name."""
    ours = {"ca_file": ca_file, "certificate": certificate, "key": key, "server_name": server_name}
    given = [name for name, value in ours.items() if value is not None]
    if given and not uri.startswith("https://"):
        raise ValueError(f"expected an address that begins with https:// for {', '.join(given)}, got {uri}")
    both = certificate is not None or key is not None
    if both and None in (ca_file, certificate, key):
        raise ValueError(
            f"expected certificate, key and ca_file together, got only {', '.join(given)}: add the others"
        )
    theirs = {
        "ca_pem_path" if both else "server_pem_path": ca_file,
        "client_pem_path": certificate,
        "client_key_path": key,
        "server_name": server_name,
    }
    for file in (ca_file, certificate, key):
        if file is not None and not Path(file).is_file():
            raise FileNotFoundError(errno.ENOENT, "expected a file for TLS, got none", file)
    return {name: value for name, value in theirs.items() if value is not None}


def _version(client: Any, patience: float) -> str:
    try:
        return str(client.get_server_version(timeout=patience))
    except Exception as error:
        if "UNIMPLEMENTED" in str(error):  # Milvus Lite 2.5, as a server
            return "unknown"
        raise


def _require_sparse_vectors(uri: str, version: str) -> None:
    numbers = re.match(r"v?(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < _OLDEST:
        raise ServiceError(
            f"{uri}: expected Milvus 2.4 or newer, which has sparse vectors, got {version}: upgrade it"
        )


def _pymilvus() -> Any:
    try:
        import pymilvus
    except ImportError as error:
        raise MissingExtraError("pymilvus", "milvus", "posh.milvus") from error
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it logs a traceback of each error it raises
    return pymilvus


def _require_lite(uri: str) -> None:
    try:
        import milvus_lite  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("milvus-lite", "milvus", f"the file {uri}") from error
