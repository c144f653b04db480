"""How long to wait before a worker that ended is started again."""

from __future__ import annotations

LIVED = 10.0  # seconds: who lived so long did not die of its start
AT_ONCE = 4  # early ends in a row that are answered without waiting
LONGEST = 30.0


class Backoff:
    """No wait, unless it keeps dying young: then 1, 2, 4 … 30 seconds."""

    def __init__(self) -> None:
        self.early = 0  # ends in a row, each before LIVED

    def ended(self, lifetime: float) -> float:
        """It lived so long; seconds to wait now."""
        self.early = self.early + 1 if lifetime < LIVED else 0
        if self.early <= AT_ONCE:
            return 0.0
        return min(LONGEST, 2.0 ** min(self.early - AT_ONCE - 1, 10))
