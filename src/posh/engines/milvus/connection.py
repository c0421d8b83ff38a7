"""The connection to Milvus: addresses, calls through ``pymilvus`` and the translation of its errors."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from posh._validate import validate_choice, validate_real
from posh.errors import MissingExtraError, ServiceError, StorageError

__all__ = ["CONSISTENCIES", "TOKEN", "Milvus", "is_address", "parse_address"]

TOKEN = "POSH_MILVUS_TOKEN"
_PREFIX = "milvus:"
CONSISTENCIES = ("Strong", "Session", "Bounded", "Eventually")
_SERVERS = ("http://", "https://", "tcp://")
_FILE = re.compile(r"[A-Za-z0-9._-]{1,32}\.db")  # the names that Milvus Lite accepts
_REFUSED = (
    "auth check failure",
    "missing authorization",
    "unauthenticated",
    "not authenticated",
    "permission den",
    "invalid token",
)
_NOT_FOUND = 100  # Milvus's error code for a missing collection
_CONNECT_TIMEOUT = 10.0  # seconds, unless the timeout of the connection is shorter
_OLDEST_VERSION = (2, 4)  # the first with sparse vectors


class Milvus:
    """A connection to a file of Milvus Lite, such as ``shop.db``, or to a server, ``http://host:19530``.

    Parameters
    ----------
    uri : str or path
        File that ends in ``.db``, which is created if it does not exist, or address of a server.
    token : str or None
        Credentials for a server, ``user:password`` or an API key. Default: the environment variable
        ``POSH_MILVUS_TOKEN`` if it is set.
    database : str
        Name of the database on the server.
    consistency : str
        Writes that searches and reads see: ``"Strong"``, all that have returned; ``"Session"``, those of
        this connection; ``"Bounded"``, those older than some seconds; ``"Eventually"``, no guarantee.
    timeout : float
        Seconds after which a call raises :class:`~posh.errors.ServiceError`.
    ca_file, certificate, key, server_name : str or None
        TLS: the certificate authority to trust, the client's certificate and its key (three files), and the
        name that the server's certificate must have. They require ``https://``. A certificate requires a key
        and an authority.

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
        self.uri = _validate_uri(os.fspath(uri))
        validate_choice("consistency", consistency, CONSISTENCIES)
        self.timeout = validate_real("timeout", timeout, 0.0, open_low=True)
        self.consistency = consistency
        tls = _build_tls_options(self.uri, ca_file, certificate, key, server_name)
        token = os.environ.get(TOKEN) if token is None else token
        self._client: Any = None
        self._client = self._connect({"token": token or "", "db_name": database} | tls)

    @property
    def is_file(self) -> bool:
        """Whether this connects to a file of Milvus Lite."""
        return not self.uri.startswith(_SERVERS)

    def __repr__(self) -> str:
        return f"Milvus({self.uri!r})"

    def call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of ``pymilvus.MilvusClient`` and translate its errors."""
        if self._client is None:
            raise ValueError(f"expected an open connection to {self.uri}, got a closed one: create another")
        with self._translate_errors(operation):
            return getattr(self._client, operation)(*arguments, timeout=self.timeout, **options)

    def read(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Call a reading method with the consistency level of this connection."""
        return self.call(operation, *arguments, consistency_level=self.consistency, **options)

    def iterate_pages(self, name: str, **options: Any) -> Iterator[list[dict[str, Any]]]:
        """Yield all rows that a query selects, page by page."""
        pages = self.read("query_iterator", name, **options)
        try:
            while True:
                with self._translate_errors("query"):
                    page = pages.next()
                if not page:
                    return
                yield page
        finally:
            pages.close()

    def create_schema(self) -> Any:
        """Return an empty schema that allows declared fields only."""
        return _import_pymilvus().MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)

    def create_index_params(self) -> Any:
        """Return an empty list of indexes."""
        return _import_pymilvus().MilvusClient.prepare_index_params()

    def create_collection(self, name: str, schema: Any, indexes: Any, consistency: str) -> None:
        """Create a collection in Milvus with indexes, and load it."""
        self.call("create_collection", name, schema=schema, consistency_level=consistency)
        try:
            # Indexes of an empty collection are complete; waiting for each would take half a second.
            self.call("create_index", name, indexes, sync=False)
            self.call("load_collection", name)
        except BaseException:
            with contextlib.suppress(ServiceError):
                self.call("drop_collection", name)
            raise

    def list_names(self) -> list[str]:
        """Return the names of all collections in Milvus, including those of other programs."""
        return list(self.call("list_collections"))

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connect(self, options: Mapping[str, Any]) -> Any:
        client_class = _import_pymilvus().MilvusClient
        if self.is_file:
            _require_lite(self.uri)
        with self._translate_errors("connect"):
            timeout = min(self.timeout, _CONNECT_TIMEOUT)
            client = client_class(uri=self.uri, timeout=timeout, **options)
            client.list_collections(timeout=timeout)  # pymilvus may not have connected yet
            if not self.is_file:
                _require_sparse_vectors(self.uri, _get_server_version(client, timeout))
            return client

    @contextlib.contextmanager
    def _translate_errors(self, operation: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._translate(error, operation) from error

    def _translate(self, error: Exception, operation: str) -> Exception:
        text = _format_reason(error)
        if type(error).__module__.partition(".")[0] not in ("pymilvus", "grpc", "milvus_lite"):
            return error
        if any(word in text.lower() for word in _REFUSED) and "failed to connect" not in text:
            return ServiceError(
                f"{self.uri}: Milvus refuses the token ({text:.200}): pass another one, or set {TOKEN}"
            )
        if self.is_file and operation == "connect":
            return StorageError(
                f"{self.uri}: expected a file that Milvus Lite can open, got an error ({text:.200}): "
                "close it in other processes, or choose another"
            )
        if operation == "connect" or "connecting" in text or "UNAVAILABLE" in text:
            return ServiceError(
                f"{self.uri}: expected a Milvus server that answers, got none ({text:.200}): start it, or "
                "correct the address or the TLS files"
            )
        if getattr(error, "code", None) == _NOT_FOUND:
            return ServiceError(
                f"{self.uri}: expected an existing collection, got none ({text:.200}): another client has "
                "dropped it or changed its hasher, open it again"
            )
        return ServiceError(f"{self.uri}: Milvus could not {operation} ({text:.300})")


def _format_reason(error: Exception) -> str:
    """Return the cause of an error in one line.

    If pymilvus could not connect, only the gRPC error from which it raised has the cause.
    """
    details = getattr(error.__cause__, "details", None)
    text = details() if callable(details) else getattr(error, "message", "")
    return " ".join(str(text or error).split())


def _validate_uri(uri: str) -> str:
    if uri.startswith(_SERVERS):
        return uri
    if "://" in uri or _FILE.fullmatch(Path(uri).name) is None:
        raise ValueError(
            "expected the address of a server, http://host:19530, or a file with a name of up to 36 letters, "
            f"digits, '.', '-' and '_' that ends in .db, got {uri!r:.80}"
        )
    if not Path(uri).absolute().parent.is_dir():
        raise StorageError(f"{uri}: expected a file in an existing folder, found no such folder: create it")
    return str(Path(uri).absolute())


def _build_tls_options(
    uri: str, ca_file: str | None, certificate: str | None, key: str | None, server_name: str | None
) -> dict[str, str]:
    """Validate TLS options and return them under the names of pymilvus.

    The authority has another name if the client has no certificate.
    """
    options = {"ca_file": ca_file, "certificate": certificate, "key": key, "server_name": server_name}
    names = [name for name, value in options.items() if value is not None]
    if names and not uri.startswith("https://"):
        raise ValueError(f"expected an address that begins with https:// for {', '.join(names)}, got {uri}")
    has_certificate = certificate is not None or key is not None
    if has_certificate and None in (ca_file, certificate, key):
        raise ValueError(
            f"expected certificate, key and ca_file together, got only {', '.join(names)}: add the others"
        )
    pymilvus_options = {
        "ca_pem_path" if has_certificate else "server_pem_path": ca_file,
        "client_pem_path": certificate,
        "client_key_path": key,
        "server_name": server_name,
    }
    for file in (ca_file, certificate, key):
        if file is not None and not Path(file).is_file():
            raise FileNotFoundError(errno.ENOENT, "expected a TLS file, found none", file)
    return {name: value for name, value in pymilvus_options.items() if value is not None}


def _get_server_version(client: Any, timeout: float) -> str:
    try:
        return str(client.get_server_version(timeout=timeout))
    except Exception as error:
        if "UNIMPLEMENTED" in str(error):  # Milvus Lite 2.5, as a server
            return "unknown"
        raise


def _require_sparse_vectors(uri: str, version: str) -> None:
    numbers = re.match(r"v?(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < _OLDEST_VERSION:
        raise ServiceError(
            f"{uri}: expected Milvus 2.4 or newer, which has sparse vectors, got {version}: upgrade it"
        )


def _import_pymilvus() -> Any:
    try:
        import pymilvus
    except ImportError as error:
        raise MissingExtraError("pymilvus", "milvus", "posh.engines.milvus") from error
    logging.getLogger("pymilvus").setLevel(
        logging.CRITICAL
    )  # it logs a traceback for each error that it raises
    return pymilvus


def _require_lite(uri: str) -> None:
    try:
        import milvus_lite  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("milvus-lite", "milvus", f"the file {uri}") from error


def is_address(text: object) -> bool:
    """Return whether a text has the form of a Milvus address rather than a path, valid or not.

    >>> is_address("milvus:shop.db#articles"), is_address("shop")
    (True, False)
    """
    return isinstance(text, str) and text.startswith(_PREFIX)


def parse_address(text: str) -> tuple[str, str]:
    """Return the URI of Milvus and the name of the collection.

    >>> parse_address("milvus:http://127.0.0.1:19530#articles")
    ('http://127.0.0.1:19530', 'articles')
    """
    uri, sign, name = text.removeprefix(_PREFIX).rpartition("#")
    if not (uri and sign and name):
        raise ValueError(
            f"expected milvus:ADDRESS#NAME, such as milvus:shop.db#articles, got {text!r:.80}: "
            "add the missing part"
        )
    return uri, name
