"""The parts that others are made of."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import HealthConfig, WarmUpRequest
from steelyard.control.health.client.errors import LocalFailureError
from steelyard.control.health.client.origin import ProbeOrigin, TlsContexts, build_configured_request
from steelyard.control.health.concurrency import ConcurrencyLimiter
from steelyard.control.health.probe_interval import ProbeInterval
from steelyard.control.health.restarts import ProcessIdentity
from steelyard.control.health.schedule import INFINITY, Schedule
from tests.control.driving import run, until

from .servers import target


def test_a_lane_keeps_order_and_its_size() -> None:
    started: list[int] = []
    lane = ConcurrencyLimiter(2, started.append)
    for number in range(6):
        lane.submit(number)
    assert started == [0, 1]
    lane.forget(3)
    assert 3 not in lane
    assert 4 in lane
    for _ in range(3):
        lane.release()
    assert started == [0, 1, 2, 4, 5]
    for _ in range(2):
        lane.release()
    lane.submit(9)
    assert started[-1] == 9


@given(st.lists(st.sampled_from(["enter", "leave", "forget"]), max_size=60), st.integers(1, 4))
def test_a_lane_is_never_overfull_and_never_idle(steps: list[str], size: int) -> None:
    running: list[int] = []
    lane = ConcurrencyLimiter(size, running.append)
    waiting: list[int] = []
    for number, step in enumerate(steps):
        before = len(running)
        if step == "enter":
            waiting.append(number)
            lane.submit(number)
        elif step == "leave" and running:
            running.pop(0)
            before -= 1
            lane.release()
        elif step == "forget" and waiting:
            lane.forget(waiting.pop())
        for started in running[before:]:
            assert started == waiting.pop(0)
        assert len(running) <= size
        assert len(running) == size or not waiting


def test_a_schedule() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        ran: list[str] = []
        schedule = Schedule(ran.append)
        now = loop.time()
        schedule.at("never", now + 3600)
        schedule.at("late", now + 0.06)
        schedule.at("early", now + 0.02)
        schedule.at("moved", now + 3600)
        schedule.at("moved", now + 0.04)
        schedule.at("gone", now + 0.01)
        schedule.forget("gone")
        schedule.at("put off", now + 0.01)
        schedule.at("put off", INFINITY)
        await until(lambda: len(ran) == 3)
        assert ran == ["early", "moved", "late"]
        assert schedule.time_of("late") == INFINITY
        assert schedule.time_of("never") == now + 3600
        schedule.at("never", loop.time())
        await until(lambda: ran[-1] == "never")
        schedule.close()
        schedule.at("after", loop.time())
        await asyncio.sleep(0.02)
        assert ran[-1] == "never"

    run(scenario())


def test_another_name_is_a_restart_until_an_old_one_comes_back() -> None:
    identity: ProcessIdentity[str] = ProcessIdentity()
    assert [identity.is_restart(name) for name in "aabbcc"] == [False, False, True, False, True, False]
    assert [identity.is_restart(name) for name in "abcadbe"] == [False] * 7


def test_a_pace_is_jittered_by_a_tenth_and_never_in_the_past() -> None:
    pace = ProbeInterval(HealthConfig(interval=5.0, loading_interval=0.5), Random(1))
    times = [pace.ready(100.0, 100.0) for _ in range(1000)]
    assert 104.5 <= min(times) < 104.6
    assert 105.4 < max(times) <= 105.5
    assert pace.ready(100.0, 200.0) == 200.5
    assert pace.after_failure(100.0, 200.0) == 200.0
    assert pace.loading(100.0, failures=10**6) <= 105.5


@pytest.mark.parametrize(
    ("asking", "said"),
    [
        (WarmUpRequest(path="/p?q=ü ä"), b"GET /p?q=%C3%BC%20%C3%A4 HTTP/1.1\r\n"),
        (WarmUpRequest(path="/p", body=""), b"POST /p HTTP/1.1\r\n"),
        (WarmUpRequest(path="/p", body=None, method="POST"), b"content-length: 0\r\n"),
        (WarmUpRequest(path="/p", body="text"), b"content-type: text/plain; charset=utf-8\r\n"),
        (WarmUpRequest(path="/p", body=' {"a": 1}'), b"content-type: application/json\r\n"),
        (WarmUpRequest(path="/p", body={"a": "ü"}), b'\r\n\r\n{"a":"\xc3\xbc"}'),
        (WarmUpRequest(path="/p", headers={"Content-Length": "7", "Transfer-Encoding": "chunked"}), b"accept: */*\r\n"),
        (WarmUpRequest(path="/p", body="x", headers={"Content-Type": "text/csv"}), b"content-type: text/csv\r\n"),
    ],
)
def test_requests_as_they_are_sent(asking: WarmUpRequest, said: bytes) -> None:
    way = ProbeOrigin(target("http://[::1]:81"), TlsContexts())
    request = build_configured_request(way, asking, {})
    assert said in request
    assert b"host: [::1]:81\r\n" in request
    head = request.partition(b"\r\n\r\n")[0]
    assert head.endswith(b"connection: close")
    assert b"chunked" not in head
    assert head.count(b"content-length") <= 1


def test_a_request_that_would_be_two_is_not_made() -> None:
    way = ProbeOrigin(target("http://h:81"), TlsContexts())
    for asking in (
        WarmUpRequest(path="/", headers={"x": "a\nb: c"}),
        WarmUpRequest(path="/", headers={"x\r\ny": "a"}),
        WarmUpRequest(path="/", method="GET / HTTP/1.1\r\n"),
    ):
        with pytest.raises(LocalFailureError):
            build_configured_request(way, asking, {})
    assert way.build_request("GET", "/ HTTP/1.1\r\nx: y", {}).count(b"\r\n") == 6
