"""The small parts of the autoscaler: what is remembered, damped and alarmed."""

from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import AutoscaleConfig, ModelConfig
from steelyard.control.autoscaling.alarms import MAX_REACHED_ALARM_SECONDS, ScalingAlarms
from steelyard.control.autoscaling.model_autoscaler import MAX_STEPS, ScalingHistory, WindowedMinimum
from steelyard.control.autoscaling.settings import scaling_mode, scaling_options
from steelyard.control.observability.views import ScalingStepView
from steelyard.core.request import INFINITY
from steelyard.core.scalers.base import Recommendation, ScalingMetrics
from steelyard.core.scaling.decider import ScalingDecision, ScalingOptions
from steelyard.documents import Seconds
from steelyard.runtimes.process.config import ProcessRuntimeConfig
from tests.control.autoscaling.stage import Stage

RUNTIME = ProcessRuntimeConfig(command="serve --port {port}")


def test_who_decides_and_who_acts():
    assert scaling_mode(ModelConfig(runtime=RUNTIME)) == "fixed"
    assert scaling_mode(ModelConfig(runtime=RUNTIME, autoscale=AutoscaleConfig())) == "act"
    assert scaling_mode(ModelConfig(runtime=RUNTIME, autoscale=AutoscaleConfig(mode="recommend"))) == "recommend"
    assert scaling_mode(ModelConfig(autoscale=AutoscaleConfig(mode="recommend"))) == "recommend"
    assert scaling_mode(ModelConfig(autoscale=AutoscaleConfig())) == "recommend"  # nobody could do it


def test_what_the_configuration_leaves_out_is_without_limit_but_for_the_most():
    assert scaling_options(AutoscaleConfig()) == ScalingOptions(scaler_options={}, max_replicas=100.0)
    assert scaling_options(AutoscaleConfig(min=200)).max_replicas == 200.0
    scale = AutoscaleConfig(
        min=0,
        max=5,
        max_added_per_minute=2,
        max_removed_per_minute=1,
        scale_to_zero_after=Seconds(60),
        scaler="kpa",
        scaler_options={"target": 0.5},
    )
    assert scaling_options(scale) == ScalingOptions("kpa", {"target": 0.5}, 0, 5.0, 60.0, 2.0, 1.0)


def test_a_drop_counts_at_once_and_a_rise_when_it_has_lasted():
    lowest = WindowedMinimum(30.0)
    assert lowest.add(5, 0.0) == 5
    assert lowest.add(3, 1.0) == 3
    assert lowest.add(5, 2.0) == 3
    assert lowest.add(5, 30.0) == 3
    assert lowest.add(5, 31.0) == 5


@given(st.lists(st.tuples(st.floats(0.0, 20.0), st.integers(0, 9)), min_size=1))
def test_the_lowest_is_that_of_the_window(steps):
    lowest, seen, now = WindowedMinimum(30.0), [], 0.0
    for passed, number in steps:
        now += passed
        seen.append((now, number))
        assert lowest.add(number, now) == min(each for when, each in seen if when > now - 30.0)


def test_the_history_keeps_the_latest_steps():
    history = ScalingHistory()
    for number in range(MAX_STEPS + 5):
        step = ScalingStepView(
            age=0.0,
            before=number,
            after=number + 1,
            reason=f"{number} → {number + 1}",
            offered_load=1.0,
            recent_load=2.0,
            forecast_load=3.0,
            p99=0.4,
            carried_out=False,
        )
        history.add(float(number), step)
    shown = history.views(1000.0)
    assert len(shown) == MAX_STEPS
    last = shown[-1]
    assert (last.age, last.before, last.after, last.reason) == (1000.0 - 204.0, 204, 205, "204 → 205")
    assert (last.offered_load, last.recent_load, last.forecast_load, last.p99, last.carried_out) == (
        1.0,
        2.0,
        3.0,
        0.4,
        False,
    )


def verdict(wants, most=5.0, burn=0.0):
    return ScalingDecision(int(min(wants, most)), "", Recommendation(wants, "a lot is offered", burn=burn), 1, most)


def test_more_is_wanted_than_may_be_for_a_minute_and_somebody_suffers():
    troubles = ScalingAlarms("m", Stage().fleet)
    for second in range(60):
        troubles.decided(ScalingMetrics(float(second), waiting=1), verdict(9))
        assert not list(troubles.alarms(float(second)))
    troubles.decided(ScalingMetrics(60.0, waiting=1), verdict(9))
    [alarm] = troubles.alarms(MAX_REACHED_ALARM_SECONDS)
    assert (alarm.code, alarm.age) == ("max_reached", 60.0)
    assert alarm.message == "m needs 9 replicas, max is 5: a lot is offered"
    troubles.decided(ScalingMetrics(61.0), verdict(9, burn=0.5))
    assert not list(troubles.alarms(61.0))  # nobody waits, and the SLO is met
    troubles.decided(ScalingMetrics(62.0), verdict(9, burn=2.0))
    assert list(troubles.alarms(62.0))
    troubles.decided(ScalingMetrics(63.0, waiting=9), verdict(5))
    assert not list(troubles.alarms(200.0))
    troubles.decided(ScalingMetrics(64.0, waiting=9), verdict(10**6, most=INFINITY))
    assert not list(troubles.alarms(200.0))


def test_a_failure_is_news_once_and_over_when_it_is():
    stage = Stage()
    troubles = ScalingAlarms("m", stage.fleet)
    for problem in (ValueError("no"), ValueError("no"), KeyError("x")):
        with troubles.guarded():
            raise problem
        stage.now += 1.0
    [alarm] = troubles.alarms(stage.now)
    assert (alarm.code, alarm.age, alarm.message) == ("scaling_failed", 3.0, "m is not scaled: KeyError: 'x'")
    said = "deciding how many replicas fails: "
    assert stage.words() == [f"{said}ValueError: no", f"{said}KeyError: 'x'"]
    troubles.decided(ScalingMetrics(7.0), verdict(1))
    assert not list(troubles.alarms(7.0))
