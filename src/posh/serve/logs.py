"""Log lines of the service: one for each event, as text or as JSON."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["ACCESS", "FORMATS", "LEVELS", "JsonFormatter", "LineBudget", "TextFormatter"]
__all__ += ["log_event", "logging_to_stderr"]

LEVELS = ("debug", "info", "warning", "error")
ACCESS = logging.getLogger("posh.serve.access")  # a line for each request, if its level is changed to INFO
ACCESS.setLevel(logging.WARNING)
_log = logging.getLogger("posh.serve")
_PLAIN = re.compile(r"[\w./:%+-]+", re.ASCII)  # values that need no quotes
_FIELDS = "posh_fields"  # the attribute of a record that has the fields of an event


def log_event(level: int, event: str, *, logger: logging.Logger = _log, **fields: Any) -> None:
    """Log an event with its fields; those that are None are left out.

    >>> record = logging.makeLogRecord({"msg": "opened", "levelname": "INFO", "created": 0.0})
    >>> record.posh_fields = {"collection": "shop", "items": 500}
    >>> TextFormatter().format(record)
    '1970-01-01T00:00:00.000Z INFO opened collection=shop items=500'
    >>> JsonFormatter().format(record).partition('"message": ')[2]
    '"opened", "collection": "shop", "items": 500}'
    """
    if logger.isEnabledFor(level):
        present = {name: value for name, value in fields.items() if value is not None}
        logger.log(level, event, extra={_FIELDS: present})


class LineBudget:
    """Allows ``most`` lines per second, so that clients cannot fill the disk with log lines.

    >>> budget = LineBudget(2)
    >>> [budget.take(0.0), budget.take(0.1), budget.take(0.2), budget.take(0.3), budget.take(1.1)]
    [0, 0, None, None, 2]
    """

    def __init__(self, most: int) -> None:
        self._most, self._start, self._n_lines, self._n_omitted = most, 0.0, 0, 0

    def take(self, now: float) -> int | None:
        """Return the number of lines omitted before this one, or None if this one is to be omitted, too."""
        if now - self._start >= 1.0:
            self._start, self._n_lines = now, 0
        if self._n_lines >= self._most:
            self._n_omitted += 1
            return None
        self._n_lines += 1
        n_omitted, self._n_omitted = self._n_omitted, 0
        return n_omitted


class TextFormatter(logging.Formatter):
    """Formats a record as a line: time, level, message, and the fields as ``name=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback follows it."""
        words = [_format_time(record), record.levelname, record.getMessage()]
        fields = getattr(record, _FIELDS, {})
        line = " ".join([*words, *(f"{name}={_quote(value)}" for name, value in fields.items())])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object; ``traceback`` is that of an error."""
        content = {"time": _format_time(record), "level": record.levelname.lower(), "logger": record.name}
        content |= {"message": record.getMessage()} | getattr(record, _FIELDS, {})
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        return json.dumps(content, default=str)


FORMATS = {"text": TextFormatter, "json": JsonFormatter}


@contextmanager
def logging_to_stderr(level: str, form: str, *, with_access: bool) -> Iterator[None]:
    """Write the log of the library, its warnings, and optionally each request, during a block."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATS[form]())
    library, warnings = logging.getLogger("posh"), logging.getLogger("py.warnings")
    before = library.level, ACCESS.level
    for logger in (library, warnings):
        logger.addHandler(handler)
    library.setLevel(level.upper())
    ACCESS.setLevel(logging.INFO if with_access else logging.WARNING)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger in (library, warnings):
            logger.removeHandler(handler)
        library.setLevel(before[0])
        ACCESS.setLevel(before[1])


def _format_time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.created % 1 * 1000):03d}Z"


def _quote(value: Any) -> str:
    """Return a value as one word, or in quotes: clients choose some of them.

    >>> _quote("a b"), _quote(0.25), _quote("/v1")
    ('"a b"', '0.25', '/v1')
    """
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
