"""State that is in no file, for the successor: operators' settings, registrations, ready replicas."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...core.replica import State
from ...link.handover import FleetState, LeaseState
from ..errors import TakeOverError
from ..fleet.registry import ADDED, REGISTERED

if TYPE_CHECKING:
    from ..fleet.fleet import Fleet

READY_TIMEOUT_SECONDS = 10.0  # for probes to find ready what the predecessor has ready
READY_POLL_SECONDS = 0.05


def take_snapshot(fleet: Fleet) -> FleetState:
    models, now = fleet.config.models, fleet.now()
    return FleetState(
        ready={name: tuple(sorted(ready_replicas(fleet, name))) for name in models},
        drained=tuple(sorted(fleet.health.drained)),
        weights=tuple((*key, weight) for key, weight in fleet.members.registry.weight_overrides.items()),
        models=dict(fleet.members.registry.model_overrides),
        added={name: added for name in models if (added := fleet.members.registry.from_source(ADDED, name))},
        leases=tuple(
            LeaseState(lease.model, lease.replica, lease.instance, lease.until - now)
            for lease in fleet.registrations.leases
            if not lease.lapsed and lease.until > now
        ),
    )


def restore_snapshot(fleet: Fleet, state: FleetState, now: float) -> None:
    """Before the fleet starts. Drops what belongs to models that are not configured."""
    registry, models = fleet.members.registry, fleet.members.registry.config.models
    fleet.health.drained = {key for key in state.drained if key[0] in models}
    registry.weight_overrides = {(model, id): weight for model, id, weight in state.weights if model in models}
    registry.model_overrides = {name: dict(changes) for name, changes in state.models.items() if name in models}
    for name, replicas in state.added.items():
        if name in models:
            registry.set_source(ADDED, name, replicas)
    leases = fleet.registrations.leases
    for lease in state.leases:
        if lease.model in models:
            leases.announce(lease.model, lease.replica, lease.seconds, lease.instance, now)
    for name in models:
        registry.set_source(REGISTERED, name, (lease.replica for lease in leases.replicas(name)))


def ready_replicas(fleet: Fleet, model: str) -> set[str]:
    return {id for name, id in fleet.health.ready() if name == model}


async def wait_until_probed(fleet: Fleet, seconds: float) -> None:
    """Waits until each replica was probed, at most `seconds`."""
    until = fleet.now() + seconds
    while fleet.now() < until and any(s.state is State.STARTING for s in fleet.health.statuses.values()):
        await asyncio.sleep(READY_POLL_SECONDS)


async def wait_until_as_ready(fleet: Fleet, before: FleetState) -> None:
    """Waits until probes find ready what the predecessor has ready, as far as it is still configured.

    Raises TakeOverError if a model has ready replicas there and none here.
    """
    until = fleet.now() + READY_TIMEOUT_SECONDS
    while fleet.now() < until and not all(_is_as_ready(fleet, name, before) for name in fleet.config.models):
        await asyncio.sleep(READY_POLL_SECONDS)
    for name in fleet.config.models:
        there = before.ready.get(name, ())
        if there and not ready_replicas(fleet, name):
            raise TakeOverError(
                f"model {name} has {len(there)} replicas ready in the running gateway and none here after "
                f"{READY_TIMEOUT_SECONDS:g} s: that one goes on"
            )


def _is_as_ready(fleet: Fleet, model: str, before: FleetState) -> bool:
    there, here = set(before.ready.get(model, ())), ready_replicas(fleet, model)
    settings = fleet.members.registry.config.models[model]
    if not settings.discovery and settings.runtime is None:  # then all that will ever be known is known
        there &= set(fleet.members.registry.members(model))
    return there <= here and bool(here or not before.ready.get(model))
