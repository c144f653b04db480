"""What others are told of a model's started replicas: who they are, and when the next should be ready."""

from __future__ import annotations

from collections.abc import Iterable

from ...config import ReplicaConfig
from ...link.messages import Coming
from .hands import StartingHands
from .life import Phase
from .started import Started

NEW = (Phase.STARTING, Phase.READY)


class Bulletin:
    def __init__(self, model: str, hands: StartingHands) -> None:
        self._model = model
        self._hands = hands
        self._told: list[ReplicaConfig] = []
        self._promised = 0.0  # one should be ready by then

    def members(self, replicas: Iterable[Started]) -> None:
        """Those whose address is known; nothing, if nothing has changed."""
        members = [r for r in replicas if r.instance.url and (r.member or r.phase in NEW)]
        for replica in members:
            replica.member = True
        told = [replica.settings for replica in members]
        if told != self._told:
            self._hands.members(self._model, told)
            self._told = told

    def forgotten(self) -> None:
        """The fleet knows none of them any more."""
        self._told = []

    def coming(self, seconds: float, now: float, *, guessed: bool, failure: str = "") -> None:
        """0.0: none is. `guessed`: how long it takes was never measured. `failure`: why the last one failed."""
        if seconds > 0.0:
            self._promised = now + seconds
            self._hands.tell(Coming(self._model, seconds, guessed, failure))

    def broken(self) -> None:
        """What was promised will not be."""
        self._promised = 0.0

    def is_due(self, now: float) -> bool:
        """Should have been ready by now: to be promised anew."""
        return now >= self._promised
