"""A start that has to wait for room on a device. That is nobody's failure."""

from __future__ import annotations


class MemoryShortage:
    def __init__(self) -> None:
        self.why = ""  # empty: there is none
        self.since = 0.0

    def begin(self, why: str, now: float) -> bool:
        """Is it new?"""
        new = not self.why
        self.since = now if new else self.since
        self.why = why
        return new

    def end(self) -> None:
        self.why = ""
