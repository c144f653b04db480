"""Rows of the book of memory: one for each worker process, used again when it is dead."""

from __future__ import annotations

from collections import deque

from .errors import BoardFullError


class LedgerRows:
    def __init__(self, rows: int) -> None:
        self._free = deque(range(1, rows))  # the first is the supervisor's

    def acquire(self) -> int:
        if not self._free:
            raise BoardFullError("there are more worker processes than rows in the book of memory")
        return self._free.popleft()

    def release(self, row: int) -> None:
        self._free.appendleft(row)  # low numbers first: each row in use is looked at for every request
