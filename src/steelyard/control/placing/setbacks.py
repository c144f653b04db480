"""What failed of late: a server where a load failed is not asked for it again at once, and longer each time."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from ..probing.target import Key
from .errors import PlacingError

FIRST, LONGEST = 1.0, 60.0  # seconds


class Setback(NamedTuple):
    times: int  # in a row
    until: float  # it is not tried before
    at: float
    since: float  # the first of them
    reason: str  # of the error
    why: str  # in words


class Setbacks:
    """By replica: a model at a server."""

    def __init__(self) -> None:
        self._known: dict[Key, Setback] = {}

    def failed(self, key: Key, problem: PlacingError, now: float) -> None:
        known = self._known.get(key)
        times, since = (known.times + 1, known.since) if known is not None else (1, now)
        pause = min(LONGEST, FIRST * 2.0 ** min(times - 1, 20))
        self._known[key] = Setback(times, now + pause, now, since, problem.reason, str(problem))

    def went_well(self, key: Key) -> None:
        self._known.pop(key, None)

    def may_try(self, key: Key, now: float) -> bool:
        known = self._known.get(key)
        return known is None or now >= known.until

    def keep(self, keys: Container[Key]) -> None:
        """Forget all others."""
        self._known = {key: setback for key, setback in self._known.items() if key in keys}

    def all(self) -> dict[Key, Setback]:
        return dict(self._known)
