"""A replica that is up is not a replica that is ready: cold ones, all unready, killed and started again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.harness import WAIT_TIMEOUT_SECONDS, Ledger, model, new_id, nothing_left, request, scripts, wait_until
from tests.harness.admin import PROBED
from tests.harness.replicas.probed import HEALTH, PACED, ProbedReplica, Watched, watched
from tests.harness.traffic import traffic

pytestmark = pytest.mark.xdist_group("ready")

WARM_UP = {"path": "/warm", "body": {"warm": True}, "times": 2}


@pytest.fixture(scope="module")
def four() -> Iterator[list[ProbedReplica]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(ProbedReplica(name)) for name in "abcd"]


@pytest.fixture(scope="module")
def shared(four: list[ProbedReplica]) -> Iterator[Watched]:
    """One gateway for most tests here, each with a model of its own; what is killed is not what is only unready."""
    unready, killed = four[:2], four[2:]
    models = {
        "ramp": model(*unready, idempotent=False, slow_start="1s"),
        "loses": model(*unready, idempotent=False),
        "warm": model(*killed, idempotent=True, health=PROBED | {"warm_up": [WARM_UP]}),
        "rare": model(*killed, idempotent=True, health=PROBED | {"interval": "60s"}),
    }
    with watched(models=models) as deployment:
        yield deployment


@pytest.fixture
def stubs(four: list[ProbedReplica]) -> list[ProbedReplica]:
    for stub in four:
        stub.ready()
    return four


@pytest.fixture
def deployment(shared: Watched, stubs: list[ProbedReplica]) -> Watched:
    for view in shared.admin.fleet().replicas:
        shared.admin.wait_ready(view.id, model=view.model)
    return shared


def of(name: str) -> dict[str, Any]:
    """What a request to this model brings."""
    return {"headers": {"steelyard-model": name}}


def place(stub: ProbedReplica, event: dict[str, Any]) -> int:
    """Where in the stub's own log."""
    return next(number for number, seen in enumerate(stub.events) if seen is event)


