"""A worker's standard error: passed on line by line, with the last lines kept to explain a crash."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import IO

MAX_TAIL_LINES = 20
MAX_LINE_BYTES = 4096  # the rest is cut off
READ_BYTES = 65536
MAX_FINAL_READS = 64  # chunks read at the end


class StderrTail:
    def __init__(self, stream: IO[bytes], say: Callable[[str], None]) -> None:
        self.lines: deque[str] = deque(maxlen=MAX_TAIL_LINES)
        self._stream = stream
        self._fd = stream.fileno()
        self._say = say
        self._partial = b""
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._fd, False)
        self._loop.add_reader(self._fd, self._read)

    def close(self) -> None:
        """After the process ended: reads the rest, but not all that its children may go on writing."""
        for _ in range(MAX_FINAL_READS):
            if not self._read():
                break
        self._loop.remove_reader(self._fd)
        self._stream.close()
        self._take(self._partial)

    def _read(self) -> bool:
        """Was there anything?"""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._fd)
            return False
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > MAX_LINE_BYTES:
            lines.append(self._partial)
            self._partial = b""
        for line in lines:
            self._take(line)
        return True

    def _take(self, line: bytes) -> None:
        text = line[:MAX_LINE_BYTES].decode(errors="replace").rstrip()
        if text:
            self.lines.append(text)
            self._say(text)


BURST_LINES = 200
LINES_PER_SECOND = 20.0


class LogRateLimit:
    """A token bucket: a worker that logs for each request must not fill the disk or keep the supervisor busy."""

    def __init__(self, now: float) -> None:
        self._left = float(BURST_LINES)
        self._at = now
        self._dropped = 0

    def admit(self, now: float) -> bool:
        self._left = min(float(BURST_LINES), self._left + (now - self._at) * LINES_PER_SECOND)
        self._at = now
        if self._left < 1.0:
            self._dropped += 1
            return False
        self._left -= 1.0
        return True

    def take_dropped(self) -> int:
        """Lines dropped since the last call."""
        count, self._dropped = self._dropped, 0
        return count
