"""Replicas that are there and do not serve: frozen, flapping, failing at once. And a busy one, which is well."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from steelyard.control.observability.views import ProbeView
from tests.harness import (
    WAIT_TIMEOUT_SECONDS,
    Connection,
    Ledger,
    Serving,
    StubReplica,
    model,
    new_id,
    request,
    scripts,
    wait_until,
)
from tests.harness.admin import PROBED, AdminClient
from tests.harness.client import Response
from tests.harness.replicas.probed import PACED, ProbedReplica, Watched, watched
from tests.harness.traffic import traffic

pytestmark = pytest.mark.xdist_group("sick")

HASTY = PROBED | {"timeout": "1s", "fall": 2}  # a probe of a frozen one fails soon
BUSY = PROBED | {"timeout": "150ms", "fall": 3}  # and those of a busy one fail all the time
NERVOUS = PROBED | {"fall": 1}
SHORT_EJECTION = {"base_ejection_time": "1s", "max_ejection_time": "1s"}
LASTING = {"consecutive_failures": 3, "base_ejection_time": "10m", "max_ejection_time": "10m"}


@pytest.fixture(scope="module")
def four() -> Iterator[list[ProbedReplica]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(ProbedReplica(name)) for name in "abcd"]


@pytest.fixture(scope="module")
def deployment(four: list[ProbedReplica]) -> Iterator[Watched]:
    """One gateway for all: each test has a model of its own, with the same replicas."""
    models = {
        "again": model(*four, health=HASTY, idempotent=True),
        "once": model(*four[:2], health=HASTY, idempotent=False),
        "busy": model(four[0], health=BUSY, idempotent=False),
        "flaps": model(*four, health=NERVOUS, idempotent=False, slow_start="100ms"),
        "fails": model(*four, health=PROBED, idempotent=False, outlier_detection=LASTING),
        "recovers": model(*four, health=PROBED, idempotent=True, outlier_detection=SHORT_EJECTION),
    }
    with watched(models=models, workers=2) as deployment:
        yield deployment


@pytest.fixture
def stubs(four: list[ProbedReplica], deployment: Watched) -> list[ProbedReplica]:
    """All well, in every eye but that of the test about ejection, which lasts."""
    for stub in four:
        stub.ready()
        stub.answer_all(PACED)
    for name, view in deployment.admin.models().items():
        for id in "abcd"[: view.replicas]:
            deployment.admin.wait_state(id, "ready", "ejected", model=name)
    return four


def of(name: str) -> dict[str, Any]:
    """What a request to this model brings."""
    return {"headers": {"steelyard-model": name, "steelyard-timeout-ms": "25000"}}


class Held:
    """Requests that wait at the replicas they were sent to, several at each."""

    def __init__(self, gateway: Serving, name: str, stubs: list[ProbedReplica]) -> None:
        self.gate = new_id("gate")
        self.running: dict[str, Connection] = {}
        for _ in range(4 * len(stubs)):
            id, connection = new_id("h"), gateway.connect()
            connection.send(request("POST", id=id, script=scripts.held(self.gate), **of(name)))
            self.running[id] = connection
        there = 4 * len(stubs)
        wait_until(lambda: sum(len(stub.of("waiting", gate=self.gate)) for stub in stubs) == there, "not all arrived")

    def at(self, stub: StubReplica) -> set[str]:
        return {event["id"] for event in stub.of("waiting", gate=self.gate)}

    def answer(self, id: str) -> Response:
        with self.running.pop(id) as connection:
            return connection.response()


class TestFrozen:
    def test_what_may_be_retried_is_answered_by_others(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        (gateway, admin), d = deployment, stubs[3]
        held = Held(gateway, "again", stubs)
        stuck = held.at(d)
        assert stuck
        d.freeze()
        try:
            for stub in stubs[:3]:
                stub.open(held.gate)
            for id in held.running.keys() - stuck:
                assert held.answer(id).status == 200
            for id in stuck:
                response = held.answer(id)
                assert response.status == 200, response
                assert b'"replica": "d"' not in response.body
            for stub in stubs[:3]:
                stub.sync()
            for id in stuck:
                assert sum(len(stub.of("request", id=id)) for stub in stubs) == 2
            admin.wait_state("d", "unreachable", model="again")
            after = {new_id("after") for _ in range(40)}
            for id in after:
                assert gateway.ask("POST", id=id, **of("again")).status == 200
        finally:
            d.thaw()
        d.sync()
        assert not {event["id"] for event in d.real()} & after, "it got requests after it was found frozen"
        mark = d.mark
        admin.wait_ready("d", model="again")
        with traffic(gateway, Ledger(*stubs), options=lambda: of("again")):
            d.wait_real(1, mark)

    def test_what_must_not_run_twice_waits_for_it(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        (gateway, admin), (a, b) = deployment, stubs[:2]
        held = Held(gateway, "once", [a, b])
        stuck = held.at(b)
        b.freeze()
        try:
            admin.wait_state("b", "unreachable", model="once")
            a.open(held.gate)
            for id in held.running.keys() - stuck:
                assert held.answer(id).status == 200
        finally:
            b.thaw()
        b.open(held.gate)
        for id in stuck:
            response = held.answer(id)
            assert response.status == 200
            assert b'"replica": "b"' in response.body
            assert a.of("request", id=id) == []
        admin.wait_ready("b", model="once")

    @pytest.mark.slow
    def test_under_load_nobody_is_lost(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        (gateway, admin), d = deployment, stubs[3]
        ledger = Ledger(*stubs)
        with traffic(gateway, ledger, clients=6, may_retry=True, options=lambda: of("again")):
            d.wait_real(10, d.mark)
            d.freeze()
            admin.wait_state("d", "unreachable", model="again")
            d.thaw()
            mark = d.mark
            admin.wait_ready("d", model="again")
            d.wait_real(5, mark)
        ledger.check()
        assert set(ledger.count()) == {"ok"}

    @pytest.mark.slow
    def test_with_nothing_to_do_silence_is_an_absence(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        stubs[0].freeze()
        deployment.admin.wait_state("a", "unreachable", model="busy")
        stubs[0].thaw()
        deployment.admin.wait_ready("a", model="busy")


class TestBusy:
    """One thread, deep in its work: it answers no probe, and it is well."""

    @pytest.mark.parametrize("how", [pytest.param("long requests", marks=pytest.mark.slow), "with pauses", "a stream"])
    def test_is_not_taken_out(self, deployment: Watched, stubs: list[ProbedReplica], how: str) -> None:
        results = wait_until(lambda: stays(deployment, stubs[0], how), "never a quiet moment", 2 * WAIT_TIMEOUT_SECONDS)
        assert "no_response" in results, "its probes were answered, so this shows nothing"


def stays(deployment: Watched, stub: ProbedReplica, how: str) -> set[str]:
    """The results of its probes while it is busy; its state must be ready all along. Nothing, if this machine was so
    slow that it seemed to be stuck, or had nothing to do."""
    piece: scripts.Script = [["send", scripts.chunk("data: 1\n\n")], ["block", 0.4]]
    stream = [["body"], ["send", scripts.SSE_HEAD], *(piece * 6), ["send", "0\r\n\r\n"]]
    script = stream if how == "a stream" else [["body"], ["block", 0.5], ["reply"]]
    seconds, times = (2.4, 1) if how == "a stream" else (0.5, 5)
    admin = deployment.admin
    admin.wait_ready("a", model="busy")
    mark = stub.mark

    def client() -> float:
        """The most that anything took longer than it should."""
        late = [0.0]
        with deployment.gateway.connect() as connection:
            for _ in range(times):
                began = time.monotonic()
                status = connection.ask("POST", script=script, **of("busy")).status
                if status == 503 and not stub.real(mark):
                    return seconds  # with nothing to do yet it was too slow for a probe
                assert status == 200
                time.sleep(0.03 if how == "with pauses" else 0)
                late.append(time.monotonic() - began - seconds)
        return max(late)

    views = []
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(client)
        while not busy.done():
            if stub.real(mark):
                views.append(admin.replica("a", "busy"))
            time.sleep(0.05)
        if busy.exception() is None and busy.result() > 0.3:
            return set()
        states = {state for view in views for state in (view.state, view.balancer.state)}
        assert states == {"ready"}, views
        busy.result()
    return {view.probe.result for view in views if view.probe is not None}


class TestFlapping:
    def test_is_damped(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        """Ready for some probes, unready for one or two, again and again."""
        (gateway, admin), ledger, d = deployment, Ledger(*stubs), stubs[3]
        with traffic(gateway, ledger, clients=4, options=lambda: of("flaps")):
            while probe_of(admin, d).required_successes < 8:
                flap(admin, d, lambda: admin.replica("d", "flaps").state == "ready")
            marks = {stub.name: stub.mark for stub in stubs}
            for _ in range(3):
                flap(admin, d, lambda: probe_of(admin, d).consecutive_successes >= 3)
            got = {stub.name: len(stub.real(marks[stub.name])) for stub in stubs}
            assert got["d"] <= 0.05 * sum(got.values()), f"a fair share would be a quarter: {got}"
            mark = d.mark
            d.ready()
            d.wait_real(1, mark)  # it is not out for ever
        ledger.check()
        assert set(ledger.count()) == {"ok"}


def flap(admin: AdminClient, stub: ProbedReplica, enough: Callable[[], bool]) -> None:
    """Ready until it is enough, and then not any more."""
    stub.ready()
    wait_until(enough, "it is not seen to be ready")
    stub.loading()
    wait_until(lambda: probe_of(admin, stub).result == "loading", "it is not seen to be loading")


def probe_of(admin: AdminClient, stub: ProbedReplica) -> ProbeView:
    probe = admin.replica(stub.name, "flaps").probe
    assert probe is not None
    return probe


class TestErrorsAtOnce:
    def test_ejected_by_one_worker_ejected_by_all(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        """Its probes are fine: only the requests tell, and only one worker gets any."""
        (gateway, admin), bad = deployment, stubs[0]
        ledger = Ledger(*stubs)
        bad.answer_all(scripts.fails(500))
        first, second = one_on_each_worker(gateway)
        with first, second:
            wait_until(
                lambda: (
                    ledger.ask(first, may_retry=False, **of("fails")) and admin.replica("a", "fails").state == "ejected"
                ),
                "it is not ejected",
            )
            assert ledger.count()["error 500"] >= 3
            view = admin.wait_state("a", "ejected", model="fails")
            assert view.balancer.ejected_for > 0
            mark = bad.mark
            for connection in (second, first):
                for _ in range(30):
                    assert ledger.ask(connection, may_retry=False, **of("fails")) == "ok"
            bad.untouched(mark)
            assert admin.replica("a", "fails").state == "ejected", "a good probe lifted the ejection"
        ledger.check()

    @pytest.mark.slow
    def test_is_tried_again_after_its_time(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        (gateway, admin), bad = deployment, stubs[0]
        ledger = Ledger(*stubs)
        bad.answer_all(scripts.fails(500))
        with traffic(gateway, ledger, clients=4, may_retry=True, options=lambda: of("recovers")):
            admin.wait_state("a", "ejected", model="recovers")
            bad.answer_all(PACED)
            admin.wait_ready("a", model="recovers")
            mark = bad.mark
            bad.wait_real(10, mark)
        ledger.check()
        assert set(ledger.count()) == {"ok"}


def one_on_each_worker(gateway: Serving) -> tuple[Connection, Connection]:
    found: dict[int, Connection] = {}
    for _ in range(200):
        connection = gateway.connect()
        pid = gateway.worker_of(connection)
        if pid in found:
            connection.close()
        found.setdefault(pid, connection)
        if len(found) == 2:
            first, second = found.values()
            return first, second
    raise AssertionError("all connections go to one worker")
