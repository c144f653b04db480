"""What dead workers had reserved. Their requests may still run where they were sent, so it counts for a while yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...link.book import Book

LEAST, MOST = 1.0, 60.0  # seconds


class Ghost(NamedTuple):
    slot: int  # -1: none, only the number of requests
    device: int
    amount: int
    requests: int
    until: float


class Ghosts:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._kept: list[Ghost] = []

    def bury(self, row: int, device_of: Mapping[int, int], now: float) -> int:
        """The process of this row is dead. The bytes it had."""
        left = self._book.bury(row, dict(device_of))
        last: dict[int, float] = {}  # by device: its requests are over when the last bytes are
        for slot, device, amount, requests, until in left:
            until = min(max(until, now + LEAST), now + MOST)
            if slot >= 0:
                last[device] = max(until, last.get(device, 0.0))
            else:
                until = last.get(device, until)
            self._kept.append(Ghost(slot, device, amount, requests, until))
        return sum(amount for _, _, amount, _, _ in left)

    def tick(self, now: float) -> None:
        for ghost in [ghost for ghost in self._kept if ghost.until <= now]:
            self._book.release(ghost.slot, ghost.device, ghost.amount, ghost.requests)
        self._kept = [ghost for ghost in self._kept if ghost.until > now]
