"""The autoscaler: what it hears, what it has the controller do, and what it tells."""

import logging

import pytest

from steelyard.control.autoscaling import model_autoscaler
from steelyard.control.replicas.controller import ReplicaCounts
from tests.control.autoscaling.reporting import report
from tests.control.autoscaling.stage import RUNTIME, FixedScaler, Stage, scaled

THREE = "runtime: {command: 'serve {port}', replicas: 3}"
FILE = "replicas: [{url: 'http://127.0.0.1:9'}]"


# ------------------------------------------------------------------ who is scaled


def test_a_model_with_a_runtime_alone_has_as_many_as_configured_at_once():
    stage = Stage(m=THREE).begin()
    assert stage.want() == 3
    stage.turn(5)
    view = stage.view()
    assert (view.mode, view.scaler, view.desired, view.min_replicas, view.max_replicas) == ("fixed", "", 3, 3, 3)
    assert (view.reason, view.starting, view.steps) == ("as configured", 3, ())
    assert len(stage.controller.calls) == 1
    stage.follow(m=RUNTIME)
    assert stage.want() == 1


def test_a_model_without_runtime_and_autoscale_does_not_concern_it():
    stage = Stage(m=FILE).begin()
    stage.turn(5)
    assert stage.scaler.views() == ()
    assert stage.controller.calls == []


def test_a_model_that_is_gone_is_forgotten():
    stage = Stage(m=scaled(), n=THREE).begin()
    stage.follow(n=THREE)
    stage.turn(5)
    assert [view.model for view in stage.scaler.views()] == ["n"]


# ------------------------------------------------------------------ numbers


def test_it_begins_with_the_least_and_goes_where_the_scaler_says():
    stage = Stage(m=scaled("min: 2, max: 8")).begin()
    assert stage.want() == 2
    stage.turn()
    stage.controller.all_ready()
    stage.say(5)
    assert stage.want() == 5
    stage.controller.all_ready()
    stage.say(3)
    assert stage.want() == 3
    assert stage.words() == ["2 → 5: so it was told", "5 → 3: so it was told"]
    steps = stage.view().steps
    assert [(s.before, s.after, s.reason, s.carried_out) for s in steps] == [
        (2, 5, "2 → 5: so it was told", True),
        (5, 3, "5 → 3: so it was told", True),
    ]
    assert (steps[0].offered_load, steps[0].recent_load, steps[0].forecast_load) == (4.0, 5.0, 6.0)
    assert steps[0].age > steps[1].age


def test_the_same_number_again_is_no_news():
    stage = Stage(m=scaled()).begin()
    stage.say(4, 30)
    stage.controller.all_ready()
    stage.turn(30)
    assert len(stage.words()) == 1
    assert len(stage.controller.calls) == 2


def test_bounds_hold_and_are_shown():
    stage = Stage(m=scaled("min: 1, max: 3")).begin()
    stage.say(9)
    assert stage.want() == 3
    assert "max is 3" in stage.words()[-1]
    view = stage.view()
    assert (view.desired, view.min_replicas, view.max_replicas) == (3, 1, 3)


def test_replicas_that_others_started_count():
    stage = Stage(m=scaled("min: 1") + ", " + FILE)
    stage.others["m"] = 2
    stage.begin()
    assert stage.want() == 0
    stage.say(5)
    assert (stage.want(), stage.view().desired) == (3, 5)
    stage.controller.all_ready()
    stage.say(1)
    assert (stage.want(), stage.view().desired) == (0, 1)


def test_those_of_the_file_are_waited_for_before_any_is_started_for_them():
    stage = Stage(m=scaled() + ", " + FILE).begin()
    stage.turn(2)  # nobody has looked yet
    stage.others["m"] = 1
    stage.turn(60)
    assert stage.controller.calls == [("m", 0, stage.controller.calls[0][2])]
    stage = Stage(m=scaled() + ", " + FILE).begin()
    stage.turn(4)
    assert stage.want() == 0
    stage.turn(2)  # it is down
    assert stage.want() == 1


def test_one_of_others_that_comes_and_goes_does_not_take_ours_along():
    stage = Stage(m=scaled())
    stage.others["m"] = 2
    stage.begin()
    stage.say(4)
    stage.controller.all_ready()
    assert stage.want() == 2
    stage.others["m"] = 1
    stage.turn()
    assert stage.want() == 3
    stage.others["m"] = 2
    stage.turn(20)
    assert stage.want() == 3
    stage.turn(20)
    assert stage.want() == 2


