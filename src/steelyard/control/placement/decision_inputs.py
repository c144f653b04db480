"""Converts what the controller knows into the inputs of `core.placement`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...core.placement.planner import ModelCopy, ModelDemand, ServerState
from ...core.replica import State
from ..fleet.registry import ReplicaKey
from ..memory import MemoryAccounting
from .hosts import CopyPhase, Host, ManagedCopy
from .load_history import LoadBackoff, LoadTimes
from .model_demand import ReportedDemand

UNLOADING, LOADING = "unloading", "loading"
HOLDING_STATES = {
    CopyPhase.RESIDENT: "resident",
    CopyPhase.RESERVED: LOADING,
    CopyPhase.LOADING: LOADING,
    CopyPhase.DRAINING: UNLOADING,
    CopyPhase.UNLOADING: UNLOADING,
    CopyPhase.UNKNOWN: UNLOADING,  # it may hold memory, and cannot be counted on
}
NOT_SERVING_STATES = (State.DRAINING, State.UNREACHABLE)  # loaded or not, it serves no requests


def server_room(
    host: Host,
    memory: MemoryAccounting,
    free: Mapping[str, int],
    backoff: LoadBackoff,
    running: Mapping[ReplicaKey, int],
    now: float,
) -> ServerState:
    copies = host.copies.values()
    there = memory.free_bytes_at(next(iter(host.copies.values())).key)  # any copy: it is one process
    return ServerState(
        host.name,
        host.device,
        tuple(
            _holding(copy, memory, running)
            for copy in copies
            if copy.phase is not CopyPhase.ABSENT or copy.load_ordered_at is not None
        ),
        frozenset(
            copy.model
            for copy in copies  # not where an operator drains the replica
            if copy.replica_state is not State.DRAINING and backoff.may_try(copy.key, now)
        ),
        busy=host.busy or host.is_unknown,
        cached_bytes=max(0, there - free[host.device]) if host.device in free else 0,
    )


def _holding(copy: ManagedCopy, memory: MemoryAccounting, running: Mapping[ReplicaKey, int]) -> ModelCopy:
    if copy.load_ordered_at is not None and copy.phase is CopyPhase.ABSENT:
        # Others are being evicted for it: no bytes yet, but no second server must make room for it.
        return ModelCopy(copy.model, 0, LOADING, copy.load_ordered_at, 0, copy.settings.pinned)
    resident = copy.phase is CopyPhase.RESIDENT
    size = memory.footprint(copy.model) if resident else copy.reserved_bytes
    state = UNLOADING if resident and copy.replica_state in NOT_SERVING_STATES else HOLDING_STATES[copy.phase]
    return ModelCopy(copy.model, size, state, copy.since, running.get(copy.key, 0), copy.settings.pinned)


def model_demands(
    copies: Iterable[ManagedCopy], demand: Mapping[str, ReportedDemand], memory: MemoryAccounting, times: LoadTimes
) -> dict[str, ModelDemand]:
    found: dict[str, ModelDemand] = {}
    for copy in copies:
        model = copy.model
        if model not in found:
            seconds = times.seconds(model, copy.settings.load_time)
            reported = demand.get(model, ReportedDemand())
            found[model] = ModelDemand(model, memory.footprint(model), seconds, *reported, copy.settings.pinned)
    return found
