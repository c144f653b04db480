"""From what replicas and clients saw of a run to its figures. Pure: times in, figures out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from ..load.open_loop import p99

CLIENT_TIMEOUT_SECONDS = 10.0  # slower answers count as failed
QUIET_SECONDS = 0.5  # without a request: at its share of the load, it would get ten


@dataclass(frozen=True)
class SentRequest:
    """A request: when it was due, and how long it took; None: it failed."""

    due: float
    seconds: float | None

    @property
    def failed(self) -> bool:
        return self.seconds is None or self.seconds > CLIENT_TIMEOUT_SECONDS

    @property
    def over(self) -> float:
        """When it had its answer, or would have been given up."""
        return self.due + (CLIENT_TIMEOUT_SECONDS if self.seconds is None else self.seconds)


@dataclass(frozen=True)
class FaultObservation:
    """Requests that reached one faulty replica."""

    kind: str
    detection: float | None  # seconds from its begin to the last request before a pause; None: no moment to notice it
    reached: int  # requests after that, or after it should have been noticed, until the fault ended
    sent: int  # by clients in that time
    back: float | None  # seconds from its end to the first request; None: none came any more

    @property
    def share(self) -> float:
        return self.reached / self.sent if self.sent else 0.0


@dataclass(frozen=True)
class FaultRun:
    """One run: one scenario, one proxy. Requests finished before the fault do not count. Seconds."""

    requests: int
    failed: int
    p50: float
    p99: float
    slowest: float
    observations: tuple[FaultObservation, ...] = ()
    statuses: dict[str, int] = field(default_factory=dict)  # of what failed
    lag: float = 0.0  # the benchmark's own delay, p99


def detection(arrivals: Sequence[float], begin: float, end: float) -> float:
    """Seconds until it was given nothing for a while."""
    last = begin
    for when in sorted(a for a in arrivals if begin <= a < end):
        if when - last > QUIET_SECONDS:
            break
        last = when
    return last - begin


def observe_fault(
    kind: str, arrivals: Sequence[float], due: Iterable[float], window: tuple[float, float], grace: float, sudden: bool
) -> FaultObservation:
    """`grace`: seconds after which it should be out, noticed or not; `sudden`: there is a moment to notice it at."""
    begin, end = window
    noticed = detection(arrivals, begin, end)
    since = begin + (min(noticed, grace) if sudden else grace)
    back = min((a - end for a in arrivals if a >= end), default=None)
    reached = sum(since < a < end for a in arrivals)
    return FaultObservation(kind, noticed if sudden else None, reached, sum(since < d < end for d in due), back)


def fault_run(
    sent: Sequence[SentRequest],
    since: float,
    observations: Sequence[FaultObservation],
    statuses: Counter[str],
    lag: float,
) -> FaultRun:
    counted = [s for s in sent if s.over >= since]  # those in flight when it happened suffer most
    seconds = [s.seconds for s in counted if s.seconds is not None]
    return FaultRun(
        len(counted),
        sum(s.failed for s in counted),
        median(seconds) if seconds else float("nan"),
        p99(seconds),
        max(seconds, default=float("nan")),
        tuple(observations),
        dict(statuses),
        lag,
    )
