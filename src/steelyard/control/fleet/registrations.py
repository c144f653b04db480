"""Replicas that are here by a lease: they come when they announce themselves, and leave when they no longer do."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...core.replica import Event, State
from ..discovery.leases import LeaseChange, Leases
from .registry import REGISTERED, ReplicaKey

if TYPE_CHECKING:
    from .fleet import Fleet

SUPERVISOR_STALL_SECONDS = 3.0  # seconds between two ticks: it was us who did not listen
MAX_REPORT_AGE_SECONDS = 1.8  # seconds after which reports are newer than a drain


class Registrations:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.leases = Leases()
        self._leaving: set[ReplicaKey] = set()  # drained because of their leases
        self._ticked: float | None = None

    def leases_changed(self, model: str, *, at_once: bool = False) -> None:
        """Leases of this model came or went."""
        fleet = self._fleet
        if model in fleet.config.models:
            fleet.registry.set_source(REGISTERED, model, (lease.replica for lease in self.leases.replicas(model)))
            fleet.refresh(model, at_once=at_once)

    def registered(self, key: ReplicaKey, news: LeaseChange) -> None:
        """A replica registered or renewed its lease."""
        if news is LeaseChange.RENEWED:
            return  # the usual case, again and again: nothing changes
        self.leases_changed(key[0])
        fleet = self._fleet
        standing = fleet.statuses.get(key)
        if standing is None or key in fleet.drained:
            return
        if standing.state is State.DRAINING:  # it was on its way out, and is back
            fleet.transition(key, Event.UNDRAIN, "registered again")
        elif news is LeaseChange.RESTARTED:
            fleet.restarted(key)

    def drain(self, key: ReplicaKey, why: str) -> None:
        """Its lease ran out or was given back: it finishes what it has."""
        self._leaving.add(key)
        self._fleet.transition(key, Event.DRAIN, why)

    def remove(self, key: ReplicaKey) -> None:
        """At once, whatever its lease says."""
        self.leases.forget(key)
        self.leases_changed(key[0], at_once=True)

    def prune_models(self) -> None:
        """The leases of models that are no more."""
        for lease in [lease for lease in self.leases if lease.model not in self._fleet.registry.config.models]:
            self.leases.forget(lease.key)

    def tick(self, now: float) -> None:
        """What time alone brings about."""
        if self._ticked is not None and now - self._ticked > SUPERVISOR_STALL_SECONDS:
            self.leases.extend_expiring(now - self._ticked, now)
        self._ticked = now
        for key in self.leases.expired(now):
            if self._is_registered(key):
                what = "not renewed: it drains"
                self._fleet.events.record("lease", what, model=key[0], replica=key[1], level=logging.WARNING)
                self.drain(key, "its lease ran out")
        if lapsed := [lease.key for lease in self.leases if lease.lapsed]:
            self._forget(lapsed, now)
        for key in list(self._leaving):
            self._undrain_if_named(key)

    def _undrain_if_named(self, key: ReplicaKey) -> None:
        """One that was leaving, and is named again, by a lease or by another source."""
        fleet = self._fleet
        standing = fleet.statuses.get(key)
        if standing is None or standing.state is not State.DRAINING or key in fleet.drained:
            self._leaving.discard(key)
        elif fleet.registry.find(*key) is not None and not self.has_lapsed(key):
            self._leaving.discard(key)
            fleet.transition(key, Event.UNDRAIN, "named again")

    def _forget(self, lapsed: list[ReplicaKey], now: float) -> None:
        """Those where nothing runs any more, and those that another source names by now."""
        running = self._fleet.busy_replicas()
        over = []
        for key in lapsed:
            standing = self._fleet.statuses.get(key)
            done = standing is None or (key not in running and now - standing.since > MAX_REPORT_AGE_SECONDS)
            if done or not self._is_registered(key):
                over.append(key)
        for key in over:
            self.leases.forget(key)
        for model in {model for model, _ in over}:
            self.leases_changed(model)

    def _is_registered(self, key: ReplicaKey) -> bool:
        member = self._fleet.registry.find(*key)
        return member is not None and member.source == REGISTERED

    def has_lapsed(self, key: ReplicaKey) -> bool:
        """Is it here by a lease alone, and that ran out?"""
        lease = self.leases.lease(key)
        return lease is not None and lease.lapsed and self._is_registered(key)
