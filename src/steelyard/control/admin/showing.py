"""What the admin API shows."""

from __future__ import annotations

from ..operations import NotKnownError
from .bodies import Devices, Events, Log, Models, Replicas, Scalings, Sizes, Slos, Status
from .calls import Call, Reply


async def healthz(call: Call) -> Reply:
    return _status([] if call.operations.live() else ["no worker serves"])


async def readyz(call: Call) -> Reply:
    return _status(call.operations.unready())


def _status(reasons: list[str]) -> Reply:
    if reasons:
        return Reply(Status(status="unavailable", reasons=tuple(reasons)), status=503)
    return Reply(Status(status="ok"))


async def fleet(call: Call) -> Reply:
    return Reply(call.operations.fleet())


async def live(call: Call) -> Reply:
    raise AssertionError("a stream: the application sends it")


async def pulse(call: Call) -> Reply:
    return Reply(call.watchers.once())


async def slo(call: Call) -> Reply:
    return Reply(Slos(slo=call.operations.fleet().slo))


async def events(call: Call) -> Reply:
    return Reply(Events(events=tuple(call.operations.happenings())))


async def models(call: Call) -> Reply:
    return Reply(Models(models=call.operations.fleet().models))


async def model(call: Call) -> Reply:
    return Reply(call.model_view())


async def replicas(call: Call) -> Reply:
    fleet = call.operations.fleet()
    if all(view.model != call.model for view in fleet.models):
        raise NotKnownError(f"no model {call.model!r}")
    return Reply(Replicas(replicas=tuple(view for view in fleet.replicas if view.model == call.model)))


async def replica(call: Call) -> Reply:
    return Reply(call.replica_view())


async def replica_log(call: Call) -> Reply:
    lines = call.operations.last_words(call.model, call.replica, call.query.lines)
    return Reply(Log(model=call.model, replica=call.replica, lines=lines))


async def scaling(call: Call) -> Reply:
    return Reply(Scalings(scaling=call.operations.fleet().scaling))


async def model_scaling(call: Call) -> Reply:
    return Reply(call.operations.scaling(call.model))


async def devices(call: Call) -> Reply:
    return Reply(Devices(devices=call.operations.fleet().devices))


async def device(call: Call) -> Reply:
    return Reply(call.device_view())


async def sizes(call: Call) -> Reply:
    return Reply(Sizes(sizes=call.operations.fleet().sizes))


async def metrics(call: Call) -> Reply:
    return Reply(call.scrapes.page())
