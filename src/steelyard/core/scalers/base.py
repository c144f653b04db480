"""The interface of a scaler: metrics of a model in, a recommended number of replicas out."""

from __future__ import annotations

from math import ceil
from typing import ClassVar, NamedTuple

from ..plugins import boolean as boolean
from ..plugins import number as number
from ..request import INFINITY


class ScalingMetrics(NamedTuple):
    """A model as all balancers together see it. Work is in seconds alone on a typical replica."""

    now: float
    ready: int = 0  # replicas that serve
    starting: int = 0  # started, not ready yet
    offered: float = 0.0  # work that came, since the beginning
    arrived: int = 0  # requests, since the beginning
    running: int = 0  # requests at replicas
    waiting: int = 0  # requests in the queue
    backlog: float = 0.0  # work in the queue
    estimates_learned: bool = True  # else work is a guess, and requests are counted
    rate: float = 1.0  # work that one full replica does in a second: a first guess
    completed_work: float = 0.0  # answered since the beginning, counted as when it came
    busy_seconds: float = 0.0  # that it took, one request beside another; 0.0: not known
    slots: float = 1.0  # requests that one replica takes at once
    cold_start: float = 10.0  # seconds from the start of a replica to its first request
    answered: int = 0  # requests that ended since the beginning, however
    late: int = 0  # of these, not within the SLO
    slo_seconds: float = INFINITY  # INFINITY: no SLO
    slo_late_share: float = 0.01  # of the requests that may be late
    p99: float = 0.0  # seconds, of the last half minute; 0: none ended
    slots_configured: bool = True  # else they were learned, and may be too many


class Recommendation(NamedTuple):
    replicas: int
    reason: str  # in words, without the number: `4.1 s/s of work offered, forecast 5.2 in 8 s`
    offered: float = 0.0  # seconds of work per second, over the long window
    recent_work: float = 0.0  # over the short one
    forecast: float = 0.0  # what is expected when a replica that is started now is ready
    burn: float = 0.0  # burn rate of the SLO
    panicking: bool = False


class Scaler:
    """Made for one model and asked about once a second, with times that only grow.

    Options are keyword arguments of `__init__`. It never reads a clock or a global random; its memory is bounded.
    """

    rule: ClassVar[str] = ""  # what it does, in one line

    def recommend(self, seen: ScalingMetrics) -> Recommendation:
        """The replicas it wants now, its own dynamics included; bounds, steps and zero are `core.scaling`'s."""
        raise NotImplementedError


def tolerant_ceil(value: float) -> int:
    return ceil(value - 1e-9)
