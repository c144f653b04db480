"""Charts begin with what is stored: a restart does not empty them."""

from __future__ import annotations

import pytest

from steelyard.control.history.slices import MINUTE_SECONDS, Slice
from steelyard.control.observability.event_log import EventLog
from steelyard.control.observability.live import LiveFeed
from steelyard.control.observability.stored_samples import POINT_INTERVAL_SECONDS, stored_samples

BEGIN_UNIX_SECONDS = 1_800_000_000.0 + 30.0  # in the middle of a minute
MINUTE_BEFORE = 1_800_000_000 - MINUTE_SECONDS


def test_the_minutes_before_a_restart_are_points_of_charts() -> None:
    slices = [
        Slice(MINUTE_BEFORE, "m", "", {"met": 540, "failed/client": 30}, {500: 540}),
        Slice(MINUTE_BEFORE, "m", "acme", {"late/replica": 30}),
        Slice(MINUTE_BEFORE + MINUTE_SECONDS, "m", "", {"met": 60}, {500: 60}),
        Slice(MINUTE_BEFORE - 60 * MINUTE_SECONDS, "m", "", {"met": 60}),  # too long ago
        Slice(MINUTE_BEFORE, "n", "", {}),
    ]
    stored = stored_samples(slices, BEGIN_UNIX_SECONDS)
    points = stored["m"]
    assert [point.uptime for point in points] == [float(at) for at in range(-90, 0, POINT_INTERVAL_SECONDS)]
    assert (points[0].rate, points[0].bad_rate) == (10.0, 0.5)
    assert points[0].p50 == pytest.approx(points[0].p99)
    assert points[-1].rate == 1.0
    assert {(point.rate, point.p50) for point in stored["n"]} == {(0.0, None)}


def test_what_is_stored_leaves_the_charts_when_it_is_too_old() -> None:
    live = LiveFeed(lambda: ({}, {}), EventLog(), 0.0)
    live.stored = stored_samples([Slice(MINUTE_BEFORE, "m", "", {"met": 60})], BEGIN_UNIX_SECONDS)
    assert live.history().stored["m"]
    live.samples.record(400.0, {}, {})
    assert live.history().stored["m"] == ()
