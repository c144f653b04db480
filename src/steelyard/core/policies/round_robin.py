"""Round robin: each candidate in turn, in the order they joined. Limits: ignores weights, load and speed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ..candidates import MANY_CANDIDATES, first_after
from ..replica import Replica
from ..request import Request
from .base import Policy


class RoundRobin(Policy):
    rule = "each candidate in turn, weights ignored"
    wins = "equal replicas and equal requests: perfectly even, nothing to learn"
    loses = "blind to load: a slow replica or a large request delays all behind it"

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._last = -1  # `order` of the replica picked last: survives joins and leaves, unlike an index

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        last = self._last
        if len(candidates) > MANY_CANDIDATES:
            replica = candidates[first_after(candidates, last) % len(candidates)]
            self._last = replica.order
            return replica
        for replica in candidates:
            if replica.order > last:
                break
        else:
            replica = candidates[0]
        self._last = replica.order
        return replica
