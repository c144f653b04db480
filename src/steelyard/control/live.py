"""The fleet as it is followed live: short, once a second."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from ..link.messages import Report
from .chronicle import Chronicle
from .pulse import Pulses
from .roster import Key
from .status import ModelStatus, ReplicaStatus
from .stored_pulses import CHART_SECONDS, Stored
from .views import FleetView, Happening, LiveHistoryView, LiveModelView, LiveReplicaView, LiveView, ReplicaView

EVERY = 1.0  # seconds
SOON = 0.9 * EVERY  # a beat is not before: workers may report more often than once a second
LATE = 1.5 * EVERY  # a beat is not after, also if a worker reports nothing

log = logging.getLogger("steelyard.control")

Totals = tuple[dict[str, ModelStatus], dict[Key, ReplicaStatus]]


class Live:
    """Beats once a second: when every worker has said something new, so that a second of theirs is a second here."""

    def __init__(
        self,
        totals: Callable[[], Totals],
        chronicle: Chronicle,
        began: float,
        take_in: Callable[[Totals], None] = lambda totals: None,
    ) -> None:
        """`take_in`: is told the totals of each beat."""
        self.began = began
        self._take_in = take_in
        self.chronicle = chronicle
        self.pulses = Pulses()
        self.stored: Stored = {}  # of the time before it began
        self._totals = totals
        self._old: list[Report] = []  # what workers had said at the last beat
        self._followers: list[Callable[[], None]] = []

    def tick(self, reports: list[Report], now: float) -> None:
        """`reports`: the latest of each worker. To be called when one is new, and a few times a second."""
        since = now - self.began - self.pulses.at
        if since >= LATE or (since >= SOON and not any(new is old for new in reports for old in self._old)):
            self._beat(reports, now)

    def _beat(self, reports: list[Report], now: float) -> None:
        totals = self._totals()
        self.pulses.beat(now - self.began, *totals)
        self._take_in(totals)
        self._old = reports
        for follower in list(self._followers):
            try:
                follower()
            except Exception:  # whoever follows must not disturb what is followed
                log.exception("telling those who follow the fleet went wrong")

    def follow(self, follower: Callable[[], None]) -> None:
        """It is called after each beat."""
        self._followers.append(follower)

    def leave(self, follower: Callable[[], None]) -> None:
        with suppress(ValueError):
            self._followers.remove(follower)

    def history(self) -> LiveHistoryView:
        oldest = self.pulses.at - CHART_SECONDS
        stored = {model: tuple(one for one in points if one.at > oldest) for model, points in self.stored.items()}
        return LiveHistoryView(pulses=self.pulses.history(), stored=stored)

    def view(self, fleet: FleetView, events: Iterable[Happening]) -> LiveView:
        return live_view(fleet, self.pulses, events)


def live_view(fleet: FleetView, pulses: Pulses, events: Iterable[Happening]) -> LiveView:
    wanted = {scaled.model: scaled.wanted for scaled in fleet.scaling}
    return LiveView(
        version=fleet.version,
        uptime=fleet.uptime,
        workers=sum(worker.serving for worker in fleet.workers),
        models=tuple(
            LiveModelView(
                model=model.model,
                policy=model.policy,
                concurrency=model.concurrency,
                replicas=model.replicas,
                ready=model.ready,
                failing=model.failing,
                oldest=pulses.oldest(model.model),
                wanted=wanted.get(model.model),
                pulse=pulses.latest(model.model),
            )
            for model in fleet.models
        ),
        replicas=tuple(_replica(replica, pulses.rates) for replica in fleet.replicas),
        devices=fleet.devices,
        slo=fleet.slo,
        alarms=fleet.alarms,
        events=tuple(events),
    )


def _replica(replica: ReplicaView, rates: dict[Key, float]) -> LiveReplicaView:
    """Its latency is what the worker says that saw the worst of it."""
    return LiveReplicaView(
        model=replica.model,
        id=replica.id,
        state=replica.state,
        why=replica.why,
        since=replica.since,
        draining=replica.draining,
        in_flight=replica.in_flight,
        work=replica.work,
        slowness=replica.slowness,
        slowness_samples=replica.slowness_samples,
        slowness_age=replica.slowness_age,
        weight=replica.weight,
        rate=rates.get((replica.model, replica.id), 0.0),
        p50=max((worker.p50 for worker in replica.workers), default=0.0),
        p99=max((worker.p99 for worker in replica.workers), default=0.0),
        failures=replica.failures,
        recent=replica.recent,
        zone=replica.zone,
        device=replica.device,
    )
