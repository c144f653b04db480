"""What is sent to workers about the fleet, and what they report.

Changes go out once per turn of the event loop; other messages flush them first, so workers see everything in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from ...core.request import INFINITY
from ...link.messages import (
    LoadReading,
    LoadReadings,
    ReplicaEvent,
    ReplicaEvents,
    ReplicaReport,
    ToWorker,
    WorkerReport,
)
from .observer import ReplicaLoad
from .registry import ReplicaKey

PROGRESS_BATCH_SECONDS = 0.05  # many probes may fail at once: one question to the workers answers all
PROGRESS_TIMEOUT_SECONDS = 0.5  # for workers to answer it; the prober waits a little longer


class Workers(Protocol):
    def broadcast(self, message: ToWorker) -> list[str]: ...

    def reports(self) -> list[WorkerReport]: ...

    async def request_reports(self, seconds: float) -> bool: ...


class WorkerSync:
    def __init__(self) -> None:
        self._changes: list[ReplicaEvent] = []
        self._readings: list[LoadReading] = []
        self._silence: dict[ReplicaKey, float] = {}  # seconds without progress, as workers said when last asked
        self._asking: asyncio.Task[None] | None = None

    def connect(self, workers: Workers) -> None:
        self._workers = workers
        self._loop = asyncio.get_running_loop()

    def queue_change(self, change: ReplicaEvent) -> None:
        self._flush_soon()
        self._changes.append(change)

    def queue_reading(self, reading: LoadReading) -> None:
        self._flush_soon()
        self._readings.append(reading)

    def _flush_soon(self) -> None:
        if not self._changes and not self._readings:
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        if self._changes:
            changes, self._changes = self._changes, []
            self._workers.broadcast(ReplicaEvents(tuple(changes)))
        if self._readings:
            readings, self._readings = self._readings, []
            self._workers.broadcast(LoadReadings(tuple(readings)))

    def broadcast(self, message: ToWorker) -> list[str]:
        """Returns the names of the processes that it was sent to."""
        self.flush()
        return self.send(message)

    def send(self, message: ToWorker) -> list[str]:
        """Ahead of what is queued."""
        return self._workers.broadcast(message)

    def reports(self) -> list[WorkerReport]:
        return self._workers.reports()

    async def request_reports(self, seconds: float) -> bool:
        """Fresh ones. False: not all workers answered in time."""
        return await self._workers.request_reports(seconds)

    def in_flight(self) -> dict[ReplicaKey, int]:
        found: Counter[ReplicaKey] = Counter()
        for report in self.reports():
            for replica in report.replicas:
                if replica.in_flight:
                    found[replica.model, replica.id] += replica.in_flight
        return found

    def replica_loads(self, model: str) -> Mapping[str, ReplicaLoad]:
        found: dict[str, ReplicaLoad] = {}
        for report in self.reports():
            for seen in report.replicas:
                if seen.model == model:
                    before = found.get(seen.id, ReplicaLoad())
                    found[seen.id] = ReplicaLoad(
                        in_flight=before.in_flight + seen.in_flight,
                        slowness=seen.slowness if seen.state else before.slowness,
                        cache=seen.cache if seen.cache is not None else before.cache,
                        ejected=before.ejected or seen.ejection_left > 0.0,
                    )
        return found

    async def makes_progress(self, key: ReplicaKey, probe_timeout: float) -> bool:
        """Do requests there make progress, or did a byte arrive while a probe with this timeout waited?"""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._refresh_silence())
        await asyncio.shield(self._asking)
        return self._silence.get(key, INFINITY) <= probe_timeout + 2 * PROGRESS_BATCH_SECONDS

    async def _refresh_silence(self) -> None:
        await asyncio.sleep(PROGRESS_BATCH_SECONDS)
        await self.request_reports(PROGRESS_TIMEOUT_SECONDS)
        seen: dict[ReplicaKey, list[ReplicaReport]] = {}
        for report in self.reports():
            for replica in report.replicas:
                seen.setdefault((replica.model, replica.id), []).append(replica)
        self._silence = {key: seconds_without_progress(reports) for key, reports in seen.items()}


def seconds_without_progress(reports: list[ReplicaReport]) -> float:
    """Of one replica. While a byte may still come for what runs there, none."""
    silent = min(r.silent_for for r in reports)
    running = any(min(silent, r.runs_for) <= r.stalls_after for r in reports if r.stalls_after)
    return 0.0 if running else silent
