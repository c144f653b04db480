"""Views and alarms of managed replicas."""

from __future__ import annotations

from typing import NamedTuple

from ..observability.views import Alarm, InstanceView, StartFailureView
from .failures import CrashBackoff, StartFailure
from .lifecycle import ReplicaPhase
from .managed_replica import ManagedReplica
from .replica_set import ReplicaSet

_SHOWN_PHASES = {ReplicaPhase.REQUESTED: "starting", ReplicaPhase.STARTING: "starting", ReplicaPhase.READY: "ready"}


class ReplicaCounts(NamedTuple):
    ready: int = 0
    starting: int = 0
    terminating: int = 0


class ReplicaSetSummary(NamedTuple):
    instances: tuple[InstanceView, ...] = ()
    start_failure: StartFailureView | None = None
    replica_seconds: float = 0.0
    cost: float = 0.0  # replica-hours × price of the device, where it has one, else of the model
    starts: int = 0
    stops: int = 0
    crashes: int = 0


def count_replicas(replica_set: ReplicaSet) -> ReplicaCounts:
    """Those that an operator drains count as terminating."""
    phases = [_shown_phase(replica) for replica in replica_set.replicas.values()]
    return ReplicaCounts(phases.count("ready"), phases.count("starting"), phases.count("terminating"))


def summarize(replica_set: ReplicaSet, now: float) -> ReplicaSetSummary:
    replica_set.charge(now)
    usage = replica_set.usage
    return ReplicaSetSummary(
        instances=tuple(_instance(replica_set, replica, now) for replica in replica_set.replicas.values()),
        start_failure=_last_failure(replica_set, now),
        replica_seconds=usage.seconds,
        cost=usage.cost,
        starts=usage.starts,
        stops=usage.stops,
        crashes=usage.crashes,
    )


def replica_alarms(replica_set: ReplicaSet, now: float) -> list[Alarm]:
    found, backoff, model = [], replica_set.failures.backoff, replica_set.model
    shortage = replica_set.failures.shortage
    if shortage.message:
        what = f"no replica of {model} can be started: {shortage.message}"
        found.append(Alarm(code="insufficient_memory", message=what, age=now - shortage.since, model=model))
    tries = replica_set.missing or any(replica.is_starting for replica in replica_set.replicas.values())
    failure = backoff.last_failure
    if failure is not None and tries and (backoff.looping or failure.reason == "start_timeout"):
        code = "start_timeout" if failure.reason == "start_timeout" else "crash_loop"
        times = f"{backoff.consecutive_failures} times in a row" if backoff.consecutive_failures > 1 else "once"
        said = f": {failure.log_tail[-1]}" if failure.log_tail else ""
        what = f"replicas of {model} fail ({times}): {failure.message}{said}"
        found.append(Alarm(code=code, message=what, age=now - backoff.since, model=model))
    return found


def _shown_phase(replica: ManagedReplica) -> str:
    return _SHOWN_PHASES.get(replica.phase, "terminating")


def _instance(replica_set: ReplicaSet, replica: ManagedReplica, now: float) -> InstanceView:
    instance = replica.instance
    return InstanceView(
        model=replica_set.model,
        replica=replica.id,
        url=instance.url,
        device=instance.device,
        phase=_shown_phase(replica),
        age=now - replica.began,
        location=instance.location,
        log=instance.log_path,
        adopted=replica.adopted,
        outdated=replica_set.outdated(replica),
    )


def _last_failure(replica_set: ReplicaSet, now: float) -> StartFailureView | None:
    backoff, shortage = replica_set.failures.backoff, replica_set.failures.shortage
    last = backoff.last_failure
    if shortage.message:
        last, backoff = StartFailure("", "insufficient_memory", shortage.message, ()), CrashBackoff()
        backoff.at = shortage.since
    if last is None:
        return None
    return StartFailureView(
        **last._asdict(),
        consecutive_failures=max(1, backoff.consecutive_failures),
        age=now - backoff.at,
        retry_in=backoff.retry_in(now),
        crash_looping=backoff.looping,
    )
