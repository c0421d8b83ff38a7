"""Tokens of the service: those for everything, and those for reading only."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, NamedTuple, Self

from posh.serve.logs import log_event

__all__ = ["Access", "TokenSet", "Tokens", "read_token_file", "validate_token"]

Access = Literal["all", "read"]


class TokenSet(NamedTuple):
    """The tokens that give access to everything, and those that give access to reads."""

    everything: list[str]
    reads: list[str]


class Tokens:
    """The tokens that clients may send; without any, none is needed.

    ``load`` returns them, and is called again by :meth:`reload`.

    >>> tokens = Tokens(lambda: TokenSet(["secret"], ["public"]))
    >>> tokens.find_access(b"secret"), tokens.find_access(b"public"), tokens.find_access(b"other")
    ('all', 'read', None)
    """

    def __init__(self, load: Callable[[], TokenSet]) -> None:
        self._load = load
        self._tokens = load()

    @classmethod
    def of(cls, everything: str | None = None, reads: str | None = None) -> Self:
        """Return tokens that do not change."""
        return cls(lambda: TokenSet(_list(everything), _list(reads)))

    def __bool__(self) -> bool:
        return any(self._tokens)

    def find_access(self, value: bytes) -> Access | None:
        """Return what a token gives access to; the time that it takes does not depend on the token."""
        tokens = self._tokens
        is_all, is_read = (_contains(tokens.everything, value), _contains(tokens.reads, value))
        return "all" if is_all else "read" if is_read else None

    def reload(self) -> None:
        """Load the tokens again; if that fails, or there are none, log why and keep the present ones."""
        try:
            tokens = self._load()
            if not any(tokens):
                raise ValueError("expected at least one token, got none")
        except (OSError, ValueError) as error:
            log_event(logging.ERROR, "tokens not reloaded", reason=error)
            return
        self._tokens = tokens
        log_event(logging.INFO, "tokens reloaded", all=len(tokens.everything), read=len(tokens.reads))


def _list(token: str | None) -> list[str]:
    return [] if token is None else [token]


def _contains(tokens: Iterable[str], value: bytes) -> bool:
    return sum(hmac.compare_digest(value, token.encode()) for token in tokens) > 0  # compares all of them


def read_token_file(path: Path) -> list[str]:
    """Return the tokens of a file, one for each line; raise ValueError if there are none.

    With two lines, clients can change from an old token to a new one.
    """
    tokens = [line.strip() for line in path.read_text("utf-8", "replace").splitlines() if line.strip()]
    if not tokens:
        raise ValueError(f"{path}: expected a token, got an empty file: write one to each line")
    return [validate_token(token, str(path)) for token in tokens]


def validate_token(token: str, source: str) -> str:
    """Return a token, or raise ValueError if a header cannot have it; ``source`` says where it is from."""
    if not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise ValueError(f"expected a token ({source}) of visible ASCII characters, got another")
    return token
