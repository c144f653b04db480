"""A file that lines are appended to, in batches and by a thread: a slow or full disk costs lines, never a request."""

from __future__ import annotations

import fcntl
import os
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Final

MAX_BATCH_LINES: Final = 32  # made at once
MAX_QUEUED_BATCHES: Final = 64  # that may wait for the disk; more are dropped and counted
FLUSH_BYTES: Final = 256 << 10  # rarely: each time the thread takes the interpreter from the requests
CLOSE_ENQUEUE_SECONDS: Final = 0.5
CLOSE_WRITE_SECONDS: Final = 5.0


class LogFile:
    """A subclass notes what happened with `_note`, and makes lines of notes in `_lines`."""

    def __init__(self, path: str, name: str, most: int = 0, clock: Callable[[], float] = monotonic) -> None:
        """`path` may be `-`, stdout. A file that would grow larger than `most` bytes is renamed to `path.1`."""
        self._path = path
        self._clock = clock
        self._max_bytes = most
        self._pending: list[tuple[Any, ...]] = []
        self._buffer = bytearray()
        self._flush_bytes = FLUSH_BYTES
        self.preface = b""  # lines at the beginning of a new file
        self.dropped = 0  # lines, since the worker began
        self.unreported_drops = 0
        self._reported_drops = 0  # by the lines in the buffer
        self._closed = False
        self.fd = os.dup(sys.stdout.fileno()) if path == "-" else _open(path)
        self._queue: queue.Queue[tuple[bytes, int] | None] = queue.Queue(MAX_QUEUED_BATCHES)
        self.thread = threading.Thread(target=self._write, name=name, daemon=True)
        self.thread.start()

    def _lines(self, notes: list[tuple[Any, ...]]) -> None:
        raise NotImplementedError

    def _note(self, note: tuple[Any, ...]) -> None:
        self._pending.append(note)
        if len(self._pending) >= MAX_BATCH_LINES:
            self._make_lines()
            self._hand_over_much()

    def _make_lines(self) -> None:
        notes, self._pending = self._pending, []
        if notes:
            self._lines(notes)

    def _append(self, line: bytes) -> None:
        self._buffer += line
        self._buffer += b"\n"

    def _take_dropped(self) -> int:
        """Lines lost since this was last asked, for the next line to tell."""
        dropped, self.unreported_drops = self.unreported_drops, 0
        self._reported_drops += dropped
        return dropped

    def flush(self) -> None:
        self._make_lines()
        self._hand_over()

    def _hand_over_much(self) -> None:
        if len(self._buffer) >= self._flush_bytes:
            self._hand_over()

    def _hand_over(self, room: float = 0.0) -> None:
        """To the thread; waits at most `room` seconds for a place."""
        if self._buffer:
            data, self._buffer = bytes(self._buffer), bytearray()
            self._put(data, room)

    def _put(self, data: bytes, room: float) -> None:
        batch, self._reported_drops = (data, self._reported_drops), 0
        try:
            self._queue.put(batch, block=room > 0.0, timeout=room)
        except queue.Full:
            self._count_dropped(*batch)

    def _count_dropped(self, data: bytes, reported_drops: int) -> None:
        """Lines did not reach the file, nor their count of lines lost before."""
        lines = data.count(b"\n")
        self.dropped += lines
        self.unreported_drops += lines + reported_drops

    def close(self, timeout: float = CLOSE_WRITE_SECONDS) -> None:
        """Writes what is noted; waits at most `timeout` seconds for the disk."""
        room = min(CLOSE_ENQUEUE_SECONDS, timeout)
        self._make_lines()
        self._hand_over(room)
        self._closed = True
        with suppress(queue.Full):
            self._queue.put(None, block=room > 0.0, timeout=room)
        if timeout:
            self.thread.join(timeout)

    def _write(self) -> None:
        torn = False
        while True:
            try:
                batch = self._queue.get(timeout=1.0)
            except queue.Empty:
                if self._closed:
                    break
                continue
            if batch is None:
                break
            data, reported_drops = batch
            size = len(data)
            try:
                if self._max_bytes:
                    self._rotate(size)
                if torn:
                    os.write(self.fd, b"\n")  # of a line only a part is there: the next begins anew
                    torn = False
                while data:
                    data = data[os.write(self.fd, data) :]
            except OSError:
                self._count_dropped(data, reported_drops)  # a full disk must not stop the gateway
                torn = torn or 0 < len(data) < size
        os.close(self.fd)  # here, because a disk that hangs may keep us longer than `close` waits

    def _rotate(self, size: int) -> None:
        """Of several processes that append to one file the first to find it full renames it."""
        there = os.fstat(self.fd)
        if there.st_size + size <= self._max_bytes or not there.st_size:
            return
        old = self.fd
        fcntl.flock(old, fcntl.LOCK_EX)
        try:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self._path), there):
                    os.rename(self._path, f"{self._path}.1")
            self.fd = _open(self._path)
        finally:
            fcntl.flock(old, fcntl.LOCK_UN)
        os.close(old)
        os.write(self.fd, self.preface)


def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
