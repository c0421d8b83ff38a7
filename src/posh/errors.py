"""The exceptions of POSH.

::

    Exception
    └── PoshError                   base class of all exceptions below
        ├── FormatError             (ValueError)   a file is damaged, or of another kind or version
        ├── DataUnavailableError    (OSError)      a data set is neither cached nor fetchable
        ├── StorageError            (OSError)      a collection cannot be opened or written
        ├── MissingExtraError       (ImportError)  an optional dependency is not installed
        ├── UnknownCollectionError  (LookupError)  a service has no collection of this name
        ├── CollectionExistsError   (ValueError)   a service already has a collection of this name
        ├── CancelledError          (Exception)    the work was cancelled
        └── ServiceError            (OSError)      a service cannot be reached, or cannot answer now
            └── MissingShardsError                 some shards of a collection cannot be searched now

    UserWarning
    ├── RecallWarning               searches may find less than was asked for
    └── FilterWarning               a filter passes nothing, because no item has such a field or value

Invalid arguments raise plain ``ValueError`` or ``TypeError``; using a hasher before ``fit`` raises
scikit-learn's ``NotFittedError``.
"""

from __future__ import annotations

__all__ = [
    "CancelledError",
    "CollectionExistsError",
    "DataUnavailableError",
    "FilterWarning",
    "FormatError",
    "MissingExtraError",
    "MissingShardsError",
    "PoshError",
    "RecallWarning",
    "ServiceError",
    "StorageError",
    "UnknownCollectionError",
]


class PoshError(Exception):
    """Base class of the exceptions that only POSH raises."""


class FormatError(PoshError, ValueError):
    """A file is damaged, truncated, of another kind, or of a newer format version."""


class DataUnavailableError(PoshError, OSError):
    """A data set is neither cached nor fetchable; the message says how to provide it."""


class StorageError(PoshError, OSError):
    """The disk is full, or a folder is read-only or in use. Data that was written before is not lost."""


class MissingExtraError(PoshError, ImportError):
    """An optional dependency is missing; the message contains the pip command that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: {find_install_command(extra)}", name=package)


def find_install_command(extra: str) -> str:
    """Return the pip command that installs an extra into this environment.

    An editable installation is extended from its clone. If ``pip`` belongs to another environment, the
    command calls the pip of this one.
    """
    import json  # these are slow to import, and only errors need them
    import shlex
    import shutil
    import sys
    from importlib.metadata import distribution
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    pip = Path(shutil.which("pip") or "")
    is_ours = pip.parent == Path(sys.executable).parent
    install = "pip install" if is_ours else f"{shlex.quote(sys.executable)} -m pip install"
    source = json.loads(distribution("posh-ann").read_text("direct_url.json") or "{}")
    if not source.get("dir_info", {}).get("editable"):
        return f"{install} 'posh-ann[{extra}]'"
    clone = Path(url2pathname(urlsplit(source["url"]).path))
    folder = Path() if clone == Path.cwd() else clone
    return f"{install} --editable {shlex.quote(f'{folder}[{extra}]')}"


class UnknownCollectionError(PoshError, LookupError):
    """A service has no collection of this name."""


class CollectionExistsError(PoshError, ValueError):
    """A service already has a collection of this name."""


class CancelledError(PoshError):
    """The work was cancelled, and changed nothing."""


class ServiceError(PoshError, OSError):
    """A service cannot be reached, rejects the token, is too busy, or failed."""


class MissingShardsError(ServiceError):
    """Some shards of a collection cannot be searched now; ``shards`` has their names.

    Retry after ``seconds``.
    """

    def __init__(self, message: str, shards: list[str], seconds: int) -> None:
        super().__init__(message)
        self.shards, self.seconds = shards, seconds


class FilterWarning(UserWarning):
    """A filter passes nothing, because no item has the field, or none a value of the type."""


class RecallWarning(UserWarning):
    """Searches may find less than was asked for; the message says why, and how to calibrate them."""
