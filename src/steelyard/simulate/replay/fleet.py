"""The fleet of a recording: its initial state, and later changes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import cast

import msgspec

from ...core.balancer import Balancer
from ...core.options import Concurrency, PoolOptions, current_names
from ...core.plugins import current_options
from ...core.policies import find_policy
from ...core.replica import Event, Replica, State
from ...link.decision_log.lines import FleetLine, FleetMember
from ..engine.simulation import Simulation
from ..run import split_policy
from .recording import Recording

EVENT_BY_STATE = {
    "starting": Event.LIVE,
    "loading": Event.LIVE,
    "unreachable": Event.LOST,
    "draining": Event.DRAIN,
    "unloaded": Event.UNLOAD,
}


def initial_balancer(recording: Recording, policy: str, seed: int) -> Balancer:
    """As it was when the recording began. Another policy gets the replicas in random order: runs differ by
    that, as its position in a rotation is unknown."""
    first = recording.fleet[0]
    name, concurrency = split_policy(policy)
    balancer = Balancer(Random(f"{seed}"))
    options = current_options(find_policy(name), first.policy_options) if name == first.policy else {}
    balancer.add_model("", name, pool_options(first, concurrency), options)
    members = list(first.replicas)
    if policy != recording.policy:
        Random(f"order/{seed}").shuffle(members)
    for member in members:
        balancer.add_replica(member.id, weight=member.weight, state=_initial_state(member), now=0.0)
    return balancer


def _initial_state(member: FleetMember) -> State:
    return State.READY if member.state == State.EJECTED.value else State(member.state)


def pool_options(line: FleetLine, concurrency: Concurrency | None) -> PoolOptions:
    """Options of a later version are ignored."""
    limit = cast(Concurrency, line.concurrency) if concurrency is None else concurrency
    known = msgspec.convert(current_names(line.options), PoolOptions)
    return replace(known, concurrency=limit, max_queue=line.max_queue, queue_timeout=line.queue_timeout)


def plan_fleet(simulation: Simulation, recording: Recording, policy: str) -> None:
    recorded = policy == recording.policy
    for line in recording.fleet[1:]:
        change = partial(_change_fleet, simulation, line, policy, recorded)
        simulation.call_at(max(0.0, line.at - recording.begin), change)


def _change_fleet(simulation: Simulation, line: FleetLine, policy: str, recorded: bool, now: float) -> None:
    (balancer,) = simulation.balancers
    known = balancer.pool().replicas
    for member in line.replicas:
        if member.id not in known:
            state = _initial_state(member)
            simulation.carry_out(balancer.add_replica(member.id, weight=member.weight, state=state, now=now), now)
            continue
        replica = known[member.id]
        if replica.weight != member.weight:
            balancer.set_weight(member.id, member.weight, now=now)
        for event in events_to(replica, member.state):
            simulation.carry_out(balancer.report(member.id, event, now=now), now)
        if member.state != State.UNREACHABLE.value:
            simulation.servers[member.id].down = 0
        elif not simulation.servers[member.id].down:
            simulation.crash(member.id, now)
    for id in set(known) - {member.id for member in line.replicas}:
        simulation.carry_out(balancer.remove_replica(id, now=now), now)
    options = pool_options(line, split_policy(policy)[1])
    if options != balancer.pool().options:
        simulation.carry_out(balancer.set_options("", options, now=now), now)
    if recorded and not isinstance(balancer.pool().policy, find_policy(line.policy)):
        options_then = current_options(find_policy(line.policy), line.policy_options)
        simulation.carry_out(balancer.set_policy("", line.policy, options_then, now=now), now)


def events_to(replica: Replica, state: str) -> list[Event]:
    """The events that lead to a state, without the balancer's own decisions."""
    events: list[Event] = []
    if replica.state is State.DRAINING and state != State.DRAINING.value:
        events.append(Event.UNDRAIN)
    if replica.state is State.UNLOADED and state not in (State.UNLOADED.value, State.DRAINING.value):
        events.append(Event.LOAD)
    if state in (State.READY.value, State.EJECTED.value):
        return events if replica.state in (State.READY, State.EJECTED) else [*events, Event.LOADED]
    event = EVENT_BY_STATE.get(state)
    return [*events, event] if event is not None and replica.state.value != state else events