class TestCold:
    def test_nothing_before_it_is_ready_and_then_more_and_more(
        self, deployment: Watched, stubs: list[ProbedReplica]
    ) -> None:
        (gateway, admin), (a, b) = deployment, stubs[:2]

        def ramps() -> bool:
            """False: this machine was too slow to see it."""
            ledger, shares, looked = Ledger(a, b), [0.0], []
            b.loading()
            shown = admin.wait_state("b", "loading", model="ramp").probe
            assert shown is not None
            assert shown.result == "loading"
            assert shown.loading_for is not None
            mark = b.mark
            with nothing_left(gateway, spare=1), traffic(gateway, ledger, options=lambda: of("ramp")):
                a.wait_real(50, a.mark)
                b.untouched(mark)
                b.ready()
                first = b.wait_real(1, mark)
                at, shares = first["at"], []
                while time.monotonic() < at + 2.2 or shares[-1] < 1.0:  # the ramp and a while after it
                    shares.append(admin.replica("b", "ramp").balancer.effective_weight)
                    looked.append(time.monotonic())
                    time.sleep(0.1)
            assert place(b, first) > place(b, b.of("told", path=HEALTH)[-1]), "requests came before it was ready"
            ledger.check()
            assert set(ledger.count()) == {"ok"}
            asked = [event["at"] for stub in (a, b) for event in stub.real() if at <= event["at"] <= at + 2.2]
            if longest_pause(at, looked) > 0.5 or longest_pause(at, asked) > 0.25:
                return False
            assert share_of(b, a, at, at + 0.3) < share_of(b, a, at + 1.2, at + 2.2)
            assert min(shares) < shares[-1] == 1.0
            return True

        wait_until(ramps, "never a quiet moment", timeout=2 * WAIT_TIMEOUT_SECONDS)

    def test_it_may_lose_its_readiness_again(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        """A model that is unloaded or reloaded: it answers, but wants nothing."""
        (gateway, admin), (a, b) = deployment, stubs[:2]
        ledger = Ledger(a, b)
        with traffic(gateway, ledger, options=lambda: of("loses")):
            b.wait_real(5, b.mark)
            b.loading()
            admin.wait_state("b", "loading", model="loses")
            mark = b.mark
            a.wait_real(40, a.mark)
            b.untouched(mark)
            b.ready()
            b.wait_real(1, mark)
        ledger.check()
        assert set(ledger.count()) == {"ok"}

    def test_nobody_said_how_to_ask(self) -> None:
        """No dialect, no path: it is found out. Being away for some looks tells nothing of what it will answer."""
        with contextlib.ExitStack() as stack:
            cold = [ProbedReplica(f"cold-{number}", script=scripts.fails(404)) for number in range(3)]
            for stub in cold:
                stack.enter_context(stub)
                stub.kill()
            with watched(*cold, health={"path": ""}) as (_, admin):
                for stub in cold:
                    admin.wait_state(stub.name, "unreachable")
                for stub in cold:  # one after the other, so each after another number of looks
                    mark = stub.mark
                    stub.restart(ready=False)
                    stub.wait_for(lambda stub=stub, mark=mark: len(stub.probes(mark)) >= 2, "nobody asks its /health")
                for stub in cold:
                    admin.wait_state(stub.name, "loading")
                early = [event for event in admin.events() if event.message.startswith("ready")]
                assert not early, "ready, although its /health said 503"
                for stub in cold:
                    stub.ready()
                admin.wait_ready(*(stub.name for stub in cold))


def longest_pause(start: float, times: list[float]) -> float:
    """Of the seconds between two of these, the first of which came at `start` or after it."""
    ordered = [start, *sorted(times)]
    return max(later - earlier for earlier, later in pairwise(ordered))


def share_of(one: ProbedReplica, other: ProbedReplica, start: float, end: float) -> float:
    """Of the requests that came in this time, those that went to `one`."""
    mine, others = (sum(start <= event["at"] < end for event in stub.real()) for stub in (one, other))
    return mine / max(1, mine + others)


class TestNobodyReady:
    @pytest.fixture(scope="class")
    @classmethod
    def alone(cls, four: list[ProbedReplica]) -> Iterator[Watched]:
        models = {"*": model(*four[:2], idempotent=False), "patient": model(*four[:2], wait_for_ready=True)}
        with watched(models=models) as deployment:
            yield deployment

    def refused(self, deployment: Watched) -> None:
        response = deployment.gateway.ask("POST")
        assert response.status == 503
        assert response.headers["steelyard-reason"] == "no_replica"
        assert int(response.headers["retry-after"]) >= 1
        unready = deployment.admin.ready()
        assert unready.status_code == 503
        assert unready.json()["reasons"]
        assert deployment.admin.http.get("/healthz").status_code == 200, "it is not Steelyard that is sick"

    def wait(self, deployment: Watched, *states: str) -> None:
        for name in ("*", "patient"):
            for id in "ab":
                deployment.admin.wait_state(id, *states, model=name)

    def test_says_so_and_recovers(self, alone: Watched, stubs: list[ProbedReplica]) -> None:
        """Who may wait waits, everybody else is told at once."""
        a, b = stubs[:2]
        self.wait(alone, "ready")
        for stub in (a, b):
            stub.loading()
        self.wait(alone, "loading")
        self.refused(alone)
        id, marks = new_id(), (a.mark, b.mark)
        with alone.gateway.connect() as waiting:
            waiting.send(request("POST", id=id, **of("patient")))
            assert waiting.quiet(0.3)
            for stub, mark in zip((a, b), marks, strict=True):
                stub.untouched(mark)
                stub.ready()
            assert f'"{id}"'.encode() in waiting.response().body
        self.wait(alone, "ready")
        assert alone.admin.ready().status_code == 200
        assert alone.gateway.ask("POST").status == 200

    def test_all_restart_at_once(self, alone: Watched, stubs: list[ProbedReplica]) -> None:
        """What runs is lost with them; from then on it is a clear 503, until they are ready: then it goes by itself."""
        a, b = stubs[:2]
        ledger, quiet = Ledger(a, b), Ledger(a, b)
        self.wait(alone, "ready")
        with traffic(alone.gateway, ledger, patient=True):
            a.wait_real(20, a.mark)
            for stub in (a, b):
                stub.kill()
            marks = [stub.mark for stub in (a, b)]
            self.wait(alone, "unreachable")
            with alone.gateway.connect() as connection:
                for _ in range(10):
                    assert quiet.ask(connection, may_retry=False) == "error 503 no_replica"
            self.refused(alone)
            for stub in (a, b):
                stub.restart(ready=False)
            self.wait(alone, "loading")
            self.refused(alone)
            for stub, mark in zip((a, b), marks, strict=True):
                stub.untouched(mark)
            a.ready()
            a.wait_real(20, marks[0])
            b.untouched(marks[1])
            b.ready()
            b.wait_real(5, marks[1])
        ledger.check()
        counts = ledger.count()
        broken = [end for end in counts if end.startswith("error 502")]
        assert set(counts) <= {"ok", "error 503 no_replica", *broken}
        assert sum(counts[end] for end in broken) <= 12, "more than was running when they died"


class TestKilled:
    def test_comes_back_through_loading_and_warm_up(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        (gateway, admin), (c, d) = deployment, stubs[2:]
        ledger = Ledger(c, d)
        with traffic(gateway, ledger, may_retry=True, options=lambda: of("warm")):
            d.wait_real(5, d.mark)
            d.kill()
            mark = d.mark
            admin.wait_state("d", "unreachable", model="warm")
            d.restart(ready=False)
            admin.wait_state("d", "loading", model="warm")
            c.wait_real(30, c.mark)
            d.untouched(mark)
            assert warm_ups(d, mark) == []
            d.ready()
            first = d.wait_real(1, mark)
        warm = warm_ups(d, mark)
        assert len(warm) == 2
        assert place(d, d.of("told", path=HEALTH)[-1]) < place(d, warm[0])
        assert place(d, warm[-1]) < place(d, first), "a real request before the warm-up was over"
        assert dict(warm[0]["headers"])["content-length"] != "0"
        ledger.check()
        assert set(ledger.count()) == {"ok"}

    @pytest.mark.slow
    def test_a_warm_up_that_takes_long_delays_it(self, stubs: list[ProbedReplica]) -> None:
        c, d = stubs[2:]
        gate, ledger = new_id("gate"), Ledger(c, d)
        d.on_path("/warm", scripts.held(gate))
        with watched(c, d, idempotent=False, health={"warm_up": [WARM_UP]}) as (gateway, admin):
            admin.wait_ready("c")
            d.wait("waiting", gate=gate)
            mark = d.mark
            with traffic(gateway, ledger):
                c.wait_real(30, c.mark)
                d.untouched(mark)
                assert admin.states()["d"] in ("starting", "loading")
                d.open(gate)
                d.wait_real(5, mark)
        d.on_path("/warm", PACED)
        ledger.check()
        assert set(ledger.count()) == {"ok"}

    def test_a_restart_between_two_probes_is_noticed(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        """Nobody looks for a minute: a request that finds nobody there must be enough."""
        (gateway, admin), (c, d) = deployment, stubs[2:]
        ledger = Ledger(c, d)
        with traffic(gateway, ledger, may_retry=True, options=lambda: of("rare")):
            d.wait_real(5, d.mark)
            d.kill()
            mark = d.mark
            c.wait_real(20, c.mark)
            d.restart(ready=False)
            c.wait_real(50, c.mark)
            d.untouched(mark)
            admin.wait_state("d", "loading", "unreachable", model="rare")
            d.ready()
            d.wait_real(5, mark)
        ledger.check()
        assert set(ledger.count()) == {"ok"}

    def test_a_restart_that_says_who_it_is(self, deployment: Watched, stubs: list[ProbedReplica]) -> None:
        """Nobody saw it away, but what answers now is another process: it is warmed up like any other."""
        admin, d = deployment.admin, stubs[3]
        d.on_path(HEALTH, scripts.plain("ready", 200, {"steelyard-instance": "first"}))
        wait_until(lambda: instance(deployment) == "first", "who it is is not shown")
        admin.wait_ready("d", model="warm")
        before = admin.replica("d", "warm").probe
        mark = d.mark
        d.on_path(HEALTH, scripts.plain("ready", 200, {"steelyard-instance": "second"}))
        wait_until(lambda: len(warm_ups(d, mark)) == 2, "a new instance is not warmed up")
        admin.wait_ready("d", model="warm")
        after = admin.replica("d", "warm").probe
        assert before is not None
        assert after is not None
        assert (after.instance, after.restarts) == ("second", before.restarts + 1)


def instance(deployment: Watched) -> str:
    probe = deployment.admin.replica("d", "warm").probe
    return probe.instance if probe is not None else ""


def warm_ups(stub: ProbedReplica, since: int = 0) -> list[dict[str, Any]]:
    return stub.of("request", since, target="/warm", method="POST")
