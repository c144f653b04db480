"""Models that are loaded and unloaded when somebody says so."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
from typing import Any

import pytest

from steelyard.core.errors import OptionError
from steelyard.replica import ReplicaAgent

from ..harness.waiting import wait_until
from .fake_gateway import gateway
from .talking import WAIT_TIMEOUT_SECONDS, Model, Talk, ask, run, scope, soon
from .test_middleware import hello


class Shop:
    """An agent with two models; of `slow` the steps wait until the test lets them go."""

    def __init__(self, **options: Any) -> None:
        self.agent = ReplicaAgent("*", gateway=(), **options)
        self.steps: list[str] = []
        self.go = asyncio.Event()
        self.problem: Exception | None = None
        self.agent.add_model(
            "quick", load=lambda: self.steps.append("load"), unload=lambda: self.steps.append("unload")
        )
        self.agent.add_model("org/slow", load=self._load, unload=self._unload, paths=["/slow", "/v1/slow/"])
        self.app = self.agent.wrap(hello)

    async def _load(self) -> None:
        self.steps.append("load slow")
        await self.go.wait()
        if self.problem is not None:
            raise self.problem

    async def _unload(self) -> None:
        self.steps.append("unload slow")
        await self.go.wait()
        if self.problem is not None:
            raise self.problem

    async def post(self, path: str, query: str = "", **headers: str) -> tuple[int, dict[str, Any]]:
        names = list(headers.items())
        given = scope(f"/steelyard/models/{path}", headers=names, query_string=query.encode())
        talk = await Talk(self.app, given).say().end()
        return talk.status, json.loads(talk.body)

    async def get(self, path: str) -> tuple[int, Any]:
        talk = await ask(self.app, f"/steelyard/{path}", "GET")
        return talk.status, json.loads(talk.body)

    async def state(self, model: str) -> str:
        models = (await self.get("models"))[1]["models"]
        return str(next(one["state"] for one in models if one["model"] == model))

    async def until(self, model: str, state: str) -> None:
        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            while await self.state(model) != state:
                await asyncio.sleep(0.01)


def test_a_model_is_loaded_serves_and_is_unloaded() -> None:
    async def story() -> None:
        shop = Shop()
        path = "/v2/models/quick/infer"
        assert (await shop.get("ready"))[0] == 200  # the server: it can be asked
        early = await ask(shop.app, path)
        assert (early.status, json.loads(early.body)["error"]["code"]) == (503, "unloaded")
        assert early.headers["retry-after"] == "1"
        status, body = await shop.get("models/quick/ready")
        assert (status, body["state"], body["instance"]) == (503, "unloaded", shop.agent.instance)
        assert (await shop.post("quick/load", "wait=20"))[0] == 200
        assert (await shop.get("models/quick/ready"))[0] == 200
        assert (await ask(shop.app, path)).body == b"hello"
        assert (await shop.post("quick/load"))[0] == 200  # it is there already
        assert (await shop.post("quick/unload", "wait=20"))[0] == 200
        assert (await shop.post("quick/unload"))[0] == 200
        assert (await ask(shop.app, path)).status == 503
        assert (await ask(shop.app, "/elsewhere")).body == b"hello"  # of no model that is offered
        assert shop.steps == ["load", "unload"]
        assert shop.agent.refused == {"unloaded": 2}

    run(story())


def test_a_load_is_single_flight_and_answers_while_it_goes_on() -> None:
    async def story() -> None:
        shop = Shop()
        assert [(await shop.post("org/slow/load"))[0] for _ in range(3)] == [202] * 3
        assert (await ask(shop.app, "/slow/chat")).status == 503
        assert (await shop.post("org/slow/load", "wait=0.01"))[0] == 202
        assert (await shop.post("org/slow/unload"))[1]["error"]["code"] == "loading"
        waits = [asyncio.ensure_future(shop.post("org/slow/load", "wait=20")) for _ in range(3)]
        await soon()
        shop.go.set()
        assert [(await one)[0] for one in waits] == [200] * 3
        assert shop.steps == ["load slow"]
        assert [(await ask(shop.app, path)).status for path in ("/slow", "/v1/slow/a", "/v1/slow")] == [200] * 3
        assert shop.agent.models.of("/slower") is None
        shop.go.clear()
        assert (await shop.post("org/slow/unload"))[0] == 202
        status, body = await shop.post("org/slow/load")
        assert (status, body["error"]["code"]) == (409, "unloading")
        assert (await ask(shop.app, "/slow")).status == 503
        shop.go.set()
        await shop.until("org/slow", "unloaded")

    run(story())


def test_a_load_that_fails_says_why_and_may_be_tried_again() -> None:
    async def story() -> None:
        shop = Shop()
        shop.go.set()
        shop.problem = ValueError("no such file")
        status, body = await shop.post("org/slow/load", "wait=20")
        assert (status, body["state"], body["error"]["code"], body["loaded"]) == (500, "failed", "failed", False)
        assert "ValueError: no such file" in body["reason"]
        assert (await shop.get("models/org/slow/ready"))[1]["reason"] == body["reason"]
        assert json.loads((await ask(shop.app, "/slow")).body)["error"]["code"] == "failed"
        shop.problem = MemoryError()
        assert (await shop.post("org/slow/load", "wait=20"))[1]["error"]["code"] == "out_of_memory"
        assert (await shop.post("org/slow/unload"))[0] == 200  # there is nothing to unload
        assert await shop.state("org/slow") == "unloaded"
        shop.problem = None
        assert (await shop.post("org/slow/load", "wait=20"))[0] == 200
        shop.problem = RuntimeError("stuck")
        status, body = await shop.post("org/slow/unload", "wait=20")
        assert (status, body["state"], body["loaded"]) == (500, "failed", True)
        assert (await ask(shop.app, "/slow")).status == 503  # nobody knows what is left of it
        shop.problem = None
        assert (await shop.post("org/slow/unload", "wait=20"))[0] == 200
        assert shop.steps == [*["load slow"] * 3, *["unload slow"] * 2]

    run(story())


def test_a_model_in_use_is_unloaded_only_by_force() -> None:
    async def story() -> None:
        shop = Shop()
        model = Model()
        shop.app = shop.agent.wrap(model)
        await shop.post("quick/load", "wait=20")
        talk = Talk(shop.app, scope("/v2/models/quick/infer", headers=[("x-request-id", "a")])).say()
        await soon()
        status, body = await shop.post("quick/unload")
        assert (status, body["error"]["code"]) == (409, "in_use")
        assert (await shop.get("models"))[1]["models"][0]["in_flight"] == 1
        assert (await shop.post("quick/unload", "force=1&wait=20"))[0] == 200
        model.doing["a"].set_result(None)
        assert (await talk.end()).status == 200
        assert (await shop.get("models"))[1]["models"][0]["in_flight"] == 0

    run(story())


def test_what_is_not_there_or_not_allowed() -> None:
    async def story() -> None:
        shop = Shop(control_token="secret")
        assert (await shop.post("nobody/load"))[0] == 404
        assert (await shop.get("models/quick"))[0] == 404
        assert (await shop.post("quick/ready"))[0] == 405
        assert (await shop.get("models/quick/load"))[0] == 405
        assert (await shop.get("models/quick/ready"))[0] == 503
        assert [(await shop.post(f"quick/{what}"))[0] for what in ("load", "unload")] == [401, 401]
        assert (await shop.post("quick/load", authorization="Bearer wrong"))[0] == 401
        assert (await shop.post("quick/load", "wait=long", authorization="Bearer secret"))[0] == 422
        assert shop.steps == []
        assert (await shop.post("quick/load", "wait=20", authorization="bearer secret"))[0] == 200

    run(story())


def test_a_server_that_leaves_loads_nothing() -> None:
    async def story() -> None:
        shop = Shop(drain_timeout=0.0)
        await shop.post("quick/load", "wait=20")
        await asyncio.to_thread(shop.agent.drain)
        assert (await shop.get("models/quick/ready"))[1]["state"] == "draining"
        assert (await ask(shop.app, "/v2/models/quick/infer")).status == 200  # which came late
        assert (await shop.post("org/slow/load"))[0] == 503

    run(story())


def test_an_agent_with_a_model_of_its_own_may_offer_others() -> None:
    async def story() -> None:
        agent = ReplicaAgent("own", gateway=())
        app = agent.wrap(hello)
        assert (await ask(app, "/steelyard/models", "GET")).status == 503  # no offers: it is the app's
        agent.add_model("other", load=int, unload=int)
        assert (await ask(app, "/steelyard/ready", "GET")).status == 503
        assert (await ask(app, "/steelyard/models", "GET")).status == 200
        assert (await ask(app, "/v2/models/other/infer")).status == 503
        agent.ready()
        assert (await ask(app)).status == 200

    run(story())


def test_each_model_is_registered_with_a_readiness_of_its_own() -> None:
    with gateway() as fake:
        agent = ReplicaAgent("*", gateway=fake.url, url="http://127.0.0.1:8001", drain_idle=0.0)
        agent.add_model("a", load=int, unload=int)
        agent.begin()
        agent.add_model("org/b", load=int, unload=int)
        wait_until(lambda: len(fake.leases) == 2, "two leases")
        ready = {model: about["ready"] for (model, _), about in fake.leases.items()}
        assert ready == {"a": "/steelyard/models/a/ready", "org/b": "/steelyard/models/org/b/ready"}
        assert agent.drain()
        assert fake.leases == {}


def test_an_offer_is_checked() -> None:
    agent = ReplicaAgent("*", gateway=())
    agent.add_model("a", load=int, unload=int)
    for wrong in ({"model": "a"}, {"model": ""}, {"model": "b", "paths": ["no path"]}, {"model": "b", "paths": "/b"}):
        with pytest.raises(OptionError):
            agent.add_model(**{"load": int, "unload": int, **wrong})  # type: ignore[arg-type]
    assert list(pickle.loads(pickle.dumps(agent)).models) == ["a"]


def test_what_a_load_took_is_told() -> None:
    """Real memory: this process's."""

    async def story() -> None:
        agent = ReplicaAgent("*", gateway=())
        kept: list[bytearray] = []
        agent.add_model("large", load=lambda: kept.append(bytearray(b"\1") * (96 << 20)), unload=kept.clear)
        begun, go = threading.Event(), threading.Event()
        agent.add_model("other", load=lambda: (begun.set(), go.wait(WAIT_TIMEOUT_SECONDS)), unload=int)
        app = agent.wrap(hello)

        async def post(path: str) -> dict[str, Any]:
            given = scope(f"/steelyard/models/{path}", query_string=b"wait=20")
            found: dict[str, Any] = json.loads((await Talk(app, given).say().end()).body)
            return found

        before = agent.footprint.read().base
        assert before is not None
        assert round((await post("large/load"))["bytes"] / (96 << 20), 1) == 1.0
        after = agent.footprint.read().base
        assert after is not None
        assert round((after - before) / (96 << 20), 1) == 1.0
        await post("large/unload")
        other = asyncio.ensure_future(post("other/load"))
        await asyncio.to_thread(begun.wait, WAIT_TIMEOUT_SECONDS)
        assert (await post("large/load"))["bytes"] is not None  # of the first time: now two things ran at once
        go.set()
        assert (await other)["bytes"] is None

    run(story())
