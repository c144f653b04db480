"""Applies what the supervisor says of replicas: probe results, operators' requests, load readings."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ...core.decision import Decision
from ...core.errors import SteelyardError
from ...core.replica import Event
from ...link.messages import LoadReading, ReplicaEvent, StartProgress
from ..proxy.dispatch_hooks import Driver


def apply_replica_events(driver: Driver, changes: Sequence[ReplicaEvent], now: float) -> None:
    for change in changes:
        with suppress(SteelyardError):  # it was removed meanwhile, or is to be undrained and does not drain
            _apply_event(driver, change, now)


def _apply_event(driver: Driver, change: ReplicaEvent, now: float) -> None:
    balancer = driver.balancer
    event = Event(change.event)
    if event is Event.EJECT:
        balancer.eject(change.id, change.seconds, change.model, now=now, reason=change.reason)
        return
    replica = balancer.pool(change.model).find(change.id)
    driver.execute(balancer.report(change.id, event, change.model, now=now), now)
    if event in (Event.LOST, Event.LIVE):
        driver.memory.replica_gone(replica, now)
    if event is Event.LOST:
        driver.fail_over(replica, now)


def apply_load_readings(driver: Driver, readings: Sequence[LoadReading], now: float) -> None:
    decisions: list[Decision] = []
    for reading in readings:
        with suppress(SteelyardError):  # removed meanwhile
            if reading.kv_tokens:
                driver.balancer.report_kv_tokens(reading.id, reading.kv_tokens, reading.model, now=now)
            decisions += driver.balancer.report_engine_load(
                reading.id, reading.requests, reading.model, now=now, lasting=reading.ttl
            )
    driver.execute(decisions, now)


def apply_start_progress(driver: Driver, message: StartProgress, now: float) -> None:
    balancer = driver.balancer
    if message.model in balancer.models:  # else it was removed meanwhile
        decisions = balancer.expect_replica(
            message.model, message.seconds, message.is_default, message.failure, now=now
        )
        driver.execute(decisions, now)
