"""Times of the week: read from texts, and whether they hold, over midnight and over the end of the week."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.errors import OptionError
from steelyard.core.scaling.schedule import (
    DAY_NAMES,
    MINUTES_PER_DAY,
    MINUTES_PER_WEEK,
    make_period,
    parse_days,
    parse_time,
    scheduled_minimum,
)

MON, TUE, SAT, SUN = 0, MINUTES_PER_DAY, 5 * MINUTES_PER_DAY, 6 * MINUTES_PER_DAY
EIGHT_OCLOCK_MINUTES, EIGHTEEN_OCLOCK_MINUTES = 8 * 60, 18 * 60


@pytest.mark.parametrize(
    ("text", "found"),
    [("00:00", 0), ("08:30", 510), ("8:30", 510), (" 23:59 ", 1439), ("24:00", 1440)],
)
def test_a_time(text, found):
    assert parse_time(text) == found


@pytest.mark.parametrize("text", ["", "8", "08:60", "24:01", "25:00", "08:5", "-1:00", "08:30:00", "٠٨:٣٠", "noon"])
def test_no_time(text):
    with pytest.raises(OptionError, match="must be a time from 00:00 to 24:00, such as 08:30, not "):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", (0, 1, 2, 3, 4, 5, 6)),
        ("mon-fri", (0, 1, 2, 3, 4)),
        ("sat,sun", (5, 6)),
        ("Fri - Mon , wed", (0, 2, 4, 5, 6)),
        ("tue", (1,)),
        ("tue-tue", (1,)),
    ],
)
def test_days(text, found):
    assert parse_days(text) == found


@pytest.mark.parametrize("text", ["monday", "mon-", "-fri", "mon,,tue", "mo", "mon-fri-sun"])
def test_no_days(text):
    with pytest.raises(OptionError, match="must be of mon, tue, wed, thu, fri, sat, sun, such as mon-fri"):
        parse_days(text)


@pytest.mark.parametrize(
    ("start", "end", "least", "what"),
    [
        ("24:00", "03:00", 1, "start: must be before 24:00"),
        ("08:00", "08:00", 1, "end: must differ from start"),
        ("08:00", "09:00", -1, "min: must be 0 or more"),
    ],
)
def test_no_period(start, end, least, what):
    with pytest.raises(OptionError, match=what):
        make_period(start, end, least)


def test_it_holds_from_its_start_until_before_its_end():
    office = [make_period("08:00", "18:00", 4, "mon-fri")]
    assert scheduled_minimum(office, MON + EIGHT_OCLOCK_MINUTES - 1) == 0
    assert scheduled_minimum(office, MON + EIGHT_OCLOCK_MINUTES) == 4
    assert scheduled_minimum(office, MON + EIGHTEEN_OCLOCK_MINUTES - 0.5) == 4
    assert scheduled_minimum(office, MON + EIGHTEEN_OCLOCK_MINUTES) == 0
    assert scheduled_minimum(office, SAT + EIGHT_OCLOCK_MINUTES) == 0


def test_replicas_are_ready_by_its_start():
    office = [make_period("08:00", "18:00", 4, "mon-fri")]
    assert scheduled_minimum(office, MON + EIGHT_OCLOCK_MINUTES - 5, 4.9) == 0
    assert scheduled_minimum(office, MON + EIGHT_OCLOCK_MINUTES - 5, 5) == 4
    assert scheduled_minimum(office, SUN + MINUTES_PER_DAY - 1, 8 * 60 + 1) == 4  # on Monday


def test_the_highest_of_several_counts():
    periods = [make_period("08:00", "18:00", 4), make_period("12:00", "13:00", 9), make_period("17:00", "19:00", 2)]
    assert [scheduled_minimum(periods, h * 60) for h in (7, 8, 12, 13, 17, 18, 19)] == [0, 4, 9, 4, 4, 2, 0]


def test_over_midnight():
    night = [make_period("22:00", "06:00", 3, "mon")]
    assert scheduled_minimum(night, MON + 22 * 60) == 3
    assert scheduled_minimum(night, TUE + 5 * 60) == 3
    assert scheduled_minimum(night, TUE + 6 * 60) == 0
    assert scheduled_minimum(night, MON + 5 * 60) == 0


def test_over_the_end_of_the_week():
    night = [make_period("22:00", "06:00", 3, "sun")]
    assert scheduled_minimum(night, SUN + 23 * 60) == 3
    assert scheduled_minimum(night, MON + 5 * 60) == 3
    assert scheduled_minimum(night, MON + 6 * 60) == 0


def test_a_whole_day_and_until_its_end():
    assert scheduled_minimum([make_period("00:00", "24:00", 2, "sat")], SAT + MINUTES_PER_DAY - 0.1) == 2
    assert scheduled_minimum([make_period("00:00", "24:00", 2, "sat")], SUN) == 0
    assert scheduled_minimum([make_period("20:00", "24:00", 2, "sat")], SAT + MINUTES_PER_DAY - 0.1) == 2


@given(
    st.integers(0, MINUTES_PER_DAY - 1),
    st.integers(1, MINUTES_PER_DAY),
    st.integers(0, 6),
    st.integers(0, MINUTES_PER_WEEK - 1),
    st.integers(0, 2 * MINUTES_PER_DAY),
)
def test_as_if_each_minute_was_looked_at(start, lasts, day, now, ahead):
    end = (start + lasts) % MINUTES_PER_DAY or MINUTES_PER_DAY
    if end == start:
        return
    show = "{:02d}:{:02d}".format
    period = make_period(show(*divmod(start, 60)), show(*divmod(end, 60)), 5, DAY_NAMES[day])
    held = {
        (day * MINUTES_PER_DAY + start + i) % MINUTES_PER_WEEK
        for i in range((end - start) % MINUTES_PER_DAY or MINUTES_PER_DAY)
    }
    wanted = 5 if any((now + i) % MINUTES_PER_WEEK in held for i in range(ahead + 1)) else 0
    assert scheduled_minimum([period], now, ahead) == wanted
