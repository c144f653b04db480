"""Three models on a device that really runs out of memory, and a gateway in front of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec
import pytest
from benchmarks.load.memory_requests import MIB, Job, RequestMix
from benchmarks.mocks.memory_device import HostedModel, MemoryDevice, mount_command

from steelyard.control.observability.views import DeviceView

from .admin import PROBED, AdminClient, admin_config
from .serving import Serving, config
from .waiting import wait_until

DEVICE_BYTES = 128 * MIB
HEADROOM = 0.1
BUDGET = int(DEVICE_BYTES * (1 - HEADROOM))
MODELS = (
    HostedModel("a", 8 * MIB, 32 << 10),
    HostedModel("b", 8 * MIB, 64 << 10),
    HostedModel("c", 8 * MIB, 128 << 10),
)
WEIGHTS = sum(model.weights for model in MODELS)
MIX = RequestMix(shortest=0.05)  # the largest is fifty times the smallest; three large ones at once do not fit
DEVICE = "box"

needs_box = pytest.mark.skipif(mount_command() is None, reason="nobody may mount a file system of their own here")


def jobs(count: int, seed: int = 2, models: Sequence[HostedModel] = MODELS, seconds: float = 0.0) -> list[Job]:
    """Mixed sizes, the same for the same seed. `seconds`: that each of them takes, not less the smaller it is."""
    some = list(islice(MIX.jobs(models, seed), count))
    return [replace(job, seconds=seconds) for job in some] if seconds else some


def job(size: int, seconds: float = 0.02, model: HostedModel = MODELS[0]) -> Job:
    """A request that needs so many bytes."""
    return Job(model.name, model.elements(size), seconds, size)


def declared(model: HostedModel) -> dict[str, Any]:
    return {"weights": model.weights, "per_unit": model.per_unit}


def front(
    box: MemoryDevice, *, ledger: bool = True, sizes_declared: bool = True, workers: int = 1, **rest: Any
) -> dict[str, Any]:
    """A configuration. `ledger`: the device is named there; `told`: and what the models need."""
    health = {name: value for name, value in PROBED.items() if name != "path"}
    options: dict[str, Any] = {"dialect": "oip", "policy": "least_connections", "concurrency": "unlimited"}
    options |= {
        "health": health,
        "load_metrics": {"orca": True, "path": "/metrics", "enabled": True, "interval": "1s"},
        **rest,
    }
    whole: dict[str, Any] = {}
    for model in box.models.values():
        replica = {"id": model.name, "url": f"http://127.0.0.1:{box.port[model.name]}"}
        whole[model.name] = {**options, "replicas": [replica]}
        if ledger:
            replica["device"] = DEVICE
            whole[model.name] |= {"memory": declared(model)} if sizes_declared else {}
    more = {"devices": {DEVICE: {"memory": box.size, "headroom": HEADROOM}}} if ledger else {}
    return config(whole, workers=workers, admin=admin_config(), **more)


@contextmanager
def fronted(box: MemoryDevice, **options: Any) -> Iterator[tuple[Serving, AdminClient]]:
    """The gateway, once it knows all its replicas to be ready."""
    settings = front(box, **options)
    with Serving(settings) as gateway, AdminClient(settings) as admin:
        admin.wait_up()
        for name in settings["models"]:
            admin.wait_ready(name, model=name)
        yield gateway, admin


def port(gateway: Serving) -> int:
    assert not isinstance(gateway.address, str)
    return gateway.address[1]


def ledger(admin: AdminClient) -> DeviceView:
    """Of the only device."""
    answer = admin.http.get("/v1/devices")
    assert answer.status_code == 200, answer.text
    (device,) = msgspec.convert(answer.json()["devices"], list[DeviceView])
    return device


@contextmanager
def watched_ledger(admin: AdminClient, budget: int = BUDGET) -> Iterator[None]:
    """Whenever one looks, no more is reserved than may be given out."""
    over, seen = threading.Event(), []

    def look() -> None:
        while not over.wait(0.05):
            seen.append(ledger(admin))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert seen
    assert [view for view in seen if view.reserved > view.budget or view.budget != budget] == []


def at_rest(admin: AdminClient, weights: int | None = WEIGHTS) -> None:
    """Nothing is reserved but what the models hold; None: nobody knows how much that is."""

    def rests() -> bool:
        view = ledger(admin)
        running = sum(holding.running for server in view.servers for holding in server.models)
        return view.requests == 0 and running == 0 and view.reserved == (view.reserved if weights is None else weights)

    wait_until(rests, f"something is left in the ledger: {ledger(admin)}")
