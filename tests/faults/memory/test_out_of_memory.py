"""Out of memory all the same: it is counted, believed, and that size is kept from that device for a while."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from steelyard.control.observability.views import DeviceView, ModelMemoryView
from tests.harness import Response, new_id, scripts, wait_until
from tests.harness.admin import PROBED, AdminClient, admin_config
from tests.harness.replicas.probed import ProbedReplica
from tests.harness.serving import Serving, config

pytestmark = pytest.mark.xdist_group("out of memory")

GIB, MIB = 1 << 30, 1 << 20
SMALL_ELEMENTS, LARGE_ELEMENTS = 1, 600  # elements of a request, each of which needs 1 MiB
GOOD = scripts.plain('{"outputs": []}')
HOW = {  # a server shows that its device had no room for a request
    "507": scripts.plain('{"error": "no room"}', 507),
    "body": scripts.plain('{"error": "CUDA out of memory. Tried to allocate 20.00 MiB"}', 500),
    "crash": [["body"], ["die"]],
}
ALONE = "alone"  # a model with one replica


class Rig:
    """A model for each way to run out; each has a replica that does on 1 GiB, and one that does not on 4 GiB."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.bad = {name: stack.enter_context(ProbedReplica("bad", script=GOOD)) for name in (*HOW, ALONE)}
        self.good = {name: stack.enter_context(ProbedReplica("good", script=GOOD)) for name in HOW}
        options = {"dialect": "oip", "policy": "round_robin", "memory": {"per_unit": MIB}, "queue_timeout": "2s"}
        options |= {"health": PROBED}
        models = {name: {**options, "replicas": self._replicas(name)} for name in self.bad}
        devices = {replica["device"]: room for name in models for replica, room in self._rooms(models[name])}
        settings = config(models, devices=devices, admin=admin_config())
        self.gateway = stack.enter_context(Serving(settings))
        self.admin = stack.enter_context(AdminClient(settings))
        self.admin.wait_up()
        for name in models:
            self.admin.wait_ready(*(replica["id"] for replica in models[name]["replicas"]), model=name)

    def _replicas(self, model: str) -> list[dict[str, Any]]:
        stubs = [stubs[model] for stubs in (self.bad, self.good) if model in stubs]
        return [{**stub.config, "device": f"{model}-{stub.name}"} for stub in stubs]

    def _rooms(self, model: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        for replica in model["replicas"]:
            yield replica, {"memory": GIB if replica["id"] == "bad" else 4 * GIB, "headroom": 0.0}

    def send(self, model: str, elements: int, **headers: str) -> Response:
        tensor = {"name": "x", "datatype": "FP32", "shape": [elements], "data": []}
        body = json.dumps({"inputs": [tensor]}).encode()
        return self.gateway.ask("POST", f"/v2/models/{model}/infer", id=new_id(), body=body, headers=headers)

    def ask(self, model: str, elements: int) -> tuple[int, str]:
        """Status, and which replica answered."""
        answer = self.send(model, elements)
        return answer.status, answer.headers.get("steelyard-replica", "")

    def reaches(self, model: str, elements: int) -> bool:
        """Has a request, this one or one before, come to the one that runs out?"""
        self.ask(model, elements)
        self.bad[model].sync()
        return bool(self.bad[model].real())

    def device(self, model: str, replica: str = "bad") -> DeviceView:
        (view,) = [view for view in self.admin.fleet().devices if view.device == f"{model}-{replica}"]
        return view

    def sizes(self, model: str) -> ModelMemoryView:
        (view,) = [view for view in self.admin.fleet().model_memory if view.model == model]
        return view


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with contextlib.ExitStack() as stack:
        yield Rig(stack)


@pytest.mark.parametrize("how", HOW)
def test_it_is_counted_believed_and_that_size_goes_elsewhere(rig: Rig, how: str) -> None:
    bad = rig.bad[how]
    bad.answer_all(HOW[how])
    wait_until(lambda: rig.reaches(how, LARGE_ELEMENTS), "it gets nothing")
    shown = wait_until(lambda: rig.device(how).quarantines, "nothing is quarantined")
    assert [view.model for view in shown] == [how]
    assert rig.device(how).out_of_memory_errors == len(bad.real()) == 1, "it was sent there again"
    elsewhere = rig.device(how, "good")
    assert (elsewhere.out_of_memory_errors, elsewhere.quarantines) == (0, ())
    assert rig.sizes(how).largest > LARGE_ELEMENTS * MIB, "it is still believed to need what was not enough"
    if how == "crash":
        bad.stop()
        bad.restart(ready=True)
    bad.answer_all(GOOD)
    rig.admin.wait_ready("bad", model=how)
    wait_until(lambda: rig.ask(how, SMALL_ELEMENTS) == (200, "bad"), "small ones do not come there either")
    assert {rig.ask(how, LARGE_ELEMENTS) for _ in range(10)} == {(200, "good")}


def test_where_there_is_no_elsewhere_it_is_refused(rig: Rig) -> None:
    """It is not sent to where it ran out, however long it waits."""
    bad = rig.bad[ALONE]
    bad.answer_all(HOW["507"])
    assert rig.ask(ALONE, LARGE_ELEMENTS)[0] in (503, 507)
    wait_until(lambda: rig.device(ALONE).quarantines, "nothing is quarantined")
    bad.answer_all(GOOD)
    answer = rig.send(ALONE, LARGE_ELEMENTS, **{"steelyard-timeout-ms": "500"})
    assert (answer.status, answer.headers["steelyard-reason"]) == (503, "insufficient_memory")
    bad.sync()
    assert len(bad.real()) == 1
    assert rig.ask(ALONE, SMALL_ELEMENTS) == (200, "bad")
