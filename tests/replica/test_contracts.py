"""What the agent says is what the gateway's own parts understand: its admin API, its readers of metrics and reports."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from steelyard.protocols.load import EngineLoad, read_metrics, read_orca
from steelyard.replica import ReplicaAgent

from ..control.admin.serving import TOKEN, served
from ..harness.waiting import wait_until
from .fake_replica.ballast import Ballast
from .talking import Model, ask, run, soon
from .test_middleware import hello


def test_the_admin_api_takes_its_registration(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN + "\n")
    tokens.chmod(0o600)
    with served(token_file=str(tokens)) as admin:
        agent = ReplicaAgent(
            "org/mœdel:7b.1",
            gateway=admin.url,
            url="http://127.0.0.1:8001",
            id="node1/b",
            weight=2.0,
            zone="ward a",
            device="node1/gpu0",
            token=TOKEN,
            drain_idle=0.0,
        )
        agent.begin()
        key = ("org/mœdel:7b.1", "node1/b")
        wait_until(lambda: key in admin.operations.replicas, "the registration")
        view = admin.operations.replicas[key]
        assert (view.url, view.weight, view.zone, view.device) == ("http://127.0.0.1:8001", 2.0, "ward a", "node1/gpu0")
        assert admin.operations.instances[key] == agent.instance
        assert agent.drain()
        assert key not in admin.operations.replicas


def test_what_the_admin_api_refuses_is_said_in_its_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with served() as admin:
        agents = [
            ReplicaAgent(
                "llama", gateway=admin.url, url="http://192.0.2.1:8001", deregistration_delay=0.0, drain_idle=0.0
            )
        ]
        agents.append(
            ReplicaAgent(
                "nobody", gateway=admin.url, url="http://127.0.0.1:8001", deregistration_delay=0.0, drain_idle=0.0
            )
        )
        for agent in agents:
            agent.begin()
        wait_until(lambda: "refuses this replica (422: url: " in caplog.text, "why the address is not taken")
        wait_until(lambda: "has no such model (404: " in caplog.text, "that there is no such model")
        for agent in agents:
            agent.drain()


def test_its_metrics_and_reports_are_read_as_they_are_meant() -> None:
    async def story() -> None:
        agent = ReplicaAgent("m", gateway=(), concurrency=2)
        agent.ready()
        model = Model()
        app = agent.wrap(model)
        await ask(app, "/steelyard/metrics", "GET")  # with nothing running: its base is learned
        talks = [model.request(app, name) for name in "abc"]
        await soon()
        read = read_metrics((await ask(app, "/steelyard/metrics", "GET")).body)
        assert read is not None
        assert (read.running, read.waiting, read.utilization) == (2.0, 1.0, 1.0)
        assert read.memory_used is not None
        assert read.memory_total is not None
        assert 0 < read.memory_used < read.memory_total
        assert read.held is not None
        assert read.base is not None
        assert 0 < read.base <= read.held
        assert read.started == agent.begin().started
        for talk in talks:
            talk.task.cancel()
        await asyncio.sleep(0)
        await soon()

        async def hungry(given: Any, receive: Any, send: Any) -> None:
            Ballast().take(16 << 20)
            await hello(given, receive, send)

        for form in ("JSON", "TEXT"):
            headers = (await ask(agent.wrap(hungry), endpoint_load_metrics_format=form)).headers
            report = read_orca(headers["endpoint-load-metrics"].encode())
            assert report is not None
            assert report.held is not None
            assert report.base is not None
            assert 0 < report.base <= report.held
            assert report.request_bytes is not None
            assert 8 << 20 < report.request_bytes < report.held
            unset = dict.fromkeys(("memory_used", "memory_total", "held", "base", "request_bytes"))
            assert report._replace(**unset) == EngineLoad(running=1.0, waiting=0.0, utilization=0.5)

    run(story())
