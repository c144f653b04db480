"""Metrics read over real sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from steelyard.config import LoadMetricsConfig
from steelyard.control.fleet.registry import ReplicaKey
from steelyard.control.health import load_scraper as scraper_module
from steelyard.control.health.http_client import TlsContexts
from steelyard.control.health.load_scraper import NOT_FOUND_RETRY_SECONDS, LoadScraper, MetricsReader, metrics_location
from steelyard.control.health.probe import ProbeTarget
from steelyard.protocols import EngineLoad, MetricsLocation
from tests.control.driving import WAIT_TIMEOUT_SECONDS, run, until

from .servers import Server, serving, target

PAGE = b"""# HELP vllm:num_requests_running Number of requests
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_waiting{engine="0"} 2
vllm:kv_cache_usage_perc{engine="0"} 0.5
process_start_time_seconds %d
"""
KEY = ("m", "a")


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second between two reads is long for a test."""
    monkeypatch.setattr(scraper_module, "MIN_INTERVAL_SECONDS", 0.02)


class Patient(MetricsReader):
    """Read often, and yet with time for an answer on a slow machine."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._timeout = WAIT_TIMEOUT_SECONDS


@pytest.fixture
def _patiently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraper_module, "MetricsReader", Patient)


def often(**settings: Any) -> LoadMetricsConfig:
    return LoadMetricsConfig(**{"interval": 0.02, **settings})


def page(server: Server, started: int = 1_700_000_000) -> bytes:
    return server.reply(200, PAGE % started)


class Reader:
    def __init__(self) -> None:
        self.heard: list[tuple[ReplicaKey, EngineLoad]] = []
        self.restarts: list[ReplicaKey] = []
        self.scraper = LoadScraper(lambda key, load: self.heard.append((key, load)), self.restarts.append)

    def problem(self) -> str:
        view = self.scraper.view(KEY)
        return view.problem if view is not None else ""


@asynccontextmanager
async def reading(*targets: ProbeTarget) -> AsyncIterator[Reader]:
    reader = Reader()
    reader.scraper.set_targets({target.key: target for target in targets})
    try:
        yield reader
    finally:
        await reader.scraper.close()


def vllm(server: Server, **settings: Any) -> ProbeTarget:
    return target(server.url, id="a", dialect="vllm", load=often(**settings))


@pytest.mark.usefixtures("_patiently")
def test_what_it_says_is_told() -> None:
    async def scenario() -> None:
        async with serving() as server:
            server.answers["/metrics"] = page(server)
            async with reading(vllm(server)) as reader:
                await until(lambda: len(reader.heard) > 2)
                key, load = reader.heard[0]
                assert key == KEY
                assert (load.running, load.waiting, load.cache) == (3, 2, 0.5)
                view = reader.scraper.view(KEY)
                assert view is not None
                assert view.load == load
                assert view.age is not None
                assert view.problem == ""
                assert not reader.restarts
                assert server.asked[0].headers["accept"] == "text/plain"

    run(scenario())


@pytest.mark.usefixtures("_patiently")
@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "says nothing of its load"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n\xff\xfe garbag", "says nothing of its load"),
        (b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", "answers 500 to GET /metrics"),
        (b"gopher\r\n", "its answer is not HTTP/1.1: GET /metrics"),
        (b"", "hangs up without an answer: GET /metrics"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (9 << 20), "its answer is longer than 8 MiB: GET /metrics"),
    ],
    ids=["empty", "garbage", "500", "gopher", "nothing", "long"],
)
def test_what_cannot_be_read_is_shown_and_not_told(said: bytes, words: str) -> None:
    async def scenario() -> None:
        async with serving() as server:
            server.answers["/metrics"] = page(server)
            async with reading(vllm(server)) as reader:
                await until(lambda: reader.heard)
                server.answers["/metrics"] = said
                await until(lambda: words in reader.problem())
                heard = len(reader.heard)
                asked = len(server.asked)
                await until(lambda: len(server.asked) > asked + 2)
                assert len(reader.heard) == heard
                view = reader.scraper.view(KEY)
                assert view is not None
                assert view.load is not None  # the last good one, with its age
                server.answers["/metrics"] = page(server)
                await until(lambda: len(reader.heard) > heard)
                assert reader.problem() == ""

    run(scenario())


def test_a_frozen_one_and_a_dead_one() -> None:
    async def scenario() -> None:
        async with serving() as server, reading(vllm(server, interval=0.05)) as reader:
            server.frozen = True
            await until(lambda: "in time (0.05 s): GET /metrics" in reader.problem())
            await server.stop()
            await until(lambda: "refuses connections" in reader.problem())
            assert not reader.heard

    run(scenario())


@pytest.mark.usefixtures("_patiently")
def test_a_restart() -> None:
    async def scenario() -> None:
        async with serving() as server:
            server.answers["/metrics"] = page(server)
            async with reading(vllm(server)) as reader:
                await until(lambda: reader.heard)
                server.answers["/metrics"] = page(server, 1_700_000_001)  # a clock that was set
                heard = len(reader.heard)
                await until(lambda: len(reader.heard) > heard + 1)
                assert not reader.restarts
                server.answers["/metrics"] = page(server, 1_700_000_500)
                await until(lambda: reader.restarts)
                heard = len(reader.heard)
                await until(lambda: len(reader.heard) > heard + 1)
                assert reader.restarts == [KEY]

    run(scenario())


def test_processes_that_take_turns_are_no_restarts_for_ever() -> None:
    async def scenario() -> None:
        turn = 0

        async with serving() as server:

            def one_of_three(asked: Any) -> bytes:
                nonlocal turn
                turn += 1
                return page(server, 1_700_000_000 + 100 * (turn % 3))

            server.answers["/metrics"] = one_of_three
            async with reading(vllm(server)) as reader:
                await until(lambda: turn > 20)
                assert len(reader.restarts) < 4

    run(scenario())


def test_who_is_asked_and_where() -> None:
    aim = target("http://127.0.0.1:9", id="a", dialect="vllm")
    assert metrics_location(aim) == MetricsLocation("/metrics", 0)
    assert metrics_location(aim._replace(load=LoadMetricsConfig(enabled=False))) is None
    assert metrics_location(aim._replace(load=LoadMetricsConfig(path="/m", port=7))) == MetricsLocation("/m", 7)
    assert metrics_location(aim._replace(dialect="triton")) == MetricsLocation("/metrics", 8002)
    for dialect in ("http", ""):
        assert metrics_location(aim._replace(dialect=dialect)) is None
        assert metrics_location(aim._replace(dialect=dialect, load=LoadMetricsConfig(enabled=True))) == MetricsLocation(
            "/metrics", 0
        )


def test_not_there_is_tried_again_once_a_minute_unless_somebody_said_that_it_is() -> None:
    async def scenario() -> None:
        async with serving() as server:
            for enabled, pause in ((None, NOT_FOUND_RETRY_SECONDS), (True, 0.02)):
                one = Patient(KEY, vllm(server, enabled=enabled), TlsContexts())
                assert not await one.read()
                assert one.problem == "answers 404 to GET /metrics"
                assert one.pause == pause

    run(scenario())


def test_no_more_often_than_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert (
        MetricsReader(
            KEY, target("http://h:1", dialect="vllm", load=LoadMetricsConfig(interval=0.1)), TlsContexts()
        ).interval
        == 1.0
    )


def test_others_from_now_on_and_a_listener_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving() as one, serving() as two:
            one.answers["/metrics"] = two.answers["/metrics"] = page(one)
            async with reading(vllm(one)) as reader:
                await until(lambda: reader.heard)
                other = vllm(two)
                reader.scraper.set_targets({other.key: other})
                view = reader.scraper.view(KEY)
                assert view is not None
                assert view.load is None  # nothing of another server
                await until(lambda: two.asked)
                reader.scraper.on_load = lambda key, load: 1 / 0  # type: ignore[assignment,return-value]
                asked = len(two.asked)
                await until(lambda: len(two.asked) > asked + 2)
                reader.scraper.set_targets({})
                assert reader.scraper.view(KEY) is None

    caplog.set_level(logging.ERROR)
    run(scenario())
    assert "cannot be reported" in caplog.text


@pytest.mark.usefixtures("_patiently")
def test_a_hundred() -> None:
    async def scenario() -> None:
        async with serving() as server, serving() as frozen:
            server.answers["/metrics"] = page(server)
            frozen.frozen = True
            aims = [target(server.url, id=f"r{n}", dialect="vllm", load=often(interval=0.2)) for n in range(100)]
            slow = [target(frozen.url, id=f"f{n}", dialect="vllm", load=often(interval=0.2)) for n in range(20)]
            async with reading(*aims, *slow) as reader:
                await until(lambda: {key for key, _ in reader.heard} == {aim.key for aim in aims})
                await asyncio.sleep(0)

    run(scenario())
