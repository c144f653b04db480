"""The parts that others are made of."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import HealthConfig, WarmUpRequest
from steelyard.control.health.http_client import LocalFailureError, ProbeOrigin, TlsContexts
from steelyard.control.health.schedule import Schedule, TaskLimiter
from steelyard.control.health.synthetic_requests import RequestSender
from steelyard.control.health.tracker import ProbeInterval, ProcessIdentity
from steelyard.core.request import INFINITY
from tests.control.driving import run, until

from .servers import target


class Limited:
    """A limiter with tasks that end when a test says so."""

    def __init__(self, size: int) -> None:
        self.started: list[int] = []
        self.ended: list[int] = []
        self.running: list[asyncio.Future[None]] = []
        self.limiter: TaskLimiter[int] = TaskLimiter(size, self._start, lambda number, task: self.ended.append(number))

    def _start(self, number: int) -> asyncio.Future[None]:
        self.started.append(number)
        self.running.append(asyncio.get_running_loop().create_future())
        return self.running[-1]

    async def end_first(self) -> None:
        self.running.pop(0).set_result(None)
        await asyncio.sleep(0)


def test_a_limiter_keeps_order_and_its_size() -> None:
    async def scenario() -> None:
        limited = Limited(2)
        limiter = limited.limiter
        for number in range(6):
            limiter.submit(number)
        assert limited.started == [0, 1]
        limiter.forget(3)
        assert 3 not in limiter
        assert 4 in limiter
        for _ in range(3):
            await limited.end_first()
        assert limited.started == [0, 1, 2, 4, 5]
        for _ in range(2):
            await limited.end_first()
        assert limited.ended == [0, 1, 2, 4, 5]
        limiter.submit(9)
        assert limited.started[-1] == 9

    run(scenario())


def test_a_limiter_that_is_closed_cancels_and_begins_nothing() -> None:
    async def scenario() -> None:
        limited = Limited(1)
        limited.limiter.submit(1)
        limited.limiter.submit(2)
        await limited.limiter.close()
        assert limited.running[0].cancelled()
        limited.limiter.submit(3)
        await asyncio.sleep(0)
        assert (limited.started, limited.ended) == ([1], [1])

    run(scenario())


@given(st.lists(st.sampled_from(["enter", "leave", "forget"]), max_size=60), st.integers(1, 4))
def test_a_limiter_is_never_overfull_and_never_idle(steps: list[str], size: int) -> None:
    async def scenario() -> None:
        limited = Limited(size)
        waiting: list[int] = []
        for number, step in enumerate(steps):
            before = len(limited.started)
            if step == "enter":
                waiting.append(number)
                limited.limiter.submit(number)
            elif step == "leave" and limited.running:
                await limited.end_first()
            elif step == "forget" and waiting:
                limited.limiter.forget(waiting.pop())
            for started in limited.started[before:]:
                assert started == waiting.pop(0)
            assert len(limited.running) <= size
            assert len(limited.running) == size or not waiting

    run(scenario())


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
    request = RequestSender(target("http://[::1]:81"), TlsContexts()).encode(asking)
    assert said in request
    assert b"host: [::1]:81\r\n" in request
    head = request.partition(b"\r\n\r\n")[0]
    assert head.endswith(b"connection: close")
    assert b"chunked" not in head
    assert head.count(b"content-length") <= 1


def test_a_request_that_would_be_two_is_not_made() -> None:
    sender = RequestSender(target("http://h:81"), TlsContexts())
    for asking in (
        WarmUpRequest(path="/", headers={"x": "a\nb: c"}),
        WarmUpRequest(path="/", headers={"x\r\ny": "a"}),
        WarmUpRequest(path="/", method="GET / HTTP/1.1\r\n"),
    ):
        with pytest.raises(LocalFailureError):
            sender.encode(asking)
    origin = ProbeOrigin(target("http://h:81"), TlsContexts())
    assert origin.build_request("GET", "/ HTTP/1.1\r\nx: y", {}).count(b"\r\n") == 6
