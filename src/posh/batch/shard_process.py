"""A process that has shards open and answers questions; it is started again when it dies or hangs."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any

from posh._threads import limit_cores
from posh.batch.joined import search_all
from posh.batch.workers import process_context
from posh.index.hits import Hits
from posh.index.index import Index
from posh.index.params import SearchParams
from posh.index.snapshot import IndexSnapshot
from posh.preprocess import Float32

__all__ = ["ShardProcess"]

_BEAT = 1.0  # seconds between two signs of life of a process
_SILENCE = 10.0  # seconds without a sign of life after which a process is killed
_LONGEST = 30.0  # seconds between two attempts to start a process that always dies
_log = logging.getLogger("posh.batch")


class ShardProcess:
    """A process that has some shards open, mapped from their files.

    A thread here, its keeper, starts it, listens to its signs of life, kills it when there are none, and
    starts the next one. The process gives signs of life while it searches, too.
    """

    def __init__(self, parts: Sequence[Path], n_threads: int) -> None:
        self.names = [part.name for part in parts]
        self._paths, self._n_threads = [part / "index" for part in parts], n_threads
        self._process: Any = None
        self._pipe: Any = None
        self._started = self._next_start = time.monotonic()
        self._pause, self._opening = 0.0, 1.0  # seconds before a start, and until the shards are open
        self.is_ready = threading.Event()
        self._guard, self._closed = threading.Lock(), threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    @property
    def pid(self) -> int | None:
        """The number of the process, if one is ready."""
        return self._process.pid if self.is_ready.is_set() else None

    @property
    def missing_seconds(self) -> float:
        """How long it will probably take until the process is ready, from now on."""
        with self._guard:
            return max(0.0, self._next_start + self._opening - time.monotonic())

    def ask(self, question: object) -> Any:
        """Send a question; return the pipe for the answer, or None if nobody is there."""
        pipe = self._pipe
        if pipe is None or not self.is_ready.is_set():
            return None
        try:
            pipe.send(question)
        except OSError:
            self._lost(pipe)
            return None
        return pipe

    def answer(self, pipe: Any) -> Any:
        """Return the answer, or None if the process that was asked died."""
        try:
            return pipe.recv()
        except (EOFError, OSError):
            self._lost(pipe)
            return None

    def close(self) -> None:
        """End the process."""
        self._closed.set()
        if self._process is not None:
            self._process.kill()
        self._keeper.join()

    def _lost(self, pipe: Any) -> None:
        """Decide when the next process is started, unless that is decided already.

        A process that lived for long has a successor at once. After one that died young, the pause doubles.
        """
        with self._guard:
            if pipe is not self._pipe:
                return
            # Others may still wait for an answer at this pipe. So it is not closed here, but when all of them
            # have let it go: its number could be that of another file at once.
            self._pipe = None
            self.is_ready.clear()
            now = time.monotonic()
            was_old = now - self._started > _LONGEST
            self._pause = 0.0 if was_old else min(_LONGEST, max(0.1, 2 * self._pause))
            self._next_start = now + self._pause

    def _keep(self) -> None:
        """Start the process, wait until it dies, and begin again."""
        while not self._closed.wait(max(0.0, self._next_start - time.monotonic())):
            try:
                pipe, beats = self._start()
            except OSError as error:
                _log.error("no process for %s: %s", ", ".join(self.names), error)
                self._lost(None)
                continue
            self._listen(pipe, beats)
            self._lost(pipe)
            self._process.kill()
            self._process.join()
            if not self._closed.is_set():
                _log.warning("the process of %s died and is started again", ", ".join(self.names))

    def _start(self) -> tuple[Any, Any]:
        """Start the process; return the pipe for questions and the one for signs of life."""
        context = process_context()
        self._started = time.monotonic()
        (pipe, answering), (beats, beating) = context.Pipe(), context.Pipe(duplex=False)
        with answering, beating:
            process = context.Process(
                target=_answer, args=(answering, beating, self._paths, self._n_threads), daemon=True
            )
            process.start()
        self._process = process  # not before it is started: one that is not cannot be killed
        with self._guard:
            self._pipe = pipe
        return pipe, beats

    def _listen(self, pipe: Any, beats: Any) -> None:
        """Return when the process is dead or silent, or nobody needs it any more."""
        began = time.monotonic()  # after a fork server that was missing has been started
        silence = None  # to open the shards may take as long as it likes
        while not self._closed.is_set() and pipe is self._pipe:
            ready = connection.wait([beats, self._process.sentinel], silence)
            if not ready:
                _log.error("%s: no sign of life for %.0f s, killed", ", ".join(self.names), _SILENCE)
            if beats not in ready:
                return
            try:
                beats.recv_bytes()
            except (EOFError, OSError):
                return
            if silence is None:
                self._opening = time.monotonic() - began
                self.is_ready.set()
            silence = _SILENCE


def _answer(pipe: Any, beats: Any, paths: Sequence[Path], n_threads: int) -> None:
    """Open indexes and answer questions until nobody can ask any more; runs in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service closes the pipe when it is done
    limit_cores(n_threads)
    snapshots = [Index.load(path, mmap=True).snapshot() for path in paths]
    threading.Thread(target=_beat, args=(beats,), daemon=True).start()
    with contextlib.suppress(EOFError, OSError):  # nobody asks, or waits for the answer, any more
        while True:
            pipe.send(_found(snapshots, *pipe.recv()))


def _beat(beats: Any) -> None:
    """Give signs of life; the first says that the shards are open."""
    with contextlib.suppress(OSError):
        while True:
            beats.send_bytes(b"")
            time.sleep(_BEAT)


def _found(snapshots: Sequence[IndexSnapshot], vectors: Float32, params: SearchParams) -> Hits | Exception:
    try:
        return search_all(snapshots, vectors, params)
    except Exception as error:
        return error
