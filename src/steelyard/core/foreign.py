"""Requests on a replica that neither this balancer nor its fellows sent, concluded from what the replica says it has.

Its own counts come first, and what a replica says is older than they are. So what it says beyond them is believed only
as far as several readings in a row agree: a request that ended while a reading was on its way is in one of them, the
requests of somebody else are in all. And only up to a bound, so that no nonsense can close a replica for good.
"""

from __future__ import annotations

EXTERNAL_LOAD_READINGS = 3
MAX_EXTERNAL_LOAD_FACTOR = 4  # times the largest load of our own on any replica …
MIN_EXTERNAL_LOAD_CAP = 8  # … and a few more


class ExternalLoad:
    __slots__ = ("_beyond", "expires")

    def __init__(self) -> None:
        self._beyond: list[float] = []  # by how much each of the last readings exceeded our own count
        self.expires = 0.0

    def observe(self, requests: float, own: int, lasting: float, now: float) -> None:
        """It says it has so many, and `own` are ours and our fellows'. It holds for `lasting` seconds."""
        if now >= self.expires:
            self._beyond.clear()
        self._beyond = [*self._beyond[1 - EXTERNAL_LOAD_READINGS :], max(0.0, requests - own)]
        self.expires = now + lasting

    def estimate(self, now: float) -> int:
        """How many requests there are not ours, as far as the last readings agree."""
        return int(min(self._beyond)) if now < self.expires and len(self._beyond) >= EXTERNAL_LOAD_READINGS else 0


def external_load_cap(largest: int) -> int:
    """The most that is believed, where the largest load of our own on any replica is this."""
    return MAX_EXTERNAL_LOAD_FACTOR * largest + MIN_EXTERNAL_LOAD_CAP
