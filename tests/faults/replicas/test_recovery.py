"""Replicas that fail together and come back, that give no answer, and clients with deadlines of their own (issue 13,
points 22, 25 and 29), with real processes under load."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.harness import Serving, StubReplica, config, model, request, scripts, wait_until
from tests.harness.flow import Flow
from tests.harness.replicas.stub import Script

HEAD = "HTTP/1.1 200 Stub\r\ncontent-length: 20\r\n\r\n"
HALF: Script = [["body"], ["send", HEAD + "half"], ["close"]]
USUAL = scripts.slow(0.02)
DEADLINE = {"steelyard-timeout-ms": "2000"}


@contextlib.contextmanager
def four(**options: object) -> Iterator[tuple[list[StubReplica], Serving]]:
    with contextlib.ExitStack() as stack:
        stubs = [stack.enter_context(StubReplica(name)) for name in "abcd"]
        for stub in stubs:
            stub.answer_all(USUAL)
        yield stubs, stack.enter_context(Serving(config({"*": model(*stubs, **options)})))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [scripts.fails(500), scripts.fails(503), HALF], ids=["500", "503", "half"])
def test_when_all_replicas_fail_for_ten_seconds_and_come_back_nothing_is_refused(fault: Script) -> None:
    """It was 19 to 25 seconds of `deadline`."""
    with four(idempotent=False) as (stubs, gateway), Flow(gateway.address, kept=16, fresh=4, headers=DEADLINE) as flow:
        flow.go_on(300)
        for stub in stubs:
            stub.answer_all(fault)
        time.sleep(10.0)
        for stub in stubs:
            stub.answer_all(USUAL)
        flow.go_on(1)
        time.sleep(2.0)
        marks = [len(stub.ids()) for stub in stubs]
        before = dict(flow.lost)
        flow.go_on(600)
        wait_until(  # the flow goes on meanwhile
            lambda: all(len(stub.ids()) > mark for stub, mark in zip(stubs, marks, strict=True)), "all are used again"
        )
        assert flow.lost == before, "requests fail or are refused though all replicas serve again"


@pytest.mark.slow
def test_a_hanging_replica_costs_none_of_those_that_may_run_twice() -> None:
    with four(idempotent=True) as (stubs, gateway), Flow(gateway.address, kept=8, fresh=0) as flow:
        flow.go_on(300)
        stubs[3].answer_all(scripts.silent())
        asked = len(stubs[3].ids())
        wait_until(lambda: len(stubs[3].ids()) > asked, "the replica that hangs is sent nothing")
        stubs[3].wait_left(stubs[3].ids()[asked])
        flow.go_on(100)
    assert flow.lost == {}


@pytest.mark.slow
def test_slow_requests_with_deadlines_of_their_clients_eject_nobody() -> None:
    """24 requests that take far longer than the 300 ms their clients allow: two or three of four were out."""
    with four(idempotent=False) as (stubs, gateway), Flow(gateway.address, kept=4, fresh=0) as flow:
        flow.go_on(300)
        hurried = [gateway.connect() for _ in range(24)]
        for connection in hurried:
            connection.send(request("POST", headers={"steelyard-timeout-ms": "300"}, script=scripts.slow(2.0)))
        for connection in hurried:
            with connection:
                assert connection.response().status == 504
        marks = [len(stub.ids()) for stub in stubs]
        used = lambda: all(len(stub.ids()) > mark for stub, mark in zip(stubs, marks, strict=True))  # noqa: E731
        wait_until(used, "some are out: an ejection lasts 30 s, a suspicion ends with the next answer", 20.0)
    assert flow.lost == {}
