"""A keeper and a scripted replica: what is seen at which time, and what is told."""

from __future__ import annotations

from random import Random
from typing import Any

from steelyard.config import Health, Inference, WarmUp
from steelyard.control.probing.keeper import Keeper
from steelyard.control.probing.seen import Kind, Seen, Tried
from steelyard.core.replica import Event

READY = Seen(Kind.READY, "answers 200")
NOT_NOW = Seen(Kind.LOADING, "answers 503", sure=True)
ERROR = Seen(Kind.LOADING, "answers 500")
ABSENT = Seen(Kind.ABSENT, "answers 404")
REFUSED = Seen(Kind.REFUSED, "refuses connections")
SILENT = Seen(Kind.SILENT, "no answer in time", seconds=2.0)
NONSENSE = Seen(Kind.BROKEN, "its answer is not HTTP/1.1")
BROKEN = Seen(Kind.BROKEN, "answers 503: its engine is dead", sure=True)
UNKNOWN = Seen(Kind.UNKNOWN, "this machine cannot ask")

WARM_UP = (WarmUp(path="/warm"),)
WELL = Tried()
INFERENCE = Inference(path="/infer", every=30.0)


def health(**settings: Any) -> Health:
    return Health(**{"interval": 5.0, "loading_interval": 0.5, "timeout": 2.0, **settings})


class Conversation:
    """Time passes as the keeper wants it: each thing is seen when it looks."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        self.now = 100.0
        self.keeper = Keeper(health(**settings), Random(seed), self.now)

    def sees(self, *sights: Seen, busy: bool = False) -> list[str]:
        """What is told, in words."""
        told: list[str] = []
        for seen in sights:
            self.now = max(self.now, self.keeper.due) + seen.seconds
            told += [event.event.value for event in self.keeper.saw(seen, self.now, busy=busy)]
        return told

    def tries(self, outcome: Tried = WELL, *, seconds: float = 1.0, busy: bool = False) -> list[str]:
        self.now += seconds
        return [event.event.value for event in self.keeper.tried(outcome, self.now, busy=busy)]

    @property
    def pause(self) -> float:
        return self.keeper.due - self.now


LIVE, LOADED, LOST = Event.LIVE.value, Event.LOADED.value, Event.LOST.value


def by(instance: str, seen: Seen = READY) -> Seen:
    return seen._replace(instance=instance)
