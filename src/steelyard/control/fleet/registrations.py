"""Replicas that registered themselves. Without a lease, a replica drains, and leaves once nothing runs there, unless it
registers again or another source names it."""

from __future__ import annotations

import logging

from ...core.replica import Event, State
from ..discovery.leases import LeaseChange, ReplicaLeases
from ..observability.event_log import EventLog
from .health import FleetHealth
from .members import FleetMembers
from .registry import REGISTERED, ReplicaKey
from .worker_sync import WorkerSync

SUPERVISOR_STALL_SECONDS = 3.0  # between two ticks: the supervisor itself stalled, so leases are extended
MAX_REPORT_AGE_SECONDS = 1.8  # after a drain, reports older than this may not know of it yet


class Registrations:
    def __init__(self, members: FleetMembers, health: FleetHealth, sync: WorkerSync, events: EventLog) -> None:
        self.leases = ReplicaLeases()
        self._members = members
        self._health = health
        self._sync = sync
        self._events = events
        self._leaving: set[ReplicaKey] = set()  # drained because of their leases
        self._ticked: float | None = None

    def leases_changed(self, model: str, *, at_once: bool = False) -> None:
        if model in self._members.config.models:
            replicas = (lease.replica for lease in self.leases.replicas(model))
            self._members.registry.set_source(REGISTERED, model, replicas)
            self._members.refresh(model, at_once=at_once)

    def registered(self, key: ReplicaKey, change: LeaseChange) -> None:
        if change is LeaseChange.RENEWED:
            return
        self.leases_changed(key[0])
        status = self._health.statuses.get(key)
        if status is None or key in self._health.drained:
            return
        if status.state is State.DRAINING:  # it was leaving, and is back
            self._health.transition(key, Event.UNDRAIN, "registered again")
        elif change is LeaseChange.RESTARTED:
            self._health.restarted(key)

    def replica_added(self, key: ReplicaKey) -> str:
        """Why a replica that has just become a member must drain; empty: it need not."""
        if not self.has_lapsed(key):
            return ""
        self._leaving.add(key)
        return "its lease ran out"

    def drain(self, key: ReplicaKey, reason: str) -> None:
        self._leaving.add(key)
        self._health.transition(key, Event.DRAIN, reason)

    def remove(self, key: ReplicaKey) -> None:
        self.leases.forget(key)
        self.leases_changed(key[0], at_once=True)

    def prune_models(self) -> None:
        models = self._members.registry.config.models
        for lease in [lease for lease in self.leases if lease.model not in models]:
            self.leases.forget(lease.key)

    def tick(self, now: float) -> None:
        if self._ticked is not None and now - self._ticked > SUPERVISOR_STALL_SECONDS:
            self.leases.extend_expiring(now - self._ticked, now)
        self._ticked = now
        for key in self.leases.expired(now):
            if self._is_registered(key):
                what = "not renewed: it drains"
                self._events.record("lease", what, model=key[0], replica=key[1], level=logging.WARNING)
                self.drain(key, "its lease ran out")
        if lapsed := [lease.key for lease in self.leases if lease.lapsed]:
            self._forget(lapsed, now)
        for key in list(self._leaving):
            self._undrain_if_named(key)

    def _undrain_if_named(self, key: ReplicaKey) -> None:
        status = self._health.statuses.get(key)
        if status is None or status.state is not State.DRAINING or key in self._health.drained:
            self._leaving.discard(key)
        elif self._members.registry.find(*key) is not None and not self.has_lapsed(key):
            self._leaving.discard(key)
            self._health.transition(key, Event.UNDRAIN, "named again")

    def _forget(self, lapsed: list[ReplicaKey], now: float) -> None:
        """Where nothing runs any more, and where another source names the replica by now."""
        busy = self._sync.in_flight()
        over = []
        for key in lapsed:
            status = self._health.statuses.get(key)
            done = status is None or (key not in busy and now - status.since > MAX_REPORT_AGE_SECONDS)
            if done or not self._is_registered(key):
                over.append(key)
        for key in over:
            self.leases.forget(key)
        for model in {model for model, _ in over}:
            self.leases_changed(model)

    def _is_registered(self, key: ReplicaKey) -> bool:
        member = self._members.registry.find(*key)
        return member is not None and member.source == REGISTERED

    def has_lapsed(self, key: ReplicaKey) -> bool:
        """It is a member by its lease alone, and that ran out."""
        lease = self.leases.lease(key)
        return lease is not None and lease.lapsed and self._is_registered(key)
