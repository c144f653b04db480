"""The fleet made visible."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from steelyard import __version__
from steelyard.config import ReplicaConfig
from steelyard.control.observability.alarms import (
    LOADING_ALARM_SECONDS,
    UNREACHABLE_ALARM_SECONDS,
    models_without_replicas,
)
from steelyard.control.observability.fleet_view import SHOWN_SCALING_STEPS, fleet_view
from steelyard.control.observability.retired_workers import RetiredTotals
from steelyard.control.observability.views import (
    Alarm,
    BalancerProcessView,
    FleetView,
    ReplicaView,
    ScalingStepView,
    ScalingView,
    StartFailureView,
    WorkerView,
)
from steelyard.control.workers.pool import WorkerPool
from steelyard.core.outliers.ejection_reason import EjectionReason, EjectionRule
from steelyard.core.replica import Event
from steelyard.link.messages import ModelReport, ReplicaReport, WorkerReport

from ..admin.fake_operations import shown
from ..fakes import Played, acted, made

FIRST = "{id: a, url: 'http://127.0.0.1:9', zone: z, device: d, weight: 2}"
TWO = f"models: {{m: {{replicas: [{FIRST}, {{id: b, url: 'http://127.0.0.1:10'}}]}}, n: {{}}}}"
A, B = ("m", "a"), ("m", "b")


class Reporting:
    """What a pool says of its workers."""

    def __init__(self, *reports: WorkerReport | None) -> None:
        self._reports = reports
        self.retired = RetiredTotals()

    def workers(self) -> list[Any]:
        class One:
            def __init__(self, index: int, report: WorkerReport | None) -> None:
                self.index, self.report = index, report

        return [One(index, report) for index, report in enumerate(self._reports)]

    def reports(self) -> list[WorkerReport]:
        return [report for report in self._reports if report is not None]

    def balancer_status(self) -> BalancerProcessView | None:
        return None

    def unavailable_balancer(self) -> BalancerProcessView | None:
        return None

    def status(self) -> tuple[WorkerView, ...]:
        return tuple(
            WorkerView(index=n, pid=100 + n, serving=r is not None, connections=n) for n, r in enumerate(self._reports)
        )


def seen(id: str = "a", state: str = "ready", **more: Any) -> ReplicaReport:
    usual = {"in_flight": 0, "dispatched": 0, "failures": 0, "work": 0.0, "slowness": 1.0}
    return ReplicaReport("m", id, state, **(usual | more))


def traffic(**counts: Any) -> ReplicaReport:
    """Of a worker that asks a balancer process."""
    return ReplicaReport("m", "a", **counts)


def report(*replicas: ReplicaReport, **model: Any) -> WorkerReport:
    one = ModelReport("m", **{"waiting": 0, "in_flight": 0, "outcomes": {}, "latency": {}, **model})
    return WorkerReport(0, (one,), replicas)


def show(stage: Played, *reports: WorkerReport | None) -> FleetView:
    return fleet_view(stage.fleet, stage.controllers, cast(WorkerPool, Reporting(*reports)), stage.fleet.now() - 5.0)


def one(view: FleetView, id: str = "a") -> ReplicaView:
    (found,) = [replica for replica in view.replicas if replica.id == id]
    return found


@acted(TWO)
async def test_before_any_worker_reports_everybody_is_there(stage: Played) -> None:
    view = show(stage)
    assert view.version == __version__
    assert view.uptime >= 5.0
    assert [(r.model, r.id, r.state, r.reason) for r in view.replicas] == [
        ("m", "a", "starting", "not looked at yet"),
        ("m", "b", "starting", "not looked at yet"),
    ]
    a = one(view)
    assert (a.url, a.source, a.weight, a.zone, a.device) == ("http://127.0.0.1:9", "config", 2.0, "z", "d")
    assert (a.lease, a.balancer, a.draining) == (None, None, False)
    assert [(m.model, m.replicas, m.ready, m.p50, m.p99) for m in view.models] == [
        ("m", 2, 0, None, None),
        ("n", 0, 0, None, None),
    ]
    reason = "a is starting: not looked at yet"
    assert [alarm.message for alarm in view.alarms] == [
        f"no replica of m is ready: {reason}",
        "no replica of n is ready",
    ]


@acted(TWO)
async def test_the_supervisor_s_state_is_shown_whatever_workers_have_heard_yet(stage: Played) -> None:
    stage.prober.sees(A, Event.LOST, "refuses connections")
    view = one(show(stage, report(seen("a", "ready"), seen("b", "starting"))))
    assert (view.state, view.reason) == ("unreachable", "refuses connections")


@acted(TWO)
async def test_an_ejection_is_the_balancers_to_tell(stage: Played) -> None:
    stage.prober.sees(A)
    reason = EjectionReason(EjectionRule.CONSECUTIVE_FAILURES, 5, last_failure="answered 500", all_same=True)
    out = seen("a", "ejected", ejection_left=20.0, consecutive_ejections=2, ejection_reason=reason, ejected_since=10.0)
    view = show(stage, report(traffic()), report(out))
    assert (one(view).state, one(view).reason) == ("ejected", "5 in a row answered 500")
    assert one(view).state_age == pytest.approx(10.0, abs=0.1), "it counts from the ejection"
    assert one(view).balancer is not None
    assert one(view).balancer.ejected_for == 20.0
    assert view.models[0].ready == 0
    view = show(stage, report(traffic()), report(seen("a")))
    assert (one(view).state, view.models[0].ready) == ("ready", 1)


@acted(TWO)
async def test_one_that_is_out_anyway_is_not_shown_as_ejected(stage: Played) -> None:
    stage.prober.sees(A)
    stage.fleet.transition(A, Event.DRAIN, "an operator drains it")
    view = one(show(stage, report(seen("a", "ejected", ejection_left=20.0))))
    assert (view.state, view.draining, view.reason) == ("draining", True, "an operator drains it")


@acted(TWO)
async def test_traffic_is_added_up_and_the_balancer_says_the_rest(stage: Played) -> None:
    first = traffic(in_flight=2, dispatched=10, failures=1)
    second = traffic(in_flight=1, dispatched=5, failures=2, cache=0.5)
    decided = seen("a", work=2.0, slowness=3.0, samples=20, limit=4, external_load=2, p99=0.2)
    view = one(show(stage, report(first), None, report(second), report(decided)))
    assert (view.in_flight, view.dispatched, view.failures, view.work, view.slowness) == (3, 15, 3, 2.0, 3.0)
    assert view.balancer is not None
    assert (view.balancer.limit, view.balancer.external_load, view.balancer.p99) == (4, 2, 0.2)


@acted(TWO)
async def test_models_are_added_up(stage: Played) -> None:
    stage.prober.sees(A)
    reports = (
        report(traffic(), in_flight=2, outcomes={"ok": 3}, latency={3000: 3}),
        report(traffic(), in_flight=1, outcomes={"ok": 1}, latency={3000: 1}),
        report(seen(), waiting=3, typical_seconds=0.2, learned=True, service_rate=2.0, panicking=True),
    )
    model = show(stage, *reports).models[0]
    assert (model.waiting, model.in_flight, model.outcomes) == (3, 3, {"ok": 4})
    assert model.typical_seconds == pytest.approx(0.2)
    assert (model.service_rate, model.panic_mode) == (2.0, True)
    assert model.p50 is not None
    assert model.p50 == model.p99


@acted(TWO)
async def test_workers_are_shown(stage: Played) -> None:
    view = show(stage, report(), None)
    assert [(w.index, w.pid, w.serving, w.connections) for w in view.workers] == [
        (0, 100, True, 0),
        (1, 101, False, 1),
    ]


@acted(TWO)
async def test_what_workers_say_of_those_who_are_gone_is_not_shown(stage: Played) -> None:
    other = ReplicaReport("gone", "a", "ready", 1, 1, 0, 0.0, 1.0)
    view = show(stage, report(seen("a"), seen("gone")), report(other))
    assert {(r.model, r.id) for r in view.replicas} == {A, B}
    assert [m.model for m in view.models] == ["m", "n"]


@acted(TWO)
async def test_whoever_is_on_the_way_is_shown_when_it_is_there(stage: Played) -> None:
    stage.worker_pool.slow = True
    changing = asyncio.create_task(stage.fleet.configure(made(TWO.replace(":9'", ":11'"))))
    await stage.settle()
    assert {r.id for r in show(stage).replicas} == {"b"}
    stage.fleet.members.discovered("n", (ReplicaConfig(url="http://127.0.0.1:12", id="c"),))
    assert {r.id for r in show(stage).replicas} == {"b"}
    stage.worker_pool.answer()
    await changing
    await stage.settle()
    assert {r.id for r in show(stage).replicas} == {"a", "b", "c"}


@acted(TWO)
async def test_long_loading_is_an_alarm(stage: Played) -> None:
    stage.prober.sees(A, Event.LIVE, "503")
    stage.prober.sees(B)
    assert [alarm.code for alarm in show(stage).alarms] == ["no_ready_replica"]  # of n
    stage.clock.ahead += LOADING_ALARM_SECONDS + 1.0
    (alarm,) = [alarm for alarm in show(stage).alarms if alarm.code == "replica_not_ready"]
    assert alarm.message == "m/a: not ready for 10 min: loading: 503"
    assert (alarm.model, alarm.replica) == A
    assert alarm.age > LOADING_ALARM_SECONDS


@acted(TWO)
async def test_a_replica_that_comes_up_and_dies_again_and_again_is_an_alarm(stage: Played) -> None:
    stage.prober.sees(B)
    for _ in range(4):
        stage.prober.sees(A, Event.LIVE, "503")
        stage.clock.ahead += UNREACHABLE_ALARM_SECONDS / 4
        stage.prober.sees(A, Event.LOST, "refuses connections")
    stage.clock.ahead += 1.0
    assert ("replica_not_ready", "m/a: not ready for 2 min: unreachable: refuses connections") in [
        (alarm.code, alarm.message) for alarm in show(stage).alarms
    ]
    stage.prober.sees(A)
    assert [alarm.code for alarm in show(stage).alarms] == ["no_ready_replica"]  # of n


@acted(TWO)
async def test_how_slow_a_replica_is_is_said_only_with_evidence(stage: Played) -> None:
    few = one(show(stage, report(seen("a", slowness=16.5, samples=19, sampled_age=3.0))))
    assert (few.slowness, few.slowness_samples, few.slowness_age) == (None, 19, 3.0)
    idle, busy = seen("a", slowness=1.0, samples=0), seen("a", slowness=4.0, samples=80, sampled_age=60.0)
    enough = one(show(stage, report(idle), report(busy)))
    assert (enough.slowness, enough.slowness_samples, enough.slowness_age) == (4.0, 80, 60.0)
    assert one(show(stage, report(idle))).slowness_age is None


@acted(TWO)
async def test_a_ready_replica_that_fails_is_counted_beside_the_ready_ones(stage: Played) -> None:
    stage.prober.sees(A)
    stage.prober.sees(B)
    failed = seen(
        "a", dispatched=10, failures=7, outcomes={"ok": 3, "error": 7}, last_error="HTTP 500", last_error_age=2.0
    )
    show(stage, report(seen("a"), seen("b")))
    view = show(stage, report(failed, seen("b", dispatched=9, outcomes={"ok": 9})))
    assert (view.models[0].ready, view.models[0].failing) == (2, 1)
    recent = one(view).recent
    assert (recent.attempts, recent.failed, recent.last_error) == (10, 7, "HTTP 500")
    assert recent.last_error_age is not None
    assert 2.0 <= recent.last_error_age < 60.0
    assert one(view, "b").recent.failed == 0


@acted(TWO)
async def test_for_how_long_nobody_has_been_ready(stage: Played) -> None:
    stage.prober.sees(A)
    stage.prober.sees(B)
    stage.clock.ahead += 9000.0
    stage.prober.sees(A, Event.LOST, "refused")
    stage.clock.ahead += 9000.0
    stage.prober.sees(B, Event.LOST, "refused")  # the last that was ready: it counts from here
    stage.clock.ahead += 20.0
    stage.prober.sees(A, Event.LIVE, "503")  # up, and still nobody is ready
    ages = {alarm.message: alarm.age for alarm in show(stage).alarms}
    assert ages.keys() == {"no replica of m is ready: a is loading: 503", "no replica of n is ready"}
    assert 20.0 <= ages["no replica of m is ready: a is loading: 503"] < 9000.0
    assert ages["no replica of n is ready"] >= 5.0  # it never had any: since the gateway began


@acted(TWO)
async def test_what_operators_set_is_marked(stage: Played) -> None:
    stage.fleet.members.registry.model_overrides["m"] = {"concurrency": 3}
    assert [model.overridden for model in show(stage).models] == [("concurrency",), ()]


@acted("models: {m: {dialect: vllm, replicas: [{id: a, url: 'http://127.0.0.1:9'}]}}")
async def test_load_that_replicas_tell_is_shown_with_its_age(stage: Played) -> None:
    view = one(show(stage, report(seen("a", external_load=2), seen("b")), report(seen("a", external_load=3))))
    assert view.load_signals is not None
    assert (view.load_signals.age, view.load_signals.stale) == (None, False)
    assert view.balancer is not None
    assert view.balancer.external_load == 3


# ---------------------------------------------------------------------- scaling


def scaled(model: str = "m", **more: Any) -> ScalingView:
    """It rests at zero."""
    return shown(
        ScalingView,
        **({"model": model, "mode": "act", "scaler": "work", "min_replicas": 0, "desired": 0, "starting": 0} | more),
    )


def looping(yes: bool = True) -> StartFailureView:
    return shown(StartFailureView, crash_looping=yes)


def stage_scaling(stage: Played, *views: ScalingView, alarms: tuple[Alarm, ...] = ()) -> None:
    """What the controller and the autoscaler say."""
    starting, scaling = cast(Any, stage.controllers.replicas), cast(Any, stage.controllers.autoscaler)
    scaling.views = lambda: views
    starting.alarms = lambda now: list(alarms[:1])
    scaling.alarms = lambda now: list(alarms[1:])


@pytest.mark.parametrize(
    ("view", "rests"),
    [
        (scaled(), True),
        (scaled(start_failure=looping(False)), True),  # the last start failed, the next may not
        (scaled(start_failure=looping()), False),
        (scaled(desired=1), False),  # somebody asked, and nobody is coming
        (scaled(desired=1, starting=1), True),  # requests wait for it: no reason to send them elsewhere
        (scaled(desired=1, starting=1, start_failure=looping()), False),
        (scaled(min_replicas=1), False),
        (scaled(min_replicas=1, desired=1), False),
        (scaled(mode="recommend"), False),  # nobody would start it
        (scaled(mode="fixed", scaler=""), False),
        (scaled("n"), False),  # another model
    ],
)
def test_a_model_that_rests_at_zero_is_as_it_should_be(view: ScalingView, rests: bool) -> None:
    assert models_without_replicas({"m": 0}, [], [view]) == ({} if rests else {"m": "no replica of m is ready"})
    assert models_without_replicas({"m": 1}, [], [view]) == {}


@acted(TWO)
async def test_a_model_at_rest_is_no_alarm(stage: Played) -> None:
    stage_scaling(stage, scaled("m", desired=1), scaled("n"))
    assert [(alarm.code, alarm.model) for alarm in show(stage).alarms] == [("no_ready_replica", "m")]


@acted(TWO)
async def test_of_how_models_are_scaled_the_last_steps_are_shown(stage: Played) -> None:
    steps = tuple(shown(ScalingStepView, before=n, after=n + 1) for n in range(100))
    stage_scaling(stage, scaled("m", steps=steps), scaled("n", steps=steps[:2]))
    m, n = show(stage).scaling
    assert (m.model, n.model) == ("m", "n")
    assert (m.steps, n.steps) == (steps[-SHOWN_SCALING_STEPS:], steps[:2])


@acted(TWO)
async def test_alarms_of_starting_and_scaling_are_shown(stage: Played) -> None:
    stage.prober.sees(A)
    alarms = (shown(Alarm, code="crash_loop", message="it ends"), shown(Alarm, code="at_most", message="no more"))
    stage_scaling(stage, scaled("n"), alarms=alarms)
    assert show(stage).alarms == alarms


@acted(TWO)
async def test_everything_shown_is_json(stage: Played) -> None:
    stage.prober.sees(A)
    stage_scaling(stage, scaled(steps=(shown(ScalingStepView),), start_failure=looping()))
    view = show(stage, report(seen("a"), outcomes={"ok": 1}, latency={3000: 1}))
    assert msgspec.json.decode(msgspec.json.encode(view), type=FleetView) == view
