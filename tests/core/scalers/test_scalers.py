"""Every scaler of the table passes one suite, and so does a user's own; names and options are checked."""

import pytest

from steelyard.core.errors import OptionError
from steelyard.core.scalers import SCALERS, Recommendation, Scaler, find_scaler, make_scaler, scaler_options
from steelyard.core.statistics.sliding_windows import (
    MAX_SAMPLES,
    MAX_STEPS,
    SlidingAverage,
    SlidingMaximum,
    SlidingTotals,
)

from ..scaler_suite import ScalerSuite


class TestEveryScalerOfTheTable(ScalerSuite):
    @pytest.fixture(autouse=True, params=SCALERS)
    def named(self, request):
        self.scaler = request.param


# ---------------------------------------------------------------------- a user's own


class OneEach(Scaler):
    """A replica for each request, or for each few."""

    rule = "one for each request"

    def __init__(self, *, few: int = 1) -> None:
        if few < 1:
            raise OptionError(f"few: must be at least 1, not {few!r}")
        self.few = few

    def recommend(self, seen):
        return Recommendation(-(-(seen.running + seen.waiting) // self.few), "one each")


class TestAUsersOwn(ScalerSuite):
    scaler = f"{__name__}:OneEach"


def test_a_users_own_takes_options():
    scaler = make_scaler(f"{__name__}:OneEach", {"few": 3})
    assert scaler.few == 3
    with pytest.raises(OptionError, match="few: must be at least 1"):
        make_scaler(f"{__name__}:OneEach", {"few": 0})


def test_a_wrong_name_says_what_there_is():
    with pytest.raises(OptionError, match=r"no scaler 'wrok' \(did you mean `work`\?\); there are work, kpa, hpa"):
        find_scaler("wrok")
    with pytest.raises(OptionError, match="not a subclass of"):
        find_scaler("steelyard.core.scalers.base:ScalingMetrics")


@pytest.mark.parametrize("name", SCALERS)
def test_defaults_are_as_written(name):
    known = scaler_options(find_scaler(name))
    assert known
    make_scaler(name, known)


@pytest.mark.parametrize("name", SCALERS)
def test_each_number_is_checked_and_named(name):
    for option, default in scaler_options(find_scaler(name)).items():
        for wrong in (-1.0, float("nan"), float("inf"), "many", None, True):
            if isinstance(default, bool):
                wrong = "many"
            with pytest.raises(OptionError, match=rf"^scaler '{name}': {option}: must be "):
                make_scaler(name, {option: wrong})


def test_an_unknown_option_says_which_there_are():
    with pytest.raises(OptionError, match=r"unknown option 'targte' \(it takes target, tolerance"):
        make_scaler("hpa", {"targte": 1})


# ---------------------------------------------------------------------- windows


def test_totals_between_samples_grow_evenly():
    totals = SlidingTotals(60.0)
    for now in range(61):
        totals.add(float(now), 2.0 * now, float(max(0, now - 50)))
    assert totals.over(6.0) == (6.0, (12.0, 6.0))
    assert totals.over(5.5) == (5.5, (11.0, 5.5))
    assert totals.over(20.0, ago=10.0) == (20.0, (40.0, 0.0))
    assert totals.over(1000.0) == (60.0, (120.0, 10.0))


def test_totals_know_nothing_of_before_the_first():
    totals = SlidingTotals(60.0)
    totals.add(10.0, 5.0)
    assert totals.over(6.0) == (0.0, (0.0,))
    totals.add(12.0, 9.0)
    assert totals.over(6.0) == (2.0, (4.0,))
    assert totals.over(6.0, ago=30.0) == (0.0, (0.0,))


def test_totals_looked_at_often_are_still_right_and_bounded():
    totals = SlidingTotals(60.0)
    for step in range(100_000):
        totals.add(step / 1000, step / 10)
    assert len(totals) <= MAX_SAMPLES + 2
    span, (growth,) = totals.over(60.0)
    assert span == pytest.approx(60.0)
    assert growth == pytest.approx(6000.0)


def test_an_average_is_over_time_not_over_samples():
    average = SlidingAverage(60.0)
    for now, value in ((0.0, 7.0), (1.0, 1.0), (1.1, 1.0), (1.2, 1.0), (4.0, 3.0)):
        average.add(now, value)
    assert average.over(60.0) == (pytest.approx((1.2 * 1.0 + 2.8 * 3.0) / 4.0),)
    assert average.over(2.0) == (pytest.approx(3.0),)


def test_the_highest_holds_for_its_seconds_and_no_longer():
    highest = SlidingMaximum(10.0)
    assert [highest.add(float(t), v) for t, v in ((0, 5), (1, 3), (2, 4), (10, 1), (10.5, 1), (12, 1), (12.5, 1))] == [
        5, 5, 5, 5, 4, 4, 1
    ]  # fmt: skip


def test_the_highest_is_bounded_and_never_too_low():
    highest, values = SlidingMaximum(1000.0), []
    for now in range(900):
        values.append(2000 - 2 * now)
        assert highest.add(float(now), values[-1]) == 2000
    assert len(highest) <= MAX_STEPS + 1
    for now in range(900, 3000):
        assert highest.add(float(now), 0) >= max([v for t, v in enumerate(values) if t >= now - 1000], default=0)
    assert highest.add(3000.0, 0) == 0
