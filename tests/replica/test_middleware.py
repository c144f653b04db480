"""The agent in front of an app: who is let in, what is counted, what is added."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from steelyard.replica import ReplicaAgent, readiness_probe

from .talking import Model, Talk, ask, run, scope, soon


async def hello(given: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"1")]})
    await send({"type": "http.response.body", "body": b"hello"})


def made(**options: Any) -> ReplicaAgent:
    return ReplicaAgent("sentiment", gateway=(), **options)


def test_loading_is_refused_and_counted_until_the_model_says_ready() -> None:
    async def story() -> None:
        agent = made()
        app = agent.wrap(hello)
        early = await ask(app)
        assert early.status == 503
        assert early.headers["retry-after"] == "1"
        assert early.headers["steelyard-instance"] == agent.instance
        assert json.loads(early.body)["error"]["code"] == "loading"
        assert agent.refused == {"loading": 1}
        agent.ready()
        assert (await ask(app)).body == b"hello"
        agent.loading("a new version")
        late = await ask(app)
        assert late.status == 503
        assert "a new version" in json.loads(late.body)["error"]["message"]
        assert agent.refused == {"loading": 2}

    run(story())


def test_readiness_says_state_reason_and_who_it_is() -> None:
    async def story() -> None:
        agent = made()
        app = agent.wrap(hello)
        response = await ask(app, "/steelyard/ready", "GET")
        assert response.status == 503
        assert response.headers["retry-after"] == "1"
        assert json.loads(response.body)["state"] == "loading"
        agent.loading("weights at 40 %")
        assert json.loads((await ask(app, "/steelyard/ready", "GET")).body)["reason"] == "weights at 40 %"
        agent.ready()
        response = await ask(app, "/steelyard/ready", "GET")
        assert response.status == 200
        assert json.loads(response.body) == {"state": "ready", "instance": agent.instance, "model": "sentiment"}
        assert len(agent.instance) == 16
        assert response.headers["steelyard-instance"] == agent.instance
        assert response.headers["cache-control"] == "no-store"

    run(story())


def test_its_own_paths_are_there_whatever_the_state() -> None:
    async def story() -> None:
        agent = made()
        app = agent.wrap(hello)
        for path in ("/steelyard/live", "/steelyard/load", "/steelyard/metrics"):
            answer = await ask(app, path, "GET")
            assert answer.status == 200
            assert answer.headers["steelyard-instance"] == agent.instance
            assert int(answer.headers["content-length"]) == len(answer.body)
        head = await ask(app, "/steelyard/ready", "HEAD")
        assert (head.status, head.body) == (503, b"")
        refused = await ask(app, "/steelyard/ready", "POST")
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
        agent.ready()
        assert (await ask(app, "/steelyard/other", "GET")).body == b"hello"  # the app's, if it has such

    run(story())


def test_under_a_prefix_its_paths_are_found_too() -> None:
    async def story() -> None:
        app = made().wrap(hello)
        given = scope("/models/a/steelyard/live", "GET", root_path="/models/a")
        assert (await Talk(app, given).end()).status == 200

    run(story())


def test_load_and_metrics_tell_the_counts() -> None:
    async def story() -> None:
        agent = made(concurrency=1)
        agent.ready()
        model = Model()
        app = agent.wrap(model)
        talks = [model.request(app, name) for name in "abc"]
        await soon()
        load = json.loads((await ask(app, "/steelyard/load", "GET")).body)
        assert (load["running"], load["waiting"], load["concurrency"], load["utilization"]) == (1, 2, 1, 3.0)
        assert load["memory"]["process"]["used"] > 0
        assert load["memory"]["total"] >= load["memory"]["used"]
        text = (await ask(app, "/steelyard/metrics", "GET")).body.decode()
        values = dict(line.split(" ") for line in text.splitlines() if not line.startswith("#"))
        assert values["steelyard_requests_running"] == "1"
        assert values["steelyard_requests_waiting"] == "2"
        assert float(values["steelyard_memory_used_bytes"]) > 0
        assert float(values["process_start_time_seconds"]) > 1e9
        for talk in talks:
            talk.task.cancel()
        await soon()

    run(story())


def test_metrics_are_what_prometheus_reads() -> None:
    async def story() -> None:
        agent = made()
        app = agent.wrap(hello)
        await ask(app)
        answer = await ask(app, "/steelyard/metrics", "GET")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        described: set[str] = set()
        for line in answer.body.decode().splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert kind in ("gauge", "counter")
                described.add(name)
            elif not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                assert name.partition("{")[0] in described
                float(value)
        assert 'steelyard_requests_refused_total{reason="loading"} 1' in answer.body.decode()

    run(story())


def test_an_answer_reports_the_load_to_who_asks_for_it() -> None:
    async def story() -> None:
        agent = made(concurrency=4)
        agent.ready()
        app = agent.wrap(hello)
        assert "endpoint-load-metrics" not in (await ask(app)).headers
        header = (await ask(app, endpoint_load_metrics_format="JSON")).headers["endpoint-load-metrics"]
        report = json.loads(header.removeprefix("JSON "))
        assert report["application_utilization"] == 0.25
        assert report["named_metrics"]["num_requests_running"] == 1
        assert report["named_metrics"]["num_requests_waiting"] == 0
        assert 0 < report["mem_utilization"] < 1
        text = (await ask(app, endpoint_load_metrics_format="text")).headers["endpoint-load-metrics"]
        assert text.startswith("TEXT application_utilization=0.25, ")
        assert "named_metrics.num_requests_running=1" in text
        assert "endpoint-load-metrics" not in (await ask(app, endpoint_load_metrics_format="BIN")).headers

    run(story())


def test_without_a_limit_it_claims_no_utilization() -> None:
    async def story() -> None:
        agent = made()
        agent.ready()
        response = await ask(agent.wrap(hello), endpoint_load_metrics_format="JSON")
        assert "application_utilization" not in response.headers["endpoint-load-metrics"]

    run(story())


def test_a_stream_is_counted_to_its_end() -> None:
    async def story() -> None:
        agent = made()
        agent.ready()
        go_on = asyncio.Event()

        async def stream(given: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"a", "more_body": True})
            await go_on.wait()
            await send({"type": "http.response.body", "body": b"b"})

        talk = Talk(agent.wrap(stream)).say()
        await soon()
        assert agent.running == 1
        go_on.set()
        assert (await talk.end()).body == b"ab"
        assert agent.running == 0

    run(story())


def test_an_app_that_raises_is_counted_off_and_its_error_goes_on() -> None:
    async def story() -> None:
        agent = made()
        agent.ready()

        async def broken(given: Any, receive: Any, send: Any) -> None:
            raise RuntimeError("no weights")

        with pytest.raises(RuntimeError, match="no weights"):
            await ask(agent.wrap(broken))
        assert agent.running == 0

    run(story())


def test_web_sockets_are_let_in_when_ready_and_waited_for() -> None:
    async def story() -> None:
        agent = made()
        closed = asyncio.Event()

        async def app(given: Any, receive: Any, send: Any) -> None:
            await send({"type": "websocket.accept"})
            await closed.wait()

        wrapped = agent.wrap(app)
        early = await Talk(wrapped, scope(type="websocket")).end()
        assert early.got == [{"type": "websocket.close", "code": 1013, "reason": "not ready"}]
        extensions = {"websocket.http.response": {}}
        answered = await Talk(wrapped, scope(type="websocket", extensions=extensions)).end()
        assert answered.got[0]["type"] == "websocket.http.response.start"
        assert answered.status == 503
        assert agent.refused == {"loading": 2}
        agent.ready()
        talk = Talk(wrapped, scope(type="websocket"))
        await soon()
        assert (agent.running, agent.limiter.websockets, agent.limiter.present) == (0, 1, 1)
        closed.set()
        await talk.end()
        assert agent.limiter.present == 0

    run(story())


def test_while_draining_what_still_comes_is_served_and_the_connection_closed() -> None:
    async def story() -> None:
        agent = made(drain_timeout=0.0)
        agent.ready()
        app = agent.wrap(hello)
        assert "connection" not in (await ask(app)).headers
        assert await asyncio.to_thread(agent.drain)
        ready = await ask(app, "/steelyard/ready", "GET")
        assert ready.status == 503
        assert json.loads(ready.body)["state"] == "draining"
        answer = await ask(app)
        assert (answer.status, answer.body, answer.headers["connection"]) == (200, b"hello", "close")
        newer = await Talk(app, scope(http_version="2")).say().end()
        assert "connection" not in newer.headers  # HTTP/2 has no such header

    run(story())


def test_drain_waits_for_what_runs() -> None:
    async def story() -> None:
        agent = made(drain_idle=0.0, deregistration_delay=0.0)
        agent.ready()
        model = Model()
        talk = model.request(agent.wrap(model), "a")
        await soon()
        drained = asyncio.ensure_future(asyncio.to_thread(agent.drain))
        while agent.state != "draining":
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert not drained.done()
        model.doing["a"].set_result(None)
        await talk.end()
        assert await drained is True

    run(story())


def test_paths_that_are_always_answered_are_not_counted() -> None:
    async def story() -> None:
        agent = made(bypass_paths=["/docs"], concurrency=1)
        app = agent.wrap(hello)
        assert (await ask(app, "/docs", "GET")).status == 200
        assert (await ask(app, "/docs/more", "GET")).status == 503
        assert agent.limiter.served == 0

    run(story())


def test_ready_when_asks_the_app_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness_probe, "READY_INTERVAL_SECONDS", 0.1)

    async def story() -> None:
        agent = made(ready_path="/health?deep=1")
        health = 503
        asked: list[Any] = []

        async def app(given: Any, receive: Any, send: Any) -> None:
            if given["path"] == "/health":
                asked.append(given)
                await receive()
            if health == 500:
                raise RuntimeError("broken")
            await send({"type": "http.response.start", "status": health, "headers": []})
            await send({"type": "http.response.body"})

        wrapped = agent.wrap(app)
        assert (await ask(wrapped, "/health", "GET")).status == 503  # the app's own answer
        while "503" not in agent.readiness.status.reason:
            await asyncio.sleep(0.01)
        assert agent.state == "loading"
        health = 500
        while "RuntimeError" not in agent.readiness.status.reason:
            await asyncio.sleep(0.01)
        health = 200
        while agent.state != "ready":
            await asyncio.sleep(0.01)
        assert asked[-1]["query_string"] == b"deep=1"
        assert agent.limiter.served == 0
        health = 503
        while agent.state != "loading":
            await asyncio.sleep(0.01)

    run(story())


def test_an_app_without_a_lifespan_is_served_all_the_same() -> None:
    async def story() -> None:
        agent = made()

        async def app(given: Any, receive: Any, send: Any) -> None:
            assert given["type"] == "http"
            await hello(given, receive, send)

        wrapped = agent.wrap(app)
        with pytest.raises(AssertionError):
            await Talk(wrapped, {"type": "lifespan"}).end()
        instance = agent.instance
        agent.ready()
        assert (await ask(wrapped)).status == 200
        assert agent.instance == instance

    run(story())


def test_what_is_neither_request_nor_socket_is_passed_on() -> None:
    async def story() -> None:
        seen: list[str] = []

        async def app(given: Any, receive: Any, send: Any) -> None:
            seen.append(given["type"])

        await Talk(made().wrap(app), {"type": "mqtt"}).end()
        assert seen == ["mqtt"]

    run(story())
