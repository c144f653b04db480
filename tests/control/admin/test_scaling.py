"""Replicas that Steelyard starts: the whole way, from the admin API to real processes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec

from steelyard.config import AdminConfig, parse_config

from ..driving import WAIT_TIMEOUT_SECONDS, run, supervised

SERVES = (sys.executable, "-m", "http.server", "{port}", "--bind", "127.0.0.1")  # of its folder, which has `health`
WAITS = ("sh", "-c", "exec sleep 60", "{port}")
ENDS = ("sh", "-c", "echo no such file: weights.bin; exit 3", "{port}")


class Operator:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def see(self, path: str) -> Any:
        answer = await self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def until(self, path: str, true: Callable[[Any], Any]) -> Any:
        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            while not true(seen := await self.see(path)):
                await asyncio.sleep(0.02)
        return seen


def played(here: Path, scene: Callable[[Operator], Awaitable[None]], **models: Any) -> None:
    (here / "health").touch()
    for model in models.values():
        model["runtime"] |= {"working_directory": str(here), "log_directory": str(here / "logs")}
        model["health"] = {"interval": 0.1}
    made = parse_config(json.dumps({"name": f"{here.name}-{os.getpid()}", "models": models}))
    made = msgspec.structs.replace(made, listen="127.0.0.1:0", admin=AdminConfig(listen="127.0.0.1:0"))

    async def work() -> None:
        async with supervised(made) as supervisor:
            url = f"http://{supervisor.admin_address}"
            async with httpx.AsyncClient(base_url=url, timeout=WAIT_TIMEOUT_SECONDS, trust_env=False) as http:
                await scene(Operator(http))

    run(work())


def ready(*names: str) -> Callable[[Any], bool]:
    return lambda seen: {one["replica"] for one in seen["instances"] if one["phase"] == "ready"} == set(names)


def test_a_model_at_rest_is_ready_for_traffic(tmp_path: Path) -> None:
    async def scene(operator: Operator) -> None:
        seen = await operator.until("/v1/scaling", lambda seen: len(seen["scaling"]) == 1)
        assert (seen["scaling"][0]["mode"], seen["scaling"][0]["desired"]) == ("act", 0)
        assert await operator.see("/readyz") == {"status": "ok", "reasons": []}
        assert (await operator.see("/v1/fleet"))["alarms"] == []

    played(tmp_path, scene, m={"runtime": {"command": WAITS}, "autoscale": {"min": 0, "max": 2}})


def test_a_started_replica_is_drained_but_not_removed_and_another_takes_its_place(tmp_path: Path) -> None:
    async def scene(operator: Operator) -> None:
        await operator.until("/v1/models/m/scaling", ready("p1"))
        assert (await operator.see("/v1/models/m/replicas/p1"))["source"] == "runtime"
        refused = await operator.http.delete("/v1/models/m/replicas/p1")
        assert refused.status_code == 409
        assert "Steelyard started it" in refused.json()["error"]["message"]
        drained = await operator.http.post("/v1/models/m/replicas/p1/drain")
        assert drained.json()["state"] == "draining"
        seen = await operator.until("/v1/models/m/scaling", ready("p2"))
        assert {one["replica"]: one["phase"] for one in seen["instances"]} == {"p1": "terminating", "p2": "ready"}
        (url,) = [one["url"] for one in seen["instances"] if one["replica"] == "p1"]
        assert (await operator.http.get(f"{url}/health")).status_code == 200  # it goes on
        log = await operator.until("/v1/models/m/replicas/p1/log?lines=1", lambda seen: seen["lines"])
        assert "GET /health" in log["lines"][0]

    played(tmp_path, scene, m={"runtime": {"command": SERVES}})


def test_what_cannot_start_is_shown_with_its_last_words(tmp_path: Path) -> None:
    async def scene(operator: Operator) -> None:
        seen = await operator.until("/v1/models/m/scaling", lambda seen: seen["start_failure"])
        assert (seen["start_failure"]["reason"], seen["start_failure"]["log_tail"]) == (
            "ended",
            ["no such file: weights.bin"],
        )
        id = seen["start_failure"]["replica"]
        assert (await operator.see(f"/v1/models/m/replicas/{id}/log"))["lines"] == ["no such file: weights.bin"]
        answer = await operator.http.get("/readyz")
        assert (answer.status_code, answer.json()["reasons"]) == (503, ["no replica of m is ready"])
        text = (await operator.http.get("/metrics")).text
        assert 'steelyard_scaling_crashes_total{model="m"}' in text

    played(tmp_path, scene, m={"runtime": {"command": ENDS, "replicas": 2}})
