"""What the admin API changes. Each answers with what is true afterwards."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from urllib.parse import quote

from ....config import ReplicaConfig
from ....core.policies import POLICIES
from ...observability.views import ReplicaView
from ...supervisor.admin_service import InvalidError, NotFoundError
from ..schemas import LeaseGranted, LeaseRequest, ModelChanges, NewReplica, ReloadResult
from .call import AdminCall, AdminResponse

_MAX_POLLS, _POLL_INTERVAL_SECONDS = 250, 0.02  # five seconds in all
_MAX_DEVICE_NAME_CHARACTERS = 256  # characters of a device's name
_ID = re.compile(r"[!-~]{1,128}")


async def change_model(call: AdminCall) -> AdminResponse:
    changes: ModelChanges = call.body
    if not changes.changes():
        raise InvalidError("", "nothing to change: give policy, policy_options or concurrency")
    _check_policy(call, changes.policy)
    await call.operations.set_model(call.model, changes.changes())
    return AdminResponse(call.model_view())


def _check_policy(call: AdminCall, name: object) -> None:
    """A class of one's own is imported to be used, and what is imported runs: only a configuration may say so."""
    if isinstance(name, str) and ":" in name and name not in {view.policy for view in call.operations.fleet().models}:
        raise InvalidError("policy", f"{name!r} must be in the configuration first; there are {', '.join(POLICIES)}")


async def add_replica(call: AdminCall) -> AdminResponse:
    new: NewReplica = call.body
    made = _replica(call, new, new.id)
    await call.operations.add(call.model, made)
    here = f"/v1/models/{quote(call.model, safe='')}/replicas/{quote(made.name, safe='')}"
    return AdminResponse(await _wait_for_view(call, made.name), headers={"location": here})


async def _wait_for_view(call: AdminCall, name: str) -> ReplicaView:
    """It may have to wait for a configuration that is just being put in force."""
    for _ in range(_MAX_POLLS):
        with suppress(NotFoundError):
            return call.replica_view(name)
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)
    return call.replica_view(name)


async def change_replica(call: AdminCall) -> AdminResponse:
    await call.operations.set_weight(call.model, call.replica, call.body.weight)
    return AdminResponse(call.replica_view())


async def remove_replica(call: AdminCall) -> AdminResponse:
    await call.operations.remove(call.model, call.replica)
    return AdminResponse()


async def drain(call: AdminCall) -> AdminResponse:
    await call.operations.drain(call.model, call.replica)
    return AdminResponse(call.replica_view())


async def undrain(call: AdminCall) -> AdminResponse:
    await call.operations.undrain(call.model, call.replica)
    return AdminResponse(call.replica_view())


async def load(call: AdminCall) -> AdminResponse:
    await call.operations.load(call.model, call.replica)
    return AdminResponse(call.replica_view())


async def unload(call: AdminCall) -> AdminResponse:
    await call.operations.unload(call.model, call.replica)
    return AdminResponse(call.replica_view())


async def renew_lease(call: AdminCall) -> AdminResponse:
    if not _ID.fullmatch(call.replica):
        raise InvalidError("replica", "the name of a replica has 1 to 128 characters of ASCII, without spaces")
    lease: LeaseRequest = call.body
    made = _replica(call, lease, call.replica)
    seconds = min(call.lease, call.lease if lease.seconds is None else lease.seconds)
    return AdminResponse(
        LeaseGranted(seconds=await call.operations.register(call.model, made, seconds, lease.instance))
    )


async def withdraw_lease(call: AdminCall) -> AdminResponse:
    await call.operations.deregister(call.model, call.replica, call.query.instance)
    return AdminResponse()


async def reload(call: AdminCall) -> AdminResponse:
    await call.operations.reload()
    fleet = call.operations.fleet()
    return AdminResponse(ReloadResult(models=len(fleet.models), replicas=len(fleet.replicas)))


def _replica(call: AdminCall, new: NewReplica | LeaseRequest, name: str) -> ReplicaConfig:
    if reason := call.allowed.why_not(new.url):
        raise InvalidError("url", reason)
    if len(new.device) > _MAX_DEVICE_NAME_CHARACTERS or not new.device.isprintable():
        raise InvalidError(
            "device", f"a device's name has up to {_MAX_DEVICE_NAME_CHARACTERS} characters, all of them printable"
        )
    return ReplicaConfig(url=new.url, id=name, weight=new.weight, zone=new.zone, device=new.device, ready=new.ready)
