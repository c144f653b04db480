"""An operator loads and unloads a model: the whole way, from the admin API to a server that can."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import msgspec

from steelyard.config import AdminConfig, parse_config
from steelyard.control.supervisor.supervisor import Supervisor

from ..driving import WAIT_TIMEOUT_SECONDS, run, supervised
from ..placement.stage import Shelf

GIB = 1 << 30


class Operator:
    def __init__(self, supervisor: Supervisor, http: httpx.AsyncClient) -> None:
        self._url = f"http://{supervisor.admin_address}"
        self._http = http

    async def see(self, path: str) -> Any:
        return (await self._http.get(self._url + path)).json()

    async def tell(self, model: str, what: str) -> httpx.Response:
        return await self._http.post(f"{self._url}/v1/models/{model}/replicas/a/{what}")

    async def done(self, model: str, what: str) -> None:
        """It may have to be asked again: its server does one thing at a time."""
        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            while (answer := await self.tell(model, what)).status_code != 200:
                assert answer.status_code == 409, answer.text
                await asyncio.sleep(0.02)

    async def until(self, model: str, state: str) -> None:
        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            while (await self.see(f"/v1/models/{model}/replicas/a"))["state"] != state:
                await asyncio.sleep(0.02)


def played(scene: Callable[[Operator, Shelf], Awaitable[None]]) -> None:
    """One server that can load `m` and `big`, and has `fixed`; a device of 10 GiB."""

    async def work() -> None:
        shelf = Shelf("m", "big")
        shelf.answers["/v2/models/m/ready"] = lambda asked: shelf.reply(200 if shelf.models["m"] == "READY" else 400)
        await shelf.start()
        replicas = [{"url": shelf.url, "id": "a", "device": "g"}]
        placed = {"dialect": "triton", "placement": {}, "replicas": replicas, "load_metrics": {"enabled": False}}
        models = {
            "m": {**placed, "memory": {"weights": 2 * GIB}},
            "big": {**placed, "memory": {"weights": 20 * GIB}},
            "fixed": {"health": {"enabled": False}, "replicas": replicas, "memory": {"weights": GIB}},
        }
        made = parse_config(json.dumps({"models": models, "devices": {"g": {"memory": 10 * GIB}}}))
        made = msgspec.structs.replace(made, listen="127.0.0.1:0", admin=AdminConfig(listen="127.0.0.1:0"))
        try:
            async with (
                supervised(made) as supervisor,
                httpx.AsyncClient(timeout=WAIT_TIMEOUT_SECONDS, trust_env=False) as http,
            ):
                await scene(Operator(supervisor, http), shelf)
        finally:
            await shelf.stop()

    run(work())


def test_a_model_is_loaded_and_unloaded_by_hand() -> None:
    async def scene(operator: Operator, shelf: Shelf) -> None:
        await operator.until("m", "unloaded")
        assert base(await operator.see("/v1/devices/g")) == {"m": 0, "big": 0, "fixed": GIB}
        await operator.done("m", "load")
        await operator.until("m", "ready")
        assert shelf.loads == ["m"]
        assert base(await operator.see("/v1/devices/g")) == {"m": 2 * GIB, "big": 0, "fixed": GIB}
        await operator.done("m", "unload")
        await operator.until("m", "unloaded")
        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            while shelf.models["m"] != "UNAVAILABLE" or base(await operator.see("/v1/devices/g"))["m"]:
                await asyncio.sleep(0.02)
        sizes = {size["model"]: size for size in (await operator.see("/v1/model-memory"))["model_memory"]}
        assert (sizes["m"]["footprint"], sizes["m"]["footprint_source"]) == (2 * GIB, "declared")

    played(scene)


def base(device: Any) -> dict[str, int]:
    return {one["model"]: one["base"] for server in device["servers"] for one in server["models"]}


def test_what_cannot_be_loaded() -> None:
    async def scene(operator: Operator, shelf: Shelf) -> None:
        for what in ("load", "unload"):
            refused = await operator.tell("fixed", what)
            assert refused.status_code == 409
            assert "placement" in refused.json()["error"]["message"]
        await operator.until("m", "unloaded")
        assert (await operator.tell("m", "unload")).status_code == 409  # it is not there
        await operator.tell("big", "load")  # refused now or when it comes to it, but never begun
        await operator.done("m", "load")
        await operator.until("m", "ready")
        assert shelf.loads == ["m"]

    played(scene)