def test_a_decision_at_most_twice_a_second_however_many_report(monkeypatch):
    stage = Stage(m=scaled()).begin()
    times = []
    monkeypatch.setattr(
        model_autoscaler.ModelAutoscaler, "decide", lambda self, *args: _decided(self, times, stage.now)
    )
    for _ in range(400):
        stage.now += 0.01
        stage.reported()
        stage.scaler.tick(stage.now)
    assert 7 <= len(times) <= 9


def test_a_report_too_soon_after_a_decision_does_not_wait_for_the_next_one(monkeypatch):
    stage = Stage(m=scaled()).begin()
    times = []
    monkeypatch.setattr(
        model_autoscaler.ModelAutoscaler, "decide", lambda self, *args: _decided(self, times, stage.now)
    )
    stage.reported()
    stage.now += 0.25
    stage.reported()
    stage.turn(2.0)
    assert [round(when - 1000.0, 2) for when in times] == [0.0, 0.5, 1.5]


def _decided(one, times, now):
    one.decided_at = now
    times.append(now)


def test_new_options_hold_soon():
    stage = Stage(m=scaled("max: 3")).begin()
    stage.say(9)
    assert stage.want() == 3
    stage.follow(m=scaled("max: 6"))
    stage.turn()
    assert stage.want() == 6


# ------------------------------------------------------------------ what it is told


def test_the_scaler_is_told_what_workers_report():
    stage = Stage(m=scaled() + ", concurrency: 4, slo: {latency: 200ms}", n=scaled())
    stage.reports = {"m": [report(), report()], "n": [report("n")] * 2}
    stage.begin()
    stage.turn()
    heard = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FixedScaler, "recommend", lambda self, seen: heard.append(seen) or _TOLD(self, seen))
        one = report(offered_work=3.0, arrived=4, took={0.1: 2, 1.0: 1}, in_flight=1, replica_rate=2.0)
        stage.reports["m"] = [one, report(waiting=2, queued_work=0.5)]
        stage.now += 1.0
        stage.reported()
    seen = heard[0]
    assert (seen.now, seen.ready, seen.starting, seen.cold_start) == (stage.now, 0, 1, 3.0)
    assert (seen.offered, seen.arrived, seen.running, seen.waiting, seen.backlog) == (3.0, 4, 1, 2, 0.5)
    assert (seen.rate, seen.slots, seen.answered, seen.late, seen.slo_seconds) == (2.0, 4.0, 3, 1, 0.2)
    assert heard[1].offered == 0.0


_TOLD = FixedScaler.recommend


def test_with_our_own_scaler_a_flood_of_work_starts_replicas_and_silence_stops_them():
    stage = Stage(m=RUNTIME + ", concurrency: 1, autoscale: {min: 0, max: 9, scale_to_zero_after: 60s}")
    stage.reports = {"m": [report(replica_rate=1.0, learned=True)]}
    stage.begin()
    assert stage.want() == 0
    stage.asks()
    assert stage.want() == 1
    for second in range(120):
        stage.controller.all_ready()
        count = report(offered_work=4.0 * second, arrived=40 * second, in_flight=4, replica_rate=1.0, learned=True)
        stage.reports = {"m": [count]}
        stage.turn()
    assert 5 <= stage.want() <= 8
    assert stage.view().offered_load == pytest.approx(4.0, rel=0.1)
    assert "s/s of work offered" in stage.view().reason
    stage.reports = {"m": [report(offered_work=476.0, arrived=4760, replica_rate=1.0, learned=True)]}
    stage.turn(50)
    assert stage.want() >= 5
    stage.turn(400)
    assert stage.want() == 0
    assert stage.words()[-1].endswith("no request for 60 s")


# ------------------------------------------------------------------ from zero


def test_requests_that_wait_for_a_model_at_zero_start_one_at_once():
    stage = Stage(m=scaled("min: 0")).begin()
    FixedScaler.number = 0
    stage.turn(5)
    assert stage.want() == 0
    for _ in range(50):
        stage.asks()
    assert stage.controller.calls[1:] == [("m", 1, stage.controller.calls[-1][2])]
    stage.turn(10)
    assert stage.want() == 1
    assert len(stage.controller.calls) == 2


def test_whoever_asks_while_one_is_starting_or_backed_off_starts_no_other():
    stage = Stage(m=scaled("min: 0")).begin()
    FixedScaler.number = 0
    stage.turn()
    stage.asks()
    stage.controller.counts["m"] = ReplicaCounts()  # it failed, and is tried again when its time comes
    FixedScaler.number = 7
    stage.asks()
    assert stage.want() == 1


