"""What the autoscaler needs of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ...link.messages import Report
from ..starting.keeper import Keeper
from .plans import time_of_day


@dataclass(frozen=True, slots=True)
class ScalingHands:
    keeper: Keeper
    reports: Callable[[], Sequence[Report]]  # the latest of each worker
    ready: Callable[[], Mapping[str, int]]  # replicas of each model that serve, whoever started them
    note: Callable[..., None]  # (what, model, replica="", level=logging.INFO)
    clock: Callable[[], float]  # monotonic
    wall: Callable[[], datetime] = time_of_day  # for schedules, and nothing else
