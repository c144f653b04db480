"""Replicas that are here by a lease: they come when they announce themselves, and leave when they no longer do."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..core.replica import Event, State
from .discovery.leases import Leases, News
from .roster import REGISTERED, Key

if TYPE_CHECKING:
    from .fleet import Fleet

STOOD_STILL = 3.0  # seconds between two ticks: it was us who did not listen
REPORTED = 1.8  # seconds after which reports are newer than a drain


class Registrations:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.leases = Leases()
        self._leaving: set[Key] = set()  # drained because of their leases
        self._ticked: float | None = None

    def changed(self, model: str, *, at_once: bool = False) -> None:
        """Leases of this model came or went."""
        fleet = self._fleet
        if model in fleet.config.models:
            fleet.roster.tell(REGISTERED, model, (lease.replica for lease in self.leases.replicas(model)))
            fleet.refresh(model, at_once=at_once)

    def announced(self, key: Key, news: News) -> None:
        """A replica registered or renewed its lease."""
        if news is News.RENEWED:
            return  # the usual case, again and again: nothing changes
        self.changed(key[0])
        fleet = self._fleet
        standing = fleet.standings.get(key)
        if standing is None or key in fleet.drained:
            return
        if standing.state is State.DRAINING:  # it was on its way out, and is back
            fleet.move(key, Event.UNDRAIN, "registered again")
        elif news is News.RESTARTED:
            fleet.restarted(key)

    def leaves(self, key: Key, why: str) -> None:
        """Its lease ran out or was given back: it finishes what it has."""
        self._leaving.add(key)
        self._fleet.move(key, Event.DRAIN, why)

    def remove(self, key: Key) -> None:
        """At once, whatever its lease says."""
        self.leases.forget(key)
        self.changed(key[0], at_once=True)

    def forget_models(self) -> None:
        """The leases of models that are no more."""
        for lease in [lease for lease in self.leases if lease.model not in self._fleet.roster.config.models]:
            self.leases.forget(lease.key)

    def tick(self, now: float) -> None:
        """What time alone brings about."""
        if self._ticked is not None and now - self._ticked > STOOD_STILL:
            self.leases.put_off(now - self._ticked, now)
        self._ticked = now
        for key in self.leases.expired(now):
            if self._is_registered(key):
                what = "not renewed: it drains"
                self._fleet.chronicle.note("lease", what, model=key[0], replica=key[1], level=logging.WARNING)
                self.leaves(key, "its lease ran out")
        if lapsed := [lease.key for lease in self.leases if lease.lapsed]:
            self._forget(lapsed, now)
        for key in list(self._leaving):
            self._stay_after_all(key)

    def _stay_after_all(self, key: Key) -> None:
        """One that was leaving, and is named again, by a lease or by another source."""
        fleet = self._fleet
        standing = fleet.standings.get(key)
        if standing is None or standing.state is not State.DRAINING or key in fleet.drained:
            self._leaving.discard(key)
        elif fleet.roster.find(*key) is not None and not self.has_lapsed(key):
            self._leaving.discard(key)
            fleet.move(key, Event.UNDRAIN, "named again")

    def _forget(self, lapsed: list[Key], now: float) -> None:
        """Those where nothing runs any more, and those that another source names by now."""
        running = self._fleet.running()
        over = []
        for key in lapsed:
            standing = self._fleet.standings.get(key)
            done = standing is None or (key not in running and now - standing.since > REPORTED)
            if done or not self._is_registered(key):
                over.append(key)
        for key in over:
            self.leases.forget(key)
        for model in {model for model, _ in over}:
            self.changed(model)

    def _is_registered(self, key: Key) -> bool:
        member = self._fleet.roster.find(*key)
        return member is not None and member.source == REGISTERED

    def has_lapsed(self, key: Key) -> bool:
        """Is it here by a lease alone, and that ran out?"""
        lease = self.leases.lease(key)
        return lease is not None and lease.lapsed and self._is_registered(key)