def test_nobody_is_started_for_a_model_that_others_serve():
    stage = Stage(m=scaled("min: 0"))
    stage.others["m"] = 1
    stage.begin()
    stage.asks()
    assert stage.want() == 0


def test_a_scaler_that_fails_does_not_keep_a_model_at_zero():
    stage = Stage(m=scaled("min: 0")).begin()
    stage.turn()
    FixedScaler.problem = RuntimeError("out of order")
    stage.asks()
    assert stage.want() == 1
    assert stage.words()[-1] == "0 → 1: requests wait"


def test_models_it_does_not_know_are_nobodys():
    stage = Stage(m=scaled()).begin()
    stage.asks(model="x")
    assert stage.want("x") is None


# ------------------------------------------------------------------ after a supervisor that died


def test_what_was_stopped_does_not_stay():
    stage = Stage(m=scaled("max: 9"))
    stage.controller.counts["m"] = ReplicaCounts(ready=2)
    stage.begin()
    stage.turn(5)
    stage.follow(m=scaled("max: 1"))
    stage.turn()
    assert stage.want() == 1
    assert "ran already" not in stage.view().reason
    stage.turn()
    stage.follow(m=scaled("max: 4"))
    stage.turn()
    assert stage.want() == 1


def test_what_runs_already_stays_until_something_is_known():
    stage = Stage(m=scaled("max: 9"))
    stage.controller.counts["m"] = ReplicaCounts(ready=2, starting=3)
    stage.begin()
    assert stage.want() == 5
    stage.turn(50)
    assert stage.want() == 5
    assert stage.view().reason == "5: so it was told; 5 ran already, and stay at first"
    assert stage.words() == []
    stage.turn(20)
    assert stage.want() == 1
    assert stage.words() == ["5 → 1: so it was told"]


def test_what_runs_already_is_no_reason_for_not_growing_nor_for_more_than_the_most():
    stage = Stage(m=scaled("max: 4"))
    stage.controller.counts["m"] = ReplicaCounts(ready=2)
    stage.begin()
    stage.say(4)
    assert stage.want() == 4
    stage = Stage(m=scaled("max: 4"))
    stage.controller.counts["m"] = ReplicaCounts(ready=7)
    stage.begin()
    assert stage.want() == 4


def test_steps_on_the_way_down_hold_afterwards_too():
    stage = Stage(m=scaled("max: 9, max_removed_per_minute: 1"))
    stage.controller.counts["m"] = ReplicaCounts(ready=5)
    stage.begin()
    stage.turn(62)
    assert stage.want() == 4
    stage.turn(62)
    assert stage.want() == 3


def test_at_zero_nothing_is_started_for_what_ran():
    stage = Stage(m=scaled("min: 0")).begin()
    stage.say(0, 100)
    assert stage.want() == 0
    assert len(stage.controller.calls) == 1


# ------------------------------------------------------------------ only recommended


def test_what_is_only_recommended_is_said_and_not_done():
    stage = Stage(m=scaled("mode: recommend, max: 9", THREE)).begin()
    stage.controller.all_ready()
    stage.say(3, 5)
    assert (stage.want(), stage.words()) == (3, [])
    stage.say(7, 5)
    stage.say(6, 5)
    stage.say(3, 5)
    assert len(stage.controller.calls) == 1
    assert stage.words() == ["would go 3 → 7: so it was told", "would go 3 → 6: so it was told", "would stay at 3"]
    steps = stage.view().steps
    assert [(s.before, s.after, s.carried_out) for s in steps] == [(3, 7, False), (7, 6, False), (6, 3, False)]
    view = stage.view()
    assert (view.mode, view.desired, view.ready) == ("recommend", 3, 3)


def test_without_a_runtime_it_can_only_recommend():
    stage = Stage(m=scaled("mode: recommend, cold_start: 7s", FILE)).begin()
    stage.turn(2)
    assert stage.words() == []  # nobody has looked yet
    stage.others["m"] = 1
    stage.say(2, 5)
    assert stage.words() == ["would go 1 → 2: so it was told"]
    assert stage.controller.calls == []
    view = stage.view()
    assert (view.ready, view.desired, view.cold_start, view.cold_start_measured) == (1, 2, 7.0, False)
    stage.asks()
    assert stage.controller.calls == []


def test_without_a_runtime_it_says_when_it_would_go_to_zero():
    stage = Stage(m=scaled("mode: recommend, min: 0, scale_to_zero_after: 10s", FILE)).begin()
    stage.others["m"] = 1
    stage.say(0, 30)
    assert stage.words()[-1].startswith("would go 1 → 0: ")
    assert stage.controller.calls == []


