"""How long to wait before a worker that ended is started again."""

from __future__ import annotations

HEALTHY_LIFETIME_SECONDS = 10.0  # seconds: who lived so long did not die of its start
IMMEDIATE_RESTARTS = 4  # early ends in a row that are answered without waiting
MAX_RESTART_DELAY_SECONDS = 30.0


class RestartBackoff:
    """No wait, unless it keeps dying young: then 1, 2, 4 … 30 seconds."""

    def __init__(self) -> None:
        self.early_exits = 0  # ends in a row, each before LIVED

    def next_delay(self, lifetime: float) -> float:
        """It lived so long; seconds to wait now."""
        self.early_exits = self.early_exits + 1 if lifetime < HEALTHY_LIFETIME_SECONDS else 0
        if self.early_exits <= IMMEDIATE_RESTARTS:
            return 0.0
        return min(MAX_RESTART_DELAY_SECONDS, 2.0 ** min(self.early_exits - IMMEDIATE_RESTARTS - 1, 10))
