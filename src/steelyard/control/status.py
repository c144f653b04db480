"""What all workers say, as one. Pure: reports in, totals out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf, nan
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from ..core.histogram import Histogram, middle
from ..core.slo import FAILED, GATEWAY, INDEX, KINDS
from ..link.messages import Durations, ModelReport, ReplicaReport, Report
from .cut_off import NOTHING, Cut, whose
from .slo.ledger import OTHERS

Key = tuple[str, str]  # model, replica id
K = TypeVar("K")
GROWING = (
    "offered", "done", "believed", "missed", "arrived", "retried", "hedged", "hedges_won", "ejected",
)  # fmt: skip
UNKNOWN = "unknown"  # the state of a replica that no worker has reported yet


class ReplicaStatus(msgspec.Struct, frozen=True):
    """A replica as all workers together see it; counts are since the supervisor began."""

    model: str
    id: str
    state: str  # what most workers think
    in_flight: int
    picks: int
    failures: int
    seconds: float
    slowness: float  # mean over the workers, each by the answers it saw
    times_ejected: int = 0
    ejections: int = 0  # in a row, as the worker says that knows of most
    outcomes: dict[str, int] = {}  # attempts that ended, by core.outcome
    last_error: str = ""  # as the worker says that saw the latest
    last_error_age: float = inf
    samples: int = 0  # answers behind `slowness`
    sampled_age: float = inf  # seconds since the last of them


class ModelStatus(msgspec.Struct, frozen=True):
    """A model over all workers; counts are since the supervisor began."""

    model: str
    waiting: int
    in_flight: int
    verdicts: dict[str, int]
    latency: dict[int, int]  # bucket of core.histogram → answers
    judged: dict[str, list[int]] = {}  # tenant → requests by judgement of core.slo
    times: dict[str, Durations] = {}  # total, replica, first_byte and queue
    backlog: float = 0.0  # seconds of work that wait
    oldest: float = 0.0  # seconds that the one has waited who has waited longest
    offered: float = 0.0  # seconds of work that came
    done: float = 0.0  # seconds of work that were answered
    believed: float = 0.0  # seconds that attempts were believed to take …
    missed: float = 0.0  # … and by how much that was off
    arrived: int = 0
    retried: int = 0
    hedged: int = 0
    hedges_won: int = 0
    ejected: int = 0
    statuses: dict[int, int] = {}  # requests by HTTP status; below 10: by its class; 0: there was no answer

    @property
    def requests(self) -> int:
        return sum(self.verdicts.values())

    def quantile(self, q: float) -> float:
        """Of the latency, in seconds; nan before the first answer."""
        wanted, seen = q * sum(self.latency.values()), 0
        for bucket, count in sorted(self.latency.items()):
            seen += count
            if seen >= wanted and count:
                return middle(bucket)
        return nan


class WorkerStatus(msgspec.Struct, frozen=True):
    index: int
    pid: int
    serving: bool
    connections: int


class FleetStatus(msgspec.Struct, frozen=True):
    workers: tuple[WorkerStatus, ...]
    models: dict[str, ModelStatus]
    replicas: dict[Key, ReplicaStatus]
    connections: int
    replaced: int = 0  # workers that ended unexpectedly so far


TENANTS = 100  # of a model, whose dead are counted one by one


class Past:
    """What dead workers had counted: totals never go down because a worker died."""

    def __init__(self) -> None:
        self.models: dict[str, ModelReport] = {}
        self.replicas: dict[Key, ReplicaReport] = {}
        self.unrouted: dict[str, int] = {}  # requests, by verdict
        self.lost: dict[str, int] = {}  # lines and spans, by what they are

    def bury(self, report: Report, cut: Cut = NOTHING, others: Iterable[Report] = ()) -> None:
        """`cut`: the requests that were cut off with it, of each model. They failed, and the fault is ours. `others`:
        what those say who live."""
        self.unrouted = _sum((self.unrouted, report.unrouted))
        self.lost = _sum((self.lost, report.lost))
        unheard = cut.keys() - {model.model for model in report.models}
        for model in (*report.models, *(ModelReport(name, 0, 0, {}, {}) for name in sorted(unheard))):
            known = self.models.get(model.model)
            counted = [*([known] if known else []), model]
            if requests := cut.get(model.model):
                counted.append(_failed(model.model, requests, whose([*counted, *_of(model.model, others)])))
            self.models[model.model] = msgspec.structs.replace(
                model,
                waiting=0,
                in_flight=0,
                backlog=0.0,
                oldest=0.0,
                **_folded(_counted(counted)),
            )
        for replica in report.replicas:
            before = self.replicas.get((replica.model, replica.id))
            self.replicas[replica.model, replica.id] = msgspec.structs.replace(
                replica,
                in_flight=0,
                seconds=0.0,
                picks=replica.picks + (before.picks if before else 0),
                failures=replica.failures + (before.failures if before else 0),
                times_ejected=replica.times_ejected + (before.times_ejected if before else 0),
                outcomes=_sum((replica.outcomes, before.outcomes if before else {})),
            )

    def keep(self, configured: Mapping[str, Iterable[str]]) -> None:
        """Forget who is not configured any more: a fleet that changes for months must not be remembered for ever."""
        wanted = {(model, id) for model, ids in configured.items() for id in ids}
        self.models = {model: report for model, report in self.models.items() if model in configured}
        self.replicas = {key: report for key, report in self.replicas.items() if key in wanted}


def merge(
    reports: Iterable[Report], past: Past, configured: Mapping[str, Iterable[str]] = MappingProxyType({})
) -> tuple[dict[str, ModelStatus], dict[Key, ReplicaStatus]]:
    """The totals of the living, with the counts of the dead. Who is configured is there before anybody reports it."""
    models: dict[str, list[ModelReport]] = {model: [] for model in configured}
    replicas: dict[Key, list[ReplicaReport]] = {(model, id): [] for model, ids in configured.items() for id in ids}
    for report in reports:
        for model in report.models:
            models.setdefault(model.model, []).append(model)
        for replica in report.replicas:
            replicas.setdefault((replica.model, replica.id), []).append(replica)
    return (
        {name: _model(name, models.get(name, []), past.models.get(name)) for name in {**past.models, **models}},
        {key: _replica(key, replicas.get(key, []), past.replicas.get(key)) for key in {**past.replicas, **replicas}},
    )


def unrouted(reports: Iterable[Report], past: Past) -> dict[str, int]:
    """Requests that named no model of ours, by verdict, of the living and the dead."""
    return _sum((past.unrouted, *(report.unrouted for report in reports)))


def lost(reports: Iterable[Report], past: Past) -> dict[str, int]:
    """Lines of logs and spans that could not be written or sent, of the living and the dead."""
    return _sum((past.lost, *(report.lost for report in reports)))


def histogram(buckets: Mapping[int, int]) -> Histogram:
    result = Histogram()
    for bucket, count in buckets.items():
        result.counts[bucket] += count
        result.count += count
    result.maximum = inf if result.count else 0.0  # not known: the buckets are all there is
    return result


def _model(name: str, living: list[ModelReport], dead: ModelReport | None) -> ModelStatus:
    everyone = [*living, *([dead] if dead else [])]
    return ModelStatus(
        name,
        waiting=sum(r.waiting for r in living),
        in_flight=sum(r.in_flight for r in living),
        backlog=sum(r.backlog for r in living),
        oldest=max((r.oldest for r in living), default=0.0),
        **_counted(everyone),
    )


def _counted(reports: list[ModelReport]) -> dict[str, Any]:
    """All that only grows, summed."""
    return {
        "verdicts": _sum(r.verdicts for r in reports),
        "statuses": _sum(r.statuses for r in reports),
        "latency": _sum(r.latency for r in reports),
        "judged": _added((tenant, counts) for r in reports for tenant, counts in r.judged.items()),
        "times": _durations(reports),
        **{name: sum(getattr(r, name) for r in reports) for name in GROWING},
    }


def _of(model: str, reports: Iterable[Report]) -> list[ModelReport]:
    return [each for report in reports for each in report.models if each.model == model]


def _failed(model: str, requests: int, tenant: str) -> ModelReport:
    """As a worker would have reported it."""
    judged = [0] * KINDS
    judged[INDEX[FAILED, GATEWAY]] = requests
    return ModelReport(model, 0, 0, {FAILED: requests}, {}, judged={tenant: judged})


def _folded(counted: dict[str, Any]) -> dict[str, Any]:
    """Each worker may have counted other tenants, whose names clients make up: those of all that ever died would be
    more and more."""
    judged: dict[str, list[int]] = counted["judged"]
    few = list(judged)[:TENANTS]
    return counted | {"judged": _added((name if name in few else OTHERS, counts) for name, counts in judged.items())}


def _durations(reports: list[ModelReport]) -> dict[str, Durations]:
    counts = _added((name, times.counts) for r in reports for name, times in r.times.items())
    return {
        name: Durations(n, sum(r.times[name].total for r in reports if name in r.times)) for name, n in counts.items()
    }


def _added(parts: Iterable[tuple[str, list[int]]]) -> dict[str, list[int]]:
    """Lists of one name, number by number."""
    total: dict[str, list[int]] = {}
    for name, counts in parts:
        total[name] = [a + b for a, b in zip(total[name], counts, strict=True)] if name in total else counts
    return total


def _replica(key: Key, living: list[ReplicaReport], dead: ReplicaReport | None) -> ReplicaStatus:
    everyone = [*living, *([dead] if dead else [])]
    seen = living or everyone
    latest = min(living, key=lambda r: r.last_error_age, default=None)
    return ReplicaStatus(
        *key,
        state=Counter(r.state for r in seen).most_common(1)[0][0] if seen else UNKNOWN,
        in_flight=sum(r.in_flight for r in living),
        times_ejected=sum(r.times_ejected for r in everyone),
        ejections=max((r.ejections for r in living), default=0),
        outcomes=_sum(r.outcomes for r in everyone),
        last_error=latest.last_error if latest is not None else "",
        last_error_age=latest.last_error_age if latest is not None else inf,
        picks=sum(r.picks for r in everyone),
        failures=sum(r.failures for r in everyone),
        seconds=sum(r.seconds for r in living),
        slowness=_slowness(seen),
        samples=sum(r.samples for r in living),
        sampled_age=min((r.sampled_age for r in living), default=inf),
    )


def _slowness(reports: list[ReplicaReport]) -> float:
    """A worker that saw few answers says little; where none saw any, all say the same: what the weight says."""
    samples = sum(r.samples for r in reports)
    if not samples:
        return sum(r.slowness for r in reports) / len(reports) if reports else 1.0
    return sum(r.slowness * r.samples for r in reports) / samples


def _sum(parts: Iterable[Mapping[K, int]]) -> dict[K, int]:
    total: dict[K, int] = {}
    for part in parts:
        for key, count in part.items():
            total[key] = total.get(key, 0) + count
    return total
