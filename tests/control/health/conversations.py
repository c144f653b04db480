"""A tracker and a scripted replica: what is seen at which time, and what is told."""

from __future__ import annotations

from random import Random
from typing import Any

from steelyard.config import HealthConfig, InferenceProbe, WarmUpRequest
from steelyard.control.health.probe import CheckResult, ProbeResult, ProbeStatus
from steelyard.control.health.tracker import HealthTracker
from steelyard.core.replica import Event

READY = ProbeResult(ProbeStatus.READY, "answers 200")
NOT_NOW = ProbeResult(ProbeStatus.LOADING, "answers 503", definitive=True)
ERROR = ProbeResult(ProbeStatus.LOADING, "answers 500")
NOT_FOUND = ProbeResult(ProbeStatus.NOT_FOUND, "answers 404")
REFUSED = ProbeResult(ProbeStatus.CONNECTION_REFUSED, "refuses connections")
NO_RESPONSE = ProbeResult(ProbeStatus.NO_RESPONSE, "no answer in time", seconds=2.0)
NONSENSE = ProbeResult(ProbeStatus.BROKEN, "its answer is not HTTP/1.1")
BROKEN = ProbeResult(ProbeStatus.BROKEN, "answers 503: its engine is dead", definitive=True)
UNKNOWN = ProbeResult(ProbeStatus.UNKNOWN, "this machine cannot ask")

WARM_UP = (WarmUpRequest(path="/warm"),)
WELL = CheckResult()
INFERENCE = InferenceProbe(path="/infer", interval=30.0)


def health(**settings: Any) -> HealthConfig:
    return HealthConfig(**{"interval": 5.0, "loading_interval": 0.5, "timeout": 2.0, **settings})


class Conversation:
    """Time passes as the tracker wants it: each thing is seen when it looks."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        self.now = 100.0
        self.tracker = HealthTracker(health(**settings), Random(seed), self.now)

    def sees(self, *sights: ProbeResult, busy: bool = False) -> list[str]:
        """What is told, in words."""
        events: list[str] = []
        for seen in sights:
            self.now = max(self.now, self.tracker.next_probe_at) + seen.seconds
            events += [event.event.value for event in self.tracker.probe_finished(seen, self.now, busy=busy)]
        return events

    def tries(self, outcome: CheckResult = WELL, *, seconds: float = 1.0, busy: bool = False) -> list[str]:
        self.now += seconds
        return [event.event.value for event in self.tracker.check_finished(outcome, self.now, busy=busy)]

    @property
    def pause(self) -> float:
        return self.tracker.next_probe_at - self.now


LIVE, LOADED, LOST = Event.LIVE.value, Event.LOADED.value, Event.LOST.value


def by(instance: str, seen: ProbeResult = READY) -> ProbeResult:
    return seen._replace(instance=instance)
