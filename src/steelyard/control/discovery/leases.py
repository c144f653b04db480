"""Leases of replicas that registered themselves. One that is not renewed lapses: the replica drains and leaves."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from heapq import heapify, heappop, heappush
from math import isfinite
from typing import NamedTuple

from ...config import ReplicaConfig
from ...core.errors import OptionError, SteelyardError
from ..fleet.registry import ReplicaKey

MAX_LEASES = 10_000


class TooManyLeasesError(SteelyardError):
    reason = "too_many_leases"


class LeaseChange(Enum):
    NEW = "new"
    RENEWED = "renewed"  # nothing but its time
    CHANGED = "changed"  # the same process, with another address, weight, zone …
    RESTARTED = "restarted"  # another process under the same id
    RETURNED = "returned"  # as it was before it lapsed or left


class Lease(NamedTuple):
    model: str
    replica: ReplicaConfig
    instance: str
    until: float
    lapsed: bool = False  # it ran out, or the replica left: no new requests

    @property
    def key(self) -> ReplicaKey:
        return self.model, self.replica.name


class ReplicaLeases:
    """Pure: the caller drains and removes what this names."""

    def __init__(self, most: int = MAX_LEASES) -> None:
        self._most = most
        self._models: dict[str, dict[str, Lease]] = {}
        self._count = 0
        self.expirations: list[tuple[float, ReplicaKey]] = []  # a heap, with those of renewed leases

    def announce(self, model: str, replica: ReplicaConfig, seconds: float, instance: str, now: float) -> LeaseChange:
        """Raises TooManyLeasesError or OptionError."""
        if not (seconds > 0 and isfinite(seconds)):
            raise OptionError(f"seconds: a lease holds for more than 0 seconds, not {seconds}")
        before = self.lease((model, replica.name))
        if before is None:
            if self._count >= self._most:
                what = f"there are {self._count:,} registered replicas already, and no more are taken"
                raise TooManyLeasesError(what)
            self._count += 1
        lease = Lease(model, replica, instance, now + seconds)
        self._keep(lease)
        return _change(before, lease)

    def withdraw(self, model: str, id: str, instance: str) -> bool:
        """It leaves, and counts as lapsed. False: no such lease of this instance; empty: any instance."""
        lease = self.lease((model, id))
        if lease is None or (instance and instance != lease.instance):
            return False
        self._models[model][id] = lease._replace(lapsed=True)
        return True

    def expired(self, now: float) -> list[ReplicaKey]:
        found = []
        while (end := self.next_expiry()) is not None and end <= now:
            _, key = heappop(self.expirations)
            model, id = key
            self._models[model][id] = self._models[model][id]._replace(lapsed=True)
            found.append(key)
        return found

    def next_expiry(self) -> float | None:
        """When the next lease lapses; None: none will."""
        while self.expirations and not self._stands(*self.expirations[0]):
            heappop(self.expirations)
        return self.expirations[0][0] if self.expirations else None

    def extend_expiring(self, seconds: float, now: float) -> None:
        """For those that would lapse now: the supervisor stalled, and could not be reached."""
        for leases in self._models.values():
            for id, lease in leases.items():
                if lease.until <= now and not lease.lapsed:
                    leases[id] = lease._replace(until=lease.until + seconds)
        self._rebuild()

    def forget(self, key: ReplicaKey) -> None:
        model, id = key
        if self._models.get(model, {}).pop(id, None) is not None:
            self._count -= 1
            if not self._models[model]:
                del self._models[model]

    def lease(self, key: ReplicaKey) -> Lease | None:
        return self._models.get(key[0], {}).get(key[1])

    def seconds_left(self, key: ReplicaKey, now: float) -> float | None:
        """Seconds; 0: it lapsed. None: no such lease."""
        lease = self.lease(key)
        if lease is None:
            return None
        return 0.0 if lease.lapsed else max(0.0, lease.until - now)

    def replicas(self, model: str) -> tuple[Lease, ...]:
        return tuple(self._models.get(model, {}).values())

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Lease]:
        return (lease for leases in self._models.values() for lease in leases.values())

    def _keep(self, lease: Lease) -> None:
        self._models.setdefault(lease.model, {})[lease.replica.name] = lease
        heappush(self.expirations, (lease.until, lease.key))
        if len(self.expirations) > 2 * self._count + 100:  # mostly of renewed leases
            self._rebuild()

    def _rebuild(self) -> None:
        self.expirations = [(lease.until, lease.key) for lease in self if not lease.lapsed]
        heapify(self.expirations)

    def _stands(self, until: float, key: ReplicaKey) -> bool:
        lease = self.lease(key)
        return lease is not None and not lease.lapsed and lease.until == until


def _change(before: Lease | None, lease: Lease) -> LeaseChange:
    if before is None:
        return LeaseChange.NEW
    if before.instance != lease.instance:
        return LeaseChange.RESTARTED
    if before.replica != lease.replica:
        return LeaseChange.CHANGED
    return LeaseChange.RETURNED if before.lapsed else LeaseChange.RENEWED
