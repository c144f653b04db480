"""Plans the steps from the replicas there are to those there should be. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ...core.scaling.scale_down import ScaleDownCandidate, choose_removals
from ...units import format_seconds
from ..fleet.observer import ReplicaLoad
from .lifecycle import ReplicaPhase
from .managed_replica import HUNG_AFTER_SECONDS, ManagedReplica

if TYPE_CHECKING:
    from .replica_set import ReplicaSet

OUTDATED_REASON = "its settings are no longer in force"


class ReconcilePlan(NamedTuple):
    terminate: tuple[tuple[ManagedReplica, str], ...] = ()  # and why
    undrain: tuple[ManagedReplica, ...] = ()  # draining, and needed after all
    starts: int = 0
    missing: int = 0  # whether or not they may start now


def plan_reconcile(replica_set: ReplicaSet, now: float) -> ReconcilePlan:
    """Rolling update: an outdated replica serves until its successor is ready; at most one more than wanted runs."""
    wanted, outdated, backoff = replica_set.desired or 0, replica_set.outdated, replica_set.failures.backoff
    known = list(replica_set.replicas.values())
    useless = [
        r for r in known if outdated(r) and (r.phase is ReplicaPhase.CORDONED or (r.is_starting and not r.adopted))
    ]
    alive = [r for r in known if r.alive and r not in useless]
    old = [r for r in alive if outdated(r)] if wanted else []
    coming = [r for r in alive if r.phase is not ReplicaPhase.READY and not outdated(r)]
    allowed = wanted + (1 if old and (coming or backoff.consecutive_failures) else 0)
    leave = [(r, OUTDATED_REASON) for r in useless]
    if len(alive) > allowed:
        return ReconcilePlan(terminate=(*leave, *_surplus(replica_set, alive, len(alive) - allowed, now)))
    missing = wanted - len(alive)
    back = [r for r in known if r.phase is ReplicaPhase.DRAINING and r.drained_ready and r.member and not outdated(r)]
    back = sorted(back, key=lambda r: -r.since)[: max(0, missing)]
    missing = max(0, missing - len(back))
    if old and not coming and len(alive) == wanted:
        missing = 1
    since = sum(1 for r in alive if r.phase is ReplicaPhase.READY and r.since >= backoff.at)
    trying = sum(1 for r in alive if r.is_starting and not r.adopted)
    return ReconcilePlan(tuple(leave), tuple(back), backoff.starts(missing, trying, since, now), missing)


def _surplus(
    replica_set: ReplicaSet, alive: list[ManagedReplica], count: int, now: float
) -> list[tuple[ManagedReplica, str]]:
    """The least valuable; ready ones only while more than wanted are ready."""
    loads = replica_set.loads()
    candidates = {r.id: _candidate(replica_set, r, loads.get(r.id, ReplicaLoad()), now) for r in alive}
    left, chosen = list(alive), []
    for _ in range(count):
        ready = [r for r in left if r.phase is ReplicaPhase.READY]
        pool = left if len(ready) > (replica_set.desired or 0) else [r for r in left if r not in ready] or left
        (id, reason), *_ = choose_removals((candidates[r.id] for r in pool), 1)
        gone = next(r for r in pool if r.id == id)
        left.remove(gone)
        chosen.append((gone, reason))
    return chosen


def _candidate(replica_set: ReplicaSet, replica: ManagedReplica, load: ReplicaLoad, now: float) -> ScaleDownCandidate:
    return ScaleDownCandidate(
        id=replica.id,
        outdated=replica_set.outdated(replica),
        ready=replica.phase is ReplicaPhase.READY,
        in_rotation=not load.ejected and (replica.is_starting or replica.phase is ReplicaPhase.READY),
        slowness=load.slowness,
        age=now - replica.began,
        cache=load.cache,
        cost=replica_set.price(replica),
        in_flight=load.in_flight,
    )


def hung_or_overdue(
    replicas: Iterable[ManagedReplica], timeout: float, missing: int, now: float
) -> list[tuple[ManagedReplica, str]]:
    """Replicas to give up, and why. Only one hung replica at a time, and only while none is missing or starting: if the
    network is down or the machine is busy, not all must go."""
    known = list(replicas)
    found = [
        (r, f"it was not ready{' again' if r.was_ready else ''} within {format_seconds(timeout)}")
        for r in known
        if r.is_overdue(now, timeout)
    ]
    if not found and not missing and not any(r.is_starting for r in known):
        hung = [r for r in known if r.is_hung(now)]
        found = [(r, f"it was ready, and has not answered for {HUNG_AFTER_SECONDS:g} s") for r in hung[:1]]
    return found
