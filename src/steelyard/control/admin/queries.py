"""Handlers of the admin API that read."""

from __future__ import annotations

from ..errors import NotFoundError
from ..observability.views import DeviceView, FleetView, LiveHistoryView, LiveView, ModelView, ReplicaView, ScalingView
from .call import AdminCall
from .schemas import Devices, Events, Log, ModelMemoryList, Models, Replicas, Scalings, Slos, Status


async def healthz(call: AdminCall) -> Status:
    return _status(call, [] if call.operations.is_live() else ["no worker serves"])


async def readyz(call: AdminCall) -> Status:
    return _status(call, call.operations.readiness_problems())


def _status(call: AdminCall, reasons: list[str]) -> Status:
    if not reasons:
        return Status(status="ok")
    call.status = 503
    return Status(status="unavailable", reasons=tuple(reasons))


async def fleet(call: AdminCall) -> FleetView:
    return call.operations.fleet()


async def live(call: AdminCall) -> LiveHistoryView:
    raise AssertionError("a stream: the application sends it")


async def live_latest(call: AdminCall) -> LiveView:
    return call.server.watchers.snapshot()


async def slo(call: AdminCall) -> Slos:
    return Slos(slo=call.operations.fleet().slo)


async def events(call: AdminCall) -> Events:
    return Events(events=tuple(call.operations.events()))


async def models(call: AdminCall) -> Models:
    return Models(models=call.operations.fleet().models)


async def model(call: AdminCall) -> ModelView:
    return call.model_view()


async def replicas(call: AdminCall) -> Replicas:
    fleet = call.operations.fleet()
    if all(view.model != call.model for view in fleet.models):
        raise NotFoundError(f"no model {call.model!r}")
    return Replicas(replicas=tuple(view for view in fleet.replicas if view.model == call.model))


async def replica(call: AdminCall) -> ReplicaView:
    return call.replica_view()


async def replica_log(call: AdminCall) -> Log:
    lines = call.operations.log_tail(call.model, call.replica, call.query.lines)
    return Log(model=call.model, replica=call.replica, lines=lines)


async def scaling(call: AdminCall) -> Scalings:
    return Scalings(scaling=call.operations.fleet().scaling)


async def model_scaling(call: AdminCall) -> ScalingView:
    return call.operations.scaling(call.model)


async def devices(call: AdminCall) -> Devices:
    return Devices(devices=call.operations.fleet().devices)


async def device(call: AdminCall) -> DeviceView:
    for view in call.operations.fleet().devices:
        if view.device == call.path["device"]:
            return view
    raise NotFoundError(f"no device {call.path['device']!r}")


async def model_memory(call: AdminCall) -> ModelMemoryList:
    return ModelMemoryList(model_memory=call.operations.fleet().model_memory)


async def metrics(call: AdminCall) -> str:
    return call.server.scrapes.page()
