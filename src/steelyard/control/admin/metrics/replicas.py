"""Replicas: how they stand and what they get."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...fleet.registry import ReplicaKey
from ...observability.totals import ReplicaTotals
from ...observability.views import ReplicaView
from .exposition import Family, Sample, labels

_PER_REPLICA: tuple[tuple[str, str, str, Callable[[ReplicaView], float | None]], ...] = (
    ("state_seconds", "gauge", "how long it has been in its state", lambda view: view.state_age),
    ("requests_in_flight", "gauge", "requests it runs for us", lambda view: view.in_flight),
    ("work_seconds", "gauge", "estimated work that it has", lambda view: view.work),
    ("slowness_ratio", "gauge", "seconds there for one on a typical replica", lambda view: view.slowness),
    ("weight", "gauge", "its share of requests, as set", lambda view: view.weight),
    ("requests_total", "counter", "requests sent to it", lambda view: view.dispatched),
    ("failures_total", "counter", "of these, how many failed", lambda view: view.failures),
)


def replica_families(replicas: tuple[ReplicaView, ...], totals: Mapping[ReplicaKey, ReplicaTotals]) -> Iterator[Family]:
    known = [(labels(model=view.model, replica=view.id), view) for view in replicas]
    states = [Sample(f'{of},state="{view.state}"', 1) for of, view in known]
    yield Family("steelyard_replica_state", "gauge", "1, with the state as a label", states)
    for name, kind, meaning, number in _PER_REPLICA:
        yield Family(f"steelyard_replica_{name}", kind, meaning, [Sample(of, number(view)) for of, view in known])
    attempts = [
        Sample(f'{of},outcome="{outcome}"', count)
        for of, view in known
        if (status := totals.get((view.model, view.id))) is not None
        for outcome, count in sorted(status.outcomes.items())
    ]
    yield Family("steelyard_replica_attempts_total", "counter", "attempts that ended there, by outcome", attempts)
    lately = [Sample(of, _share(view)) for of, view in known]
    yield Family("steelyard_replica_failure_ratio", "gauge", "share of the last minute's attempts that failed", lately)
    ejected = [
        Sample(of, totals[key].ejections_total) for of, view in known if (key := (view.model, view.id)) in totals
    ]
    yield Family("steelyard_replica_ejections_total", "counter", "times that a worker took it out", ejected)


def _share(view: ReplicaView) -> float | None:
    """Of a replica that was sent nothing, nobody knows."""
    return view.recent.failed / view.recent.attempts if view.recent.attempts else None


# What probes see of replicas.


def probe_families(replicas: tuple[ReplicaView, ...], counts: Mapping[tuple[str, str], int]) -> Iterator[Family]:
    probes = [Sample(labels(model=model, result=result), n) for (model, result), n in sorted(counts.items())]
    yield Family("steelyard_probes_total", "counter", "probes of replicas, by result", probes)
    probed = [(labels(model=view.model, replica=view.id), view.probe) for view in replicas if view.probe is not None]
    last = [Sample(f'{of},result="{probe.result}"', 1) for of, probe in probed]
    yield Family("steelyard_replica_probe_result", "gauge", "1, with the result of the last probe as a label", last)
    took = [Sample(of, probe.seconds if probe.age is not None else None) for of, probe in probed]
    yield Family("steelyard_replica_probe_duration_seconds", "gauge", "how long the last probe took", took)
    restarts = [Sample(of, probe.restarts) for of, probe in probed]
    yield Family("steelyard_replica_restarts_total", "counter", "restarts of its server that were seen", restarts)
