"""Replicas: their state, their requests, and what probes see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...fleet.registry import ReplicaKey
from ...observability.totals import ReplicaTotals
from ...observability.views import ReplicaView
from .exposition import Family, Sample, attribute_families, labels
from .models import TOKEN_KINDS

_OF_VIEW = (
    ("steelyard_replica_state_seconds", "gauge", "time in its current state", "state_age"),
    ("steelyard_replica_requests_in_flight", "gauge", "requests in flight there", "in_flight"),
    ("steelyard_replica_work_seconds", "gauge", "estimated work in flight there", "work"),
    ("steelyard_replica_slowness_ratio", "gauge", "its time for a request, relative to a typical replica", "slowness"),
    ("steelyard_replica_weight", "gauge", "its share of requests, as set", "weight"),
    ("steelyard_replica_requests_total", "counter", "requests sent to it", "dispatched"),
    ("steelyard_replica_failures_total", "counter", "requests sent to it that failed", "failures"),
)
_TOKEN_COUNTS = (
    ("steelyard_replica_streams_total", "answers that streamed tokens", "answers"),
    ("steelyard_replica_further_tokens_total", "tokens of these after the first of each", "further"),
)
_TOKEN_SECONDS = (
    ("steelyard_replica_first_token_seconds_total", "time to the first token of these", "first_token"),
    ("steelyard_replica_further_token_seconds_total", "time from the first to the last", "further"),
)
_OF_TOTALS = (("steelyard_replica_ejections_total", "counter", "ejections of the replica", "ejections_total"),)


def replica_families(replicas: tuple[ReplicaView, ...], totals: Mapping[ReplicaKey, ReplicaTotals]) -> Iterator[Family]:
    shown = [(labels(model=view.model, replica=view.id), view) for view in replicas]
    states = [Sample(f'{of},state="{view.state}"', 1) for of, view in shown]
    yield Family("steelyard_replica_state", "gauge", "1, with the state as a label", states)
    yield from attribute_families(_OF_VIEW, shown)
    known = [(of, totals[key]) for of, view in shown if (key := (view.model, view.id)) in totals]
    yield from attribute_families(_OF_TOTALS, known)
    attempts = [
        Sample(f'{of},outcome="{outcome}"', count)
        for of, status in known
        for outcome, count in sorted(status.outcomes.items())
    ]
    yield Family("steelyard_replica_attempts_total", "counter", "attempts that ended there, by outcome", attempts)
    yield from _tokens(known)
    failed = [
        Sample(of, view.recent.failed / view.recent.attempts if view.recent.attempts else None) for of, view in shown
    ]
    yield Family("steelyard_replica_failure_ratio", "gauge", "share of the last minute's attempts that failed", failed)


def _tokens(known: list[tuple[str, ReplicaTotals]]) -> Iterator[Family]:
    tokens = [
        Sample(f'{of},kind="{kind}"', count)
        for of, totals in known
        for kind, count in totals.tokens.items()
        if kind in TOKEN_KINDS
    ]
    yield Family("steelyard_replica_tokens_total", "counter", "tokens of its prompts and answers", tokens)
    streams = [(of, totals) for of, totals in known if totals.token_seconds]
    for name, meaning, count in _TOKEN_COUNTS:
        yield Family(name, "counter", meaning, [Sample(of, totals.tokens[count]) for of, totals in streams])
    for name, meaning, part in _TOKEN_SECONDS:
        yield Family(name, "counter", meaning, [Sample(of, totals.token_seconds[part]) for of, totals in streams])


def probe_families(replicas: tuple[ReplicaView, ...], counts: Mapping[tuple[str, str], int]) -> Iterator[Family]:
    probes = [Sample(labels(model=model, result=result), n) for (model, result), n in sorted(counts.items())]
    yield Family("steelyard_probes_total", "counter", "probes of replicas, by result", probes)
    probed = [(labels(model=view.model, replica=view.id), view.probe) for view in replicas if view.probe is not None]
    last = [Sample(f'{of},result="{probe.result}"', 1) for of, probe in probed]
    yield Family("steelyard_replica_probe_result", "gauge", "1, with the result of the last probe as a label", last)
    took = [Sample(of, probe.seconds if probe.age is not None else None) for of, probe in probed]
    yield Family("steelyard_replica_probe_duration_seconds", "gauge", "duration of the last probe", took)
    restarts = [Sample(of, probe.restarts) for of, probe in probed]
    yield Family("steelyard_replica_restarts_total", "counter", "observed restarts of its server", restarts)
