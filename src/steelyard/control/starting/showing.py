"""Started replicas and their troubles, for whoever looks."""

from __future__ import annotations

from typing import NamedTuple

from ..views import Alarm, InstanceView, StartSetbackView
from .flock import Flock
from .life import Phase
from .started import Started

_SHOWN = {Phase.ORDERED: "starting", Phase.STARTING: "starting", Phase.READY: "ready"}


class Count(NamedTuple):
    """A model's started replicas."""

    ready: int = 0
    starting: int = 0
    leaving: int = 0


class Kept(NamedTuple):
    """For whoever looks."""

    instances: tuple[InstanceView, ...] = ()
    setback: StartSetbackView | None = None
    replica_seconds: float = 0.0
    cost: float = 0.0  # replica-hours × price of the device, where it has one, else of the model
    starts: int = 0
    stops: int = 0
    crashes: int = 0


def count(flock: Flock) -> Count:
    """Those that an operator drains count as leaving."""
    phases = [_phase(replica) for replica in flock.replicas.values()]
    return Count(phases.count("ready"), phases.count("starting"), phases.count("leaving"))


def kept(flock: Flock, now: float) -> Kept:
    flock.pay(now)
    account = flock.account
    return Kept(
        instances=tuple(_instance(flock, replica, now) for replica in flock.replicas.values()),
        setback=_setback(flock, now),
        replica_seconds=account.seconds,
        cost=account.cost,
        starts=account.starts,
        stops=account.stops,
        crashes=account.crashes,
    )


def alarms(flock: Flock, now: float) -> list[Alarm]:
    found, setbacks, model = [], flock.troubles.setbacks, flock.model
    if flock.troubles.shortage.why:
        what = f"no replica of {model} can be started: {flock.troubles.shortage.why}"
        found.append(Alarm(code="no_room", what=what, age=now - flock.troubles.shortage.since, model=model))
    tries = flock.missing or any(replica.coming for replica in flock.replicas.values())
    trouble = setbacks.trouble
    if trouble is not None and tries and (setbacks.looping or trouble.reason == "never_ready"):
        code = "never_ready" if trouble.reason == "never_ready" else "crash_loop"
        times = f"{setbacks.row} times in a row" if setbacks.row > 1 else "once"
        said = f": {trouble.last_words[-1]}" if trouble.last_words else ""
        what = f"replicas of {model} fail ({times}): {trouble.why}{said}"
        found.append(Alarm(code=code, what=what, age=now - setbacks.since, model=model))
    return found


def _phase(replica: Started) -> str:
    return _SHOWN.get(replica.phase, "leaving")


def _instance(flock: Flock, replica: Started, now: float) -> InstanceView:
    instance = replica.instance
    return InstanceView(
        model=flock.model,
        replica=replica.id,
        url=instance.url,
        device=instance.device,
        phase=_phase(replica),
        seconds=now - replica.began,
        where=instance.where,
        log=instance.log,
        adopted=replica.adopted,
        outdated=flock.outdated(replica),
    )


def _setback(flock: Flock, now: float) -> StartSetbackView | None:
    setbacks, shortage = flock.troubles.setbacks, flock.troubles.shortage
    if shortage.why:
        return StartSetbackView(
            replica="",
            reason="no_room",
            why=shortage.why,
            last_words=(),
            times=1,
            age=now - shortage.since,
            again_in=0.0,
            looping=False,
        )
    trouble = setbacks.trouble
    if trouble is None:
        return None
    return StartSetbackView(
        replica=trouble.replica,
        reason=trouble.reason,
        why=trouble.why,
        last_words=trouble.last_words,
        times=max(1, setbacks.row),
        age=now - setbacks.at,
        again_in=setbacks.again_in(now),
        looping=setbacks.looping,
    )
