"""The exceptions of POSH.

::

    Exception
    └── PoshError                   everything below, for one ``except``
        ├── FormatError             (ValueError)   a file is not what it claims to be
        ├── DataUnavailableError    (OSError)      a data set cannot be had here and now
        ├── StorageError            (OSError)      a collection cannot be opened or written here and now
        ├── MissingExtraError       (ImportError)  an optional dependency is not installed
        ├── UnknownCollectionError  (LookupError)  a service has no collection of this name
        ├── CollectionExistsError   (ValueError)   a service has a collection of this name already
        ├── CancelledError          (Exception)    somebody cancelled the work
        └── ServiceError            (OSError)      a service cannot be reached, or cannot answer now
            └── MissingShardsError                 some shards of a collection cannot be searched now

Wrong arguments raise plain ``ValueError`` or ``TypeError``; using a hasher before ``fit`` raises
scikit-learn's ``NotFittedError``.
"""

from __future__ import annotations

__all__ = ["DataUnavailableError", "FormatError", "MissingExtraError", "PoshError"]
__all__ += ["StorageError"]
__all__ += ["CancelledError", "CollectionExistsError", "MissingShardsError", "ServiceError"]
__all__ += ["UnknownCollectionError"]


class PoshError(Exception):
    """Base class of the errors that only POSH raises."""


class FormatError(PoshError, ValueError):
    """A file is damaged, truncated, of another kind, or of a newer format version."""


class DataUnavailableError(PoshError, OSError):
    """A data set is neither cached nor fetchable; the message says how to provide it."""


class StorageError(PoshError, OSError):
    """The disk is full, a folder is read-only or in use; what was written before is not lost."""


class MissingExtraError(PoshError, ImportError):
    """An optional dependency is missing; the message is the pip line that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'posh-ann[{extra}]'", name=package)


class UnknownCollectionError(PoshError, LookupError):
    """A service has no collection of this name."""


class CollectionExistsError(PoshError, ValueError):
    """A service has a collection of this name already."""


class CancelledError(PoshError):
    """Somebody cancelled the work, which changed nothing."""


class ServiceError(PoshError, OSError):
    """A service cannot be reached, refuses the token, is too busy, or failed."""


class MissingShardsError(ServiceError):
    """Some shards of a collection cannot be searched now; ``shards`` are their names.

    They are probably back in ``seconds``.
    """

    def __init__(self, message: str, shards: list[str], seconds: int) -> None:
        super().__init__(message)
        self.shards, self.seconds = shards, seconds
