"""What the metrics show and the views do not. Workers are not asked: it is what they last reported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..fleet.registry import ReplicaKey
from ..process_resources import ProcessUsage, process_usage
from .totals import ModelTotals, ReplicaTotals, lost_telemetry, unrouted_requests

if TYPE_CHECKING:
    from ..fleet.fleet import Fleet
    from ..workers.pool import WorkerPool


class MetricsSnapshot(NamedTuple):
    """Without anything: nothing is known."""

    models: Mapping[str, ModelTotals] = {}
    replicas: Mapping[ReplicaKey, ReplicaTotals] = {}
    workers: Mapping[int, ProcessUsage] = {}  # by pid
    supervisor: ProcessUsage | None = None
    unexpected_exits: int | None = None  # workers that ended unexpectedly
    unrouted: Mapping[str, int] = {}  # requests, by verdict
    probes: Mapping[tuple[str, str], int] = {}  # looks at replicas, by model and what they saw
    lost_telemetry: Mapping[str, int] = {}  # lines of logs and spans, by what they are


def take_metrics_snapshot(
    fleet: Fleet,
    worker_pool: WorkerPool,
    models: Mapping[str, ModelTotals],
    replicas: Mapping[ReplicaKey, ReplicaTotals],
) -> MetricsSnapshot:
    return MetricsSnapshot(
        models,
        replicas,
        {
            pid: used
            for pid in (worker.pid for worker in worker_pool.status())
            if (used := process_usage(pid)) is not None
        },
        process_usage(os.getpid()),
        worker_pool.unexpected_exits,
        unrouted_requests(worker_pool.reports(), worker_pool.retired),
        fleet.health.prober.result_counts,
        lost_telemetry(worker_pool.reports(), worker_pool.retired),
    )
