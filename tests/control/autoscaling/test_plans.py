"""Schedules by the clock on the wall."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import AutoscaleConfig, SchedulePeriod
from steelyard.control.autoscaling.settings import ScheduledMinimum, utc_now

PARIS = ZoneInfo("Europe/Paris")


def plan(*periods, timezone="Europe/Paris"):
    return ScheduledMinimum(AutoscaleConfig(schedule=periods, timezone=timezone))


WORK = SchedulePeriod(start="08:00", end="18:00", min=4, days="mon-fri")
MONDAY = datetime(2026, 11, 16, tzinfo=PARIS)


def test_the_time_of_day_knows_its_zone():
    assert utc_now().tzinfo is UTC


def test_without_a_schedule_nothing_is_needed():
    assert ScheduledMinimum(AutoscaleConfig()).replicas(MONDAY, 1e9) == 0


@pytest.mark.parametrize(
    ("hours", "cold_start", "least"),
    [
        (7.9, 0.0, 0),
        (7.99, 0.0, 4),  # a minute before
        (7.9, 300.0, 4),  # one that is started now is ready by then
        (7.5, 300.0, 0),
        (8.0, 5.0, 4),
        (17.99, 5.0, 4),
        (18.0, 5.0, 0),
        (5 * 24 + 12, 5.0, 0),  # Saturday
        (7 * 24 + 7.99, 5.0, 4),
    ],
)
def test_replicas_are_ready_when_a_peak_begins_and_free_when_it_ends(hours, cold_start, least):
    wall = (MONDAY + timedelta(hours=hours)).astimezone(UTC)
    assert plan(WORK).replicas(wall, cold_start) == least


def test_the_clock_on_the_wall_there_counts():
    morning = datetime(2026, 11, 16, 8, 30, tzinfo=PARIS).astimezone(UTC)
    assert plan(WORK).replicas(morning, 5.0) == 4
    assert plan(WORK, timezone="America/New_York").replicas(morning, 5.0) == 0
    assert plan(WORK, timezone="UTC").replicas(morning, 5.0) == 0


@pytest.mark.parametrize("day", [datetime(2026, 3, 27), datetime(2026, 3, 30), datetime(2026, 10, 26)])
def test_summer_time_moves_the_peak_with_the_clock(day):
    at_eight = day.replace(hour=8, tzinfo=PARIS)
    assert plan(WORK).replicas((at_eight + timedelta(minutes=1)).astimezone(UTC), 5.0) == 4
    assert plan(WORK).replicas(at_eight.astimezone(UTC) - timedelta(minutes=5), 5.0) == 0


def test_a_peak_right_after_the_clock_was_set_forward_is_seen_coming():
    early = SchedulePeriod(start="03:00", end="04:00", min=2, days="sun")
    wall = datetime(2026, 3, 29, 1, 58, tzinfo=PARIS).astimezone(UTC)  # at 02:00 it is 03:00
    assert plan(early).replicas(wall, 90.0) == 2
    assert plan(early).replicas(wall, 1.0) == 0


def test_whoever_is_on_the_machines_own_time_is_on_that():
    own = datetime.now(UTC).astimezone()
    all_day = SchedulePeriod(start="00:00", end="24:00", min=3, days="mon,tue,wed,thu,fri,sat,sun")
    assert plan(all_day, timezone="").replicas(own, 5.0) == 3


@given(st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)), st.floats(0.0, 3600.0))
def test_the_most_of_what_is_needed_now_and_then(naive, cold_start):
    wall = naive.replace(tzinfo=UTC)
    made = plan(
        WORK, SchedulePeriod(start="22:00", end="02:00", min=6), SchedulePeriod(start="12:00", end="13:00", min=2)
    )
    least = made.replicas(wall, cold_start)
    local = wall.astimezone(PARIS)
    now = 6 if local.hour >= 22 or local.hour < 2 else 4 if local.weekday() < 5 and 8 <= local.hour < 18 else 0
    assert least >= now
    assert least in (0, 2, 4, 6)
    assert made.replicas(wall, cold_start + 600.0) >= least
