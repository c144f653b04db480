"""What the supervisor says of replicas, put into force: what probes saw, what operators want, what replicas say."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..core.decision import Decision
from ..core.errors import SteelyardError
from ..core.replica import Event
from ..link.messages import Change, Reading
from .carrier import Carrier


def take_in_changes(carrier: Carrier, changes: Sequence[Change], now: float) -> None:
    for change in changes:
        with suppress(SteelyardError):  # it was removed meanwhile, or is to be undrained and does not drain
            _take_in(carrier, change, now)


def _take_in(carrier: Carrier, change: Change, now: float) -> None:
    balancer = carrier.balancer
    event = Event(change.event)
    if event is Event.EJECT:
        balancer.eject(change.id, change.seconds, change.model, now=now, reason=change.reason)
        return
    if event is Event.RESTORE:
        carrier.carry_out(balancer.restore(change.id, change.model, now=now), now)
        return
    replica = balancer.pool(change.model).find(change.id)
    carrier.carry_out(balancer.report(change.id, event, change.model, now=now), now)
    if event in (Event.LOST, Event.LIVE) and carrier.memory is not None:
        carrier.memory.gone(replica, now)
    if event is Event.LOST:
        carrier.fail_over(replica)


def take_in_readings(carrier: Carrier, readings: Sequence[Reading], now: float) -> None:
    decisions: list[Decision] = []
    for reading in readings:
        with suppress(SteelyardError):  # removed meanwhile
            decisions += carrier.balancer.report_engine(
                reading.id, reading.requests, reading.model, now=now, lasting=reading.lasting
            )
    carrier.carry_out(decisions, now)
