"""How to come from the replicas there are to those there should be. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ...core.leaving import Candidate, leavers
from .hands import Worth
from .life import Phase
from .setbacks import Setbacks
from .started import Started

OUTDATED = "its settings are no longer in force"


class Plan(NamedTuple):
    leave: tuple[tuple[Started, str], ...] = ()  # and why
    back: tuple[Started, ...] = ()  # on their way out, and needed after all
    starts: int = 0  # new ones
    missing: int = 0  # that there should be, whether they may be started now or not


def plan(
    wanted: int,
    replicas: Iterable[Started],
    outdated: Callable[[Started], bool],
    setbacks: Setbacks,
    choose: Callable[[list[Started], int], list[tuple[Started, str]]],
    now: float,
) -> Plan:
    """Replicas with other settings serve on until a new one is ready for each: one more than wanted is the most."""
    known = list(replicas)
    hopeless = [r for r in known if outdated(r) and (r.phase is Phase.ASIDE or (r.coming and not r.adopted))]
    alive = [r for r in known if r.alive and r not in hopeless]
    old = [r for r in alive if outdated(r)] if wanted else []
    coming = [r for r in alive if r.phase is not Phase.READY and not outdated(r)]
    allowed = wanted + (1 if old and (coming or setbacks.row) else 0)
    leave = [(r, OUTDATED) for r in hopeless]
    if len(alive) > allowed:
        return Plan(leave=(*leave, *choose(alive, len(alive) - allowed)))
    missing = wanted - len(alive)
    back = [r for r in known if r.phase is Phase.DRAINING and r.drained_ready and r.member and not outdated(r)]
    back = sorted(back, key=lambda r: -r.since)[: max(0, missing)]
    missing = max(0, missing - len(back))
    if old and not coming and len(alive) == wanted:
        missing = 1
    since = sum(1 for r in alive if r.phase is Phase.READY and r.since >= setbacks.at)
    trying = sum(1 for r in alive if r.coming and not r.adopted)
    return Plan(tuple(leave), tuple(back), setbacks.starts(missing, trying, since, now), missing)


def least_valuable(
    wanted: int,
    worths: Callable[[], Mapping[str, Worth]],
    outdated: Callable[[Started], bool],
    price: Callable[[Started], float],
    now: float,
) -> Callable[[list[Started], int], list[tuple[Started, str]]]:
    """Who goes when there are too many. No ready one, as long as there are no more of those than wanted."""

    def choose(alive: list[Started], count: int) -> list[tuple[Started, str]]:
        seen = worths()  # only now: to ask is not for nothing
        left, chosen = list(alive), []
        for _ in range(count):
            ready = [r for r in left if r.phase is Phase.READY]
            pool = left if len(ready) > wanted else [r for r in left if r not in ready] or left
            (id, why), *_ = leavers((candidate(r, seen.get(r.id, Worth())) for r in pool), 1)
            gone = next(r for r in pool if r.id == id)
            left.remove(gone)
            chosen.append((gone, why))
        return chosen

    def candidate(replica: Started, worth: Worth) -> Candidate:
        return Candidate(
            id=replica.id,
            outdated=outdated(replica),
            ready=replica.phase is Phase.READY,
            useful=not worth.ejected and (replica.coming or replica.phase is Phase.READY),
            slowness=worth.slowness,
            age=now - replica.began,
            cache=worth.cache,
            cost=price(replica),
            in_flight=worth.in_flight,
        )

    return choose
