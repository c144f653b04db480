"""What the admin API shows."""

from __future__ import annotations

from ...supervisor.admin_service import NotFoundError
from ..schemas import Devices, Events, Log, ModelMemoryList, Models, Replicas, Scalings, Slos, Status
from .call import AdminCall, AdminResponse


async def healthz(call: AdminCall) -> AdminResponse:
    return _status([] if call.operations.is_live() else ["no worker serves"])


async def readyz(call: AdminCall) -> AdminResponse:
    return _status(call.operations.readiness_problems())


def _status(reasons: list[str]) -> AdminResponse:
    if reasons:
        return AdminResponse(Status(status="unavailable", reasons=tuple(reasons)), status=503)
    return AdminResponse(Status(status="ok"))


async def fleet(call: AdminCall) -> AdminResponse:
    return AdminResponse(call.operations.fleet())


async def live(call: AdminCall) -> AdminResponse:
    raise AssertionError("a stream: the application sends it")


async def live_latest(call: AdminCall) -> AdminResponse:
    return AdminResponse(call.watchers.snapshot())


async def slo(call: AdminCall) -> AdminResponse:
    return AdminResponse(Slos(slo=call.operations.fleet().slo))


async def events(call: AdminCall) -> AdminResponse:
    return AdminResponse(Events(events=tuple(call.operations.events())))


async def models(call: AdminCall) -> AdminResponse:
    return AdminResponse(Models(models=call.operations.fleet().models))


async def model(call: AdminCall) -> AdminResponse:
    return AdminResponse(call.model_view())


async def replicas(call: AdminCall) -> AdminResponse:
    fleet = call.operations.fleet()
    if all(view.model != call.model for view in fleet.models):
        raise NotFoundError(f"no model {call.model!r}")
    return AdminResponse(Replicas(replicas=tuple(view for view in fleet.replicas if view.model == call.model)))


async def replica(call: AdminCall) -> AdminResponse:
    return AdminResponse(call.replica_view())


async def replica_log(call: AdminCall) -> AdminResponse:
    lines = call.operations.log_tail(call.model, call.replica, call.query.lines)
    return AdminResponse(Log(model=call.model, replica=call.replica, lines=lines))


async def scaling(call: AdminCall) -> AdminResponse:
    return AdminResponse(Scalings(scaling=call.operations.fleet().scaling))


async def model_scaling(call: AdminCall) -> AdminResponse:
    return AdminResponse(call.operations.scaling(call.model))


async def devices(call: AdminCall) -> AdminResponse:
    return AdminResponse(Devices(devices=call.operations.fleet().devices))


async def device(call: AdminCall) -> AdminResponse:
    return AdminResponse(call.device_view())


async def model_memory(call: AdminCall) -> AdminResponse:
    return AdminResponse(ModelMemoryList(model_memory=call.operations.fleet().model_memory))


async def metrics(call: AdminCall) -> AdminResponse:
    return AdminResponse(call.scrapes.page())
