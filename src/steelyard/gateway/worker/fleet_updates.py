"""Applies what the supervisor says of replicas: probe results, operators' requests, load readings."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ...core.decision import Decision
from ...core.errors import SteelyardError
from ...core.replica import Event
from ...link.messages import LoadReading, ReplicaEvent
from ..proxy.proxy import Proxy


def apply_replica_events(proxy: Proxy, changes: Sequence[ReplicaEvent], now: float) -> None:
    for change in changes:
        with suppress(SteelyardError):  # it was removed meanwhile, or is to be undrained and does not drain
            _apply_event(proxy, change, now)


def _apply_event(proxy: Proxy, change: ReplicaEvent, now: float) -> None:
    balancer = proxy.balancer
    event = Event(change.event)
    if event is Event.EJECT:
        balancer.eject(change.id, change.seconds, change.model, now=now, reason=change.reason)
        return
    if event is Event.RESTORE:
        proxy.dispatcher.execute(balancer.restore(change.id, change.model, now=now), now)
        return
    replica = balancer.pool(change.model).find(change.id)
    proxy.dispatcher.execute(balancer.report(change.id, event, change.model, now=now), now)
    if event in (Event.LOST, Event.LIVE):
        proxy.dispatcher.memory.replica_gone(replica, now)
    if event is Event.LOST:
        proxy.dispatcher.fail_over(replica, now)


def apply_load_readings(proxy: Proxy, readings: Sequence[LoadReading], now: float) -> None:
    decisions: list[Decision] = []
    for reading in readings:
        with suppress(SteelyardError):  # removed meanwhile
            decisions += proxy.balancer.report_engine_load(
                reading.id, reading.requests, reading.model, now=now, lasting=reading.ttl
            )
    proxy.dispatcher.execute(decisions, now)
