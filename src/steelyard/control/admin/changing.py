"""What the admin API changes. Each answers with what is true afterwards."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from urllib.parse import quote

from ...config import ReplicaConfig
from ...core.policies import POLICIES
from ..operations import InvalidError, NotKnownError
from ..views import ReplicaView
from .bodies import Lease, Leased, ModelChanges, NewReplica, Reloaded
from .calls import Call, Reply

_LOOKS, _PAUSE = 250, 0.02  # five seconds in all
_LONGEST = 256  # characters of a device's name
_ID = re.compile(r"[!-~]{1,128}")


async def change_model(call: Call) -> Reply:
    changes: ModelChanges = call.body
    if not changes.changes():
        raise InvalidError("", "nothing to change: give policy, policy_options or concurrency")
    _check_policy(call, changes.policy)
    await call.operations.set_model(call.model, changes.changes())
    return Reply(call.model_view())


def _check_policy(call: Call, name: object) -> None:
    """A class of one's own is imported to be used, and what is imported runs: only a configuration may say so."""
    if isinstance(name, str) and ":" in name and name not in {view.policy for view in call.operations.fleet().models}:
        raise InvalidError("policy", f"{name!r} must be in the configuration first; there are {', '.join(POLICIES)}")


async def add(call: Call) -> Reply:
    new: NewReplica = call.body
    made = _replica(call, new, new.id)
    await call.operations.add(call.model, made)
    here = f"/v1/models/{quote(call.model, safe='')}/replicas/{quote(made.name, safe='')}"
    return Reply(await _shown(call, made.name), headers={"location": here})


async def _shown(call: Call, name: str) -> ReplicaView:
    """It may have to wait for a configuration that is just being put in force."""
    for _ in range(_LOOKS):
        with suppress(NotKnownError):
            return call.replica_view(name)
        await asyncio.sleep(_PAUSE)
    return call.replica_view(name)


async def change_replica(call: Call) -> Reply:
    await call.operations.set_weight(call.model, call.replica, call.body.weight)
    return Reply(call.replica_view())


async def remove(call: Call) -> Reply:
    await call.operations.remove(call.model, call.replica)
    return Reply()


async def drain(call: Call) -> Reply:
    await call.operations.drain(call.model, call.replica)
    return Reply(call.replica_view())


async def undrain(call: Call) -> Reply:
    await call.operations.undrain(call.model, call.replica)
    return Reply(call.replica_view())


async def load(call: Call) -> Reply:
    await call.operations.load(call.model, call.replica)
    return Reply(call.replica_view())


async def unload(call: Call) -> Reply:
    await call.operations.unload(call.model, call.replica)
    return Reply(call.replica_view())


async def announce(call: Call) -> Reply:
    if not _ID.fullmatch(call.replica):
        raise InvalidError("replica", "the name of a replica has 1 to 128 characters of ASCII, without spaces")
    lease: Lease = call.body
    made = _replica(call, lease, call.replica)
    seconds = min(call.lease, call.lease if lease.seconds is None else lease.seconds)
    return Reply(Leased(seconds=await call.operations.announce(call.model, made, seconds, lease.instance)))


async def withdraw(call: Call) -> Reply:
    await call.operations.withdraw(call.model, call.replica, call.query.instance)
    return Reply()


async def reload(call: Call) -> Reply:
    await call.operations.reload()
    fleet = call.operations.fleet()
    return Reply(Reloaded(models=len(fleet.models), replicas=len(fleet.replicas)))


def _replica(call: Call, new: NewReplica | Lease, name: str) -> ReplicaConfig:
    if reason := call.allowed.refusal(new.url):
        raise InvalidError("url", reason)
    if len(new.device) > _LONGEST or not new.device.isprintable():
        raise InvalidError("device", f"a device's name has up to {_LONGEST} characters, all of them printable")
    return ReplicaConfig(url=new.url, id=name, weight=new.weight, zone=new.zone, device=new.device, ready=new.ready)
