"""Handlers of the admin API that change something. Each returns what is true afterwards."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from urllib.parse import quote

from ...config import ReplicaConfig
from ...core.policies import POLICIES
from ..errors import InvalidError, NotFoundError
from ..fleet.registry import CONFIGURED
from ..observability.views import ModelView, ReplicaView
from .call import AdminCall
from .schemas import LeaseGranted, LeaseRequest, ModelChanges, NewReplica, ReloadResult, ReplicaRequest

_MAX_POLLS, _POLL_INTERVAL_SECONDS = 250, 0.02  # five seconds in all
_MAX_DEVICE_NAME_CHARACTERS = 256
_ID = re.compile(r"[!-~]{1,128}")


async def change_model(call: AdminCall) -> ModelView:
    body: ModelChanges = call.body
    if not (changes := body.changes()):
        raise InvalidError("", "nothing to change: give policy, policy_options or concurrency")
    _check_policy(call, body.policy)
    await call.operations.set_model(call.model, changes)
    return call.model_view()


def _check_policy(call: AdminCall, name: object) -> None:
    """Using a policy class imports it, and an import runs code: only a configuration may name one."""
    if isinstance(name, str) and ":" in name and name not in {view.policy for view in call.operations.fleet().models}:
        raise InvalidError("policy", f"{name!r} must be in the configuration first; there are {', '.join(POLICIES)}")


async def add_replica(call: AdminCall) -> ReplicaView:
    new: NewReplica = call.body
    made = _replica(call, new, new.id)
    await call.operations.add(call.model, made)
    call.headers["location"] = f"/v1/models/{quote(call.model, safe='')}/replicas/{quote(made.name, safe='')}"
    for _ in range(_MAX_POLLS):  # a configuration that is being rolled out comes first
        with suppress(NotFoundError):
            return call.replica_view(made.name)
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)
    return call.replica_view(made.name)


async def change_replica(call: AdminCall) -> ReplicaView:
    await call.operations.set_weight(call.model, call.replica, call.body.weight)
    return call.replica_view()


async def remove_replica(call: AdminCall) -> None:
    await call.operations.remove(call.model, call.replica)


async def drain(call: AdminCall) -> ReplicaView:
    await call.operations.drain(call.model, call.replica)
    return call.replica_view()


async def undrain(call: AdminCall) -> ReplicaView:
    await call.operations.undrain(call.model, call.replica)
    return call.replica_view()


async def load(call: AdminCall) -> ReplicaView:
    await call.operations.load(call.model, call.replica)
    return call.replica_view()


async def unload(call: AdminCall) -> ReplicaView:
    await call.operations.unload(call.model, call.replica)
    return call.replica_view()


async def renew_lease(call: AdminCall) -> LeaseGranted:
    if not _ID.fullmatch(call.replica):
        raise InvalidError("replica", "the name of a replica has 1 to 128 characters of ASCII, without spaces")
    lease: LeaseRequest = call.body
    longest = call.server.max_lease
    seconds = longest if lease.seconds is None else min(longest, lease.seconds)
    made = _replica(call, lease, call.replica)
    return LeaseGranted(seconds=await call.operations.register(call.model, made, seconds, lease.instance))


async def withdraw_lease(call: AdminCall) -> None:
    await call.operations.deregister(call.model, call.replica, call.query.instance)


async def reload(call: AdminCall) -> ReloadResult:
    await call.operations.reload()
    fleet = call.operations.fleet()
    configured = sum(replica.source == CONFIGURED for replica in fleet.replicas)
    return ReloadResult(models=len(fleet.models), replicas=configured)


def _replica(call: AdminCall, new: ReplicaRequest, name: str) -> ReplicaConfig:
    if reason := call.server.allowed.refusal(new.url):
        raise InvalidError("url", reason)
    if len(new.device) > _MAX_DEVICE_NAME_CHARACTERS or not new.device.isprintable():
        what = f"a device's name has up to {_MAX_DEVICE_NAME_CHARACTERS} characters, all of them printable"
        raise InvalidError("device", what)
    return ReplicaConfig(url=new.url, id=name, weight=new.weight, zone=new.zone, device=new.device, ready=new.ready)