def test_from_recommending_to_acting_begins_with_what_runs():
    stage = Stage(m=scaled("mode: recommend", THREE)).begin()
    stage.controller.all_ready()
    stage.say(1, 20)
    assert stage.want() == 3
    stage.follow(m=scaled())
    stage.turn(50)
    assert stage.want() == 3
    stage.turn(20)
    assert stage.want() == 1
    stage.follow(m=THREE)
    assert (stage.want(), stage.view().mode) == (3, "fixed")


# ------------------------------------------------------------------ schedules


def test_a_peak_is_prepared_for_and_over_when_it_is():
    schedule = "schedule: [{start: '12:10', end: '12:20', min: 4}], timezone: UTC"
    stage = Stage(m=scaled(f"max: 9, {schedule}")).begin()
    stage.turn(8 * 60)
    assert stage.want() == 1
    stage.turn(60)
    assert stage.want() == 4
    assert "a schedule wants 4" in stage.words()[-1]
    assert stage.view().min_replicas == 4
    stage.turn(10 * 60)
    assert stage.want() == 4
    stage.turn(2 * 60)
    assert stage.want() == 1


# ------------------------------------------------------------------ troubles


def test_a_scaler_that_fails_leaves_the_number_and_is_said_once():
    stage = Stage(m=scaled()).begin()
    stage.say(4)
    FixedScaler.problem = ZeroDivisionError("division by zero")
    stage.turn(30)
    assert stage.want() == 4
    assert stage.alarms() == ["scaling_failed"]
    failures = [(what, level) for what, _, level in stage.notes if "fails" in what]
    assert failures == [("deciding how many replicas fails: ZeroDivisionError: division by zero", logging.ERROR)]
    FixedScaler.problem = None
    stage.say(2)
    assert stage.want() == 2
    assert stage.alarms() == []


@pytest.mark.parametrize("number", [-3, 2.5, float("nan"), None, "two"])
def test_a_scaler_may_want_nonsense(number):
    stage = Stage(m=scaled("max: 9")).begin()
    stage.say(4)
    stage.say(number, 10)
    assert stage.want() in (1, 4)  # bounded, or not understood
    assert isinstance(stage.want(), int)


def test_one_models_trouble_is_not_the_others():
    other = RUNTIME + ", autoscale: {min: 2}"
    stage = Stage(a=scaled(), m=other, z=scaled())
    FixedScaler.problem = RuntimeError("out of order")
    stage.begin()
    stage.turn(5)
    assert stage.controller.wants == {"a": 1, "m": 2, "z": 1}
    assert stage.alarms() == ["scaling_failed"] * 2
    assert len(stage.scaler.views()) == 3


def test_a_controller_that_fails_is_asked_again():
    stage = Stage(m=scaled("min: 2"), n=THREE)
    stage.controller.problem = OSError("no")
    stage.begin()
    stage.turn(10)
    assert stage.alarms() == ["scaling_failed"] * 2
    assert len(stage.notes) <= 4
    stage.controller.problem = None
    stage.turn(2)
    assert stage.controller.wants == {"m": 2, "n": 3}
    assert stage.alarms() == []


def test_when_more_is_needed_than_may_be_and_the_slo_is_broken_somebody_should_know():
    stage = Stage(m=scaled("max: 3")).begin()
    FixedScaler.burn = 5.0
    stage.say(9, 50)
    assert stage.alarms() == []
    stage.turn(20)
    assert stage.alarms() == ["max_reached"]
    stage.say(3)
    assert stage.alarms() == []


# ------------------------------------------------------------------ what is shown


def test_the_view_has_it_all():
    stage = Stage(m=scaled("max: 9"))
    stage.begin()
    FixedScaler.burn = 1.5
    stage.say(4)
    stage.controller.counts["m"] = ReplicaCounts(2, 1, 1)
    stage.others["m"] = 1
    view = stage.view()
    assert (view.ready, view.starting, view.terminating, view.desired) == (3, 1, 1, 4)
    assert (view.offered_load, view.recent_load, view.forecast_load, view.burn_rate, view.panic_mode) == (
        4.0,
        5.0,
        6.0,
        1.5,
        False,
    )
    assert (view.cold_start, view.cold_start_measured) == (3.0, True)
    assert (view.replica_seconds, view.cost, view.starts, view.stops, view.crashes) == (100.0, 2.5, 3, 1, 1)
    assert (view.mode, view.scaler) == ("act", "tests.control.autoscaling.stage:FixedScaler")
    assert "so it was told" in view.reason
