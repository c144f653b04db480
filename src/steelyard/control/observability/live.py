"""The fleet as the dashboard and `top` follow it, once a second."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ...link.messages import WorkerReport
from .event_log import EventLog
from .samples import SampleHistory
from .stored_samples import CHART_SECONDS, StoredSamples
from .totals import FleetTotals
from .views import (
    FleetEvent,
    FleetView,
    LiveHistoryView,
    LiveModelView,
    LiveReplicaView,
    LiveView,
    ModelView,
    ReplicaView,
)

MIN_INTERVAL_SECONDS = 0.9  # workers may report more often than once a second
MAX_INTERVAL_SECONDS = 1.5  # also if a worker reports nothing

log = logging.getLogger("steelyard.control")


class LiveFeed:
    """Samples when every worker has reported again, so that a second of theirs is a second here."""

    def __init__(self, totals: Callable[[], FleetTotals], event_log: EventLog, began: float) -> None:
        """`totals` is called for each sample."""
        self.started_at = began
        self.events = event_log
        self.samples = SampleHistory()
        self.stored: StoredSamples = {}  # of the time before the start
        self._totals = totals
        self._old: list[WorkerReport] = []  # at the last sample
        self.followers: list[Callable[[], None]] = []  # called after each sample

    def tick(self, reports: list[WorkerReport], now: float) -> None:
        """`reports`: the latest of each worker. Called for each new report, and a few times a second."""
        since = now - self.started_at - self.samples.at
        if since >= MAX_INTERVAL_SECONDS or (
            since >= MIN_INTERVAL_SECONDS and not any(new is old for new in reports for old in self._old)
        ):
            self._sample(reports, now)

    def _sample(self, reports: list[WorkerReport], now: float) -> None:
        self.samples.record(now - self.started_at, *self._totals())
        self._old = reports
        for follower in list(self.followers):
            try:
                follower()
            except Exception:  # a follower must not disturb the supervisor
                log.exception("the update of /v1/live subscribers failed")

    def history(self) -> LiveHistoryView:
        oldest = self.samples.at - CHART_SECONDS
        stored = {model: tuple(one for one in points if one.uptime > oldest) for model, points in self.stored.items()}
        return LiveHistoryView(samples=self.samples.history(), stored=stored)

    def view(self, fleet: FleetView, events: Iterable[FleetEvent]) -> LiveView:
        desired = {scaled.model: scaled.desired for scaled in fleet.scaling}
        return LiveView.of(
            fleet,
            workers=sum(worker.serving for worker in fleet.workers),
            models=tuple(self._model(model, desired.get(model.model)) for model in fleet.models),
            replicas=tuple(map(self._replica, fleet.replicas)),
            events=tuple(events),
        )

    def _model(self, model: ModelView, desired: int | None) -> LiveModelView:
        name = model.model
        waited = self.samples.oldest_wait(name)
        return LiveModelView.of(model, oldest_wait=waited, desired=desired, sample=self.samples.latest(name))

    def _replica(self, replica: ReplicaView) -> LiveReplicaView:
        seen = replica.balancer
        return LiveReplicaView.of(
            replica,
            rate=self.samples.rates.get((replica.model, replica.id), 0.0),
            p50=seen.p50 if seen is not None else 0.0,
            p99=seen.p99 if seen is not None else 0.0,
        )
