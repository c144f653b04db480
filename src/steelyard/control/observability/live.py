"""The fleet as it is followed live: short, once a second."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from ...link.messages import WorkerReport
from ..fleet.registry import ReplicaKey
from .event_log import EventLog
from .samples import SampleHistory
from .stored_samples import CHART_SECONDS, StoredSamples
from .totals import ModelTotals, ReplicaTotals
from .views import FleetEvent, FleetView, LiveHistoryView, LiveModelView, LiveReplicaView, LiveView, ReplicaView

INTERVAL_SECONDS = 1.0  # seconds
MIN_INTERVAL_SECONDS = 0.9 * INTERVAL_SECONDS  # a beat is not before: workers may report more often than once a second
MAX_INTERVAL_SECONDS = 1.5 * INTERVAL_SECONDS  # a beat is not after, also if a worker reports nothing

log = logging.getLogger("steelyard.control")

FleetTotals = tuple[dict[str, ModelTotals], dict[ReplicaKey, ReplicaTotals]]


class LiveFeed:
    """Beats once a second: when every worker has said something new, so that a second of theirs is a second here."""

    def __init__(
        self,
        totals: Callable[[], FleetTotals],
        event_log: EventLog,
        began: float,
        take_in: Callable[[FleetTotals], None] = lambda totals: None,
    ) -> None:
        """`take_in`: is told the totals of each beat."""
        self.started_at = began
        self._take_in = take_in
        self.events = event_log
        self.samples = SampleHistory()
        self.stored: StoredSamples = {}  # of the time before it began
        self._totals = totals
        self._old: list[WorkerReport] = []  # what workers had said at the last beat
        self.followers: list[Callable[[], None]] = []

    def tick(self, reports: list[WorkerReport], now: float) -> None:
        """`reports`: the latest of each worker. To be called when one is new, and a few times a second."""
        since = now - self.started_at - self.samples.at
        if since >= MAX_INTERVAL_SECONDS or (
            since >= MIN_INTERVAL_SECONDS and not any(new is old for new in reports for old in self._old)
        ):
            self._sample(reports, now)

    def _sample(self, reports: list[WorkerReport], now: float) -> None:
        totals = self._totals()
        self.samples.record(now - self.started_at, *totals)
        self._take_in(totals)
        self._old = reports
        for follower in list(self.followers):
            try:
                follower()
            except Exception:  # whoever follows must not disturb what is followed
                log.exception("telling those who follow the fleet went wrong")

    def subscribe(self, follower: Callable[[], None]) -> None:
        """It is called after each beat."""
        self.followers.append(follower)

    def unsubscribe(self, follower: Callable[[], None]) -> None:
        with suppress(ValueError):
            self.followers.remove(follower)

    def history(self) -> LiveHistoryView:
        oldest = self.samples.at - CHART_SECONDS
        stored = {model: tuple(one for one in points if one.uptime > oldest) for model, points in self.stored.items()}
        return LiveHistoryView(samples=self.samples.history(), stored=stored)

    def view(self, fleet: FleetView, events: Iterable[FleetEvent]) -> LiveView:
        return live_view(fleet, self.samples, events)


def live_view(fleet: FleetView, pulses: SampleHistory, events: Iterable[FleetEvent]) -> LiveView:
    wanted = {scaled.model: scaled.desired for scaled in fleet.scaling}
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
                oldest_wait=pulses.oldest_wait(model.model),
                desired=wanted.get(model.model),
                sample=pulses.latest(model.model),
            )
            for model in fleet.models
        ),
        replicas=tuple(_replica(replica, pulses.rates) for replica in fleet.replicas),
        devices=fleet.devices,
        slo=fleet.slo,
        alarms=fleet.alarms,
        events=tuple(events),
    )


def _replica(replica: ReplicaView, rates: dict[ReplicaKey, float]) -> LiveReplicaView:
    """Its latency is what the worker says that saw the worst of it."""
    return LiveReplicaView(
        model=replica.model,
        id=replica.id,
        state=replica.state,
        why=replica.why,
        state_age=replica.state_age,
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
