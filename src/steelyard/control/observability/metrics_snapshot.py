"""Numbers for the metrics that the views lack, from the workers' last reports."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..fleet.registry import ReplicaKey
from ..process_resources import ProcessUsage, process_usage
from .totals import FleetTotals, ModelTotals, ReplicaTotals, lost_telemetry, unrouted_requests

if TYPE_CHECKING:
    from ..fleet.fleet import Fleet
    from ..workers.pool import WorkerPool


class MetricsSnapshot(NamedTuple):
    models: Mapping[str, ModelTotals] = {}
    replicas: Mapping[ReplicaKey, ReplicaTotals] = {}
    workers: Mapping[int, ProcessUsage] = {}  # by pid
    supervisor: ProcessUsage | None = None
    unexpected_exits: int | None = None  # of workers
    unrouted: Mapping[str, int] = {}  # requests, by outcome
    probes: Mapping[tuple[str, str], int] = {}  # by model and result
    lost_telemetry: Mapping[str, int] = {}  # log lines and spans, by kind


def take_metrics_snapshot(fleet: Fleet, worker_pool: WorkerPool, totals: FleetTotals) -> MetricsSnapshot:
    usage = {worker.pid: process_usage(worker.pid) for worker in worker_pool.workers()}
    return MetricsSnapshot(
        *totals,
        {pid: used for pid, used in usage.items() if used is not None},
        process_usage(os.getpid()),
        worker_pool.unexpected_exits,
        unrouted_requests(worker_pool.reports(), worker_pool.retired),
        fleet.health.prober.result_counts,
        lost_telemetry(worker_pool.reports(), worker_pool.retired),
    )
