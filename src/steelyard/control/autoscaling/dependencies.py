"""What the autoscaler needs of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ...link.messages import WorkerReport
from ..replicas.controller import ReplicaController
from .settings import utc_now


@dataclass(frozen=True, slots=True)
class AutoscalerDependencies:
    keeper: ReplicaController
    reports: Callable[[], Sequence[WorkerReport]]  # the latest of each worker
    ready: Callable[[], Mapping[str, int]]  # replicas of each model that serve, whoever started them
    note: Callable[..., None]  # (what, model, replica="", level=logging.INFO)
    clock: Callable[[], float]  # monotonic
    wall: Callable[[], datetime] = utc_now  # for schedules, and nothing else
