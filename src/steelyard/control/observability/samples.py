"""What happened in each second, from totals. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice

from ...core.slo.verdicts import ABANDONED, CLIENT, MET, SLO_VERDICTS
from ...core.statistics.histogram import bucket_midpoint, quantile_bucket
from ..fleet.registry import ReplicaKey
from .totals import ModelTotals, ReplicaTotals
from .views import SampleView

MAX_SAMPLES = 300  # of a model, a second each
MIN_ANSWERS = 20  # for a quantile: with fewer, earlier seconds count too …
MAX_LOOKBACK_SECONDS = 5  # … at most

_BAD_VERDICTS = tuple(
    i for i, (verdict, fault) in enumerate(SLO_VERDICTS) if verdict not in (MET, ABANDONED) and fault != CLIENT
)
_IDLE_SAMPLE = SampleView(uptime=0.0, rate=0.0, bad_rate=0.0, p50=None, p99=None, waiting=0, in_flight=0, work=0.0)


class SampleHistory:
    """The last minutes of all models, and the request rate of each replica."""

    def __init__(self) -> None:
        self._models: dict[str, _ModelSamples] = {}
        self._dispatched: dict[ReplicaKey, int] = {}
        self.rates: dict[ReplicaKey, float] = {}
        self.at = 0.0  # of the last

    def record(
        self, at: float, models: Mapping[str, ModelTotals], replicas: Mapping[ReplicaKey, ReplicaTotals]
    ) -> None:
        """`at`: seconds since the supervisor began."""
        seconds = at - self.at
        if seconds <= 0.0:
            return
        work = dict.fromkeys(models, 0.0)
        for key, replica in replicas.items():
            work[key[0]] = work.get(key[0], 0.0) + replica.work
        self._models = {name: self._models.get(name) or _ModelSamples() for name in models}
        for name, status in models.items():
            self._models[name].beat(at, seconds, status, work[name] + status.queued_work)
        dispatched = {key: replica.dispatched for key, replica in replicas.items()}
        self.rates = {key: _increase(n, self._dispatched.get(key, 0)) / seconds for key, n in dispatched.items()}
        self._dispatched = dispatched
        self.at = at

    def latest(self, model: str) -> SampleView:
        known = self._models.get(model)
        return known.ring[-1] if known is not None and known.ring else _IDLE_SAMPLE

    def oldest_wait(self, model: str) -> float:
        known = self._models.get(model)
        return known.oldest if known is not None else 0.0

    def history(self) -> dict[str, tuple[SampleView, ...]]:
        """The latest last."""
        return {name: tuple(model.ring) for name, model in self._models.items()}


class _ModelSamples:
    __slots__ = ("_answers", "_bad", "_ended", "_latency", "oldest", "ring")

    def __init__(self) -> None:
        self.ring: deque[SampleView] = deque(maxlen=MAX_SAMPLES)
        self.oldest = 0.0
        self._ended = 0
        self._bad = 0
        self._latency: Mapping[int, int] = {}
        self._answers: deque[dict[int, int]] = deque(maxlen=MAX_LOOKBACK_SECONDS)  # of each second, by bucket

    def beat(self, at: float, seconds: float, status: ModelTotals, work: float) -> None:
        ended, bad = status.requests, _bad_requests(status.slo_verdicts.values())
        before = self._latency
        self._answers.append({b: n - before.get(b, 0) for b, n in status.latency.items() if n > before.get(b, 0)})
        p50, p99 = quantiles(_recent_answers(self._answers), 0.5, 0.99)
        self.ring.append(
            SampleView(
                uptime=at,
                rate=_increase(ended, self._ended) / seconds,
                bad_rate=_increase(bad, self._bad) / seconds,
                p50=p50,
                p99=p99,
                waiting=status.waiting,
                in_flight=status.in_flight,
                work=work,
            )
        )
        self.oldest = status.oldest_wait
        self._ended, self._bad, self._latency = ended, bad, status.latency


def quantiles(counts: Mapping[int, int], *wanted: float) -> list[float | None]:
    """Seconds, from counts by histogram bucket. None: no answers."""
    buckets = (quantile_bucket(counts, q) for q in wanted)
    return [None if bucket is None else bucket_midpoint(bucket) for bucket in buckets]


def _recent_answers(answers: deque[dict[int, int]]) -> dict[int, int]:
    """Of the last second; if few, with those of the seconds before."""
    total = dict(answers[-1])
    for earlier in islice(reversed(answers), 1, None):
        if sum(total.values()) >= MIN_ANSWERS:
            break
        for bucket, count in earlier.items():
            total[bucket] = total.get(bucket, 0) + count
    return total


def _bad_requests(tenants: Iterable[list[int]]) -> int:
    return sum(counts[i] for counts in tenants for i in _BAD_VERDICTS if i < len(counts))


def _increase(now: int, before: int) -> int:
    """A lower count was reset: a model was removed and came back."""
    return now - before if now >= before else now
