"""Sizes that are kept from a device for a while, and for longer if that was too short."""

from __future__ import annotations

from steelyard.control.memory.quarantines import (
    FIRST_QUARANTINE_SECONDS,
    FORGET_AFTER_SECONDS,
    MAX_QUARANTINE_SECONDS,
    MAX_QUARANTINES_PER_MODEL,
    MIN_MESSAGE_SPACING_SECONDS,
    Quarantines,
)
from steelyard.link.messages import Quarantine


def test_for_a_minute() -> None:
    quarantines = Quarantines()
    assert quarantines.add("m", "d", 100, 0.0) == FIRST_QUARANTINE_SECONDS
    assert quarantines.in_force(20.0) == [Quarantine("m", "d", 100, FIRST_QUARANTINE_SECONDS - 20.0)]
    assert quarantines.in_force(FIRST_QUARANTINE_SECONDS) == []


def test_those_that_ran_already_make_it_no_longer_but_smaller() -> None:
    quarantines = Quarantines()
    for amount in (100, 80, 90):
        assert quarantines.add("m", "d", amount, 1.0) == FIRST_QUARANTINE_SECONDS
    assert [q.bytes for q in quarantines.in_force(2.0)] == [80]


def test_twice_as_long_each_time_up_to_an_hour() -> None:
    quarantines, now, seen = Quarantines(), 0.0, []
    for _ in range(9):
        seen.append(quarantines.add("m", "d", 100, now))
        now += seen[-1] + 1.0
    assert seen == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_forgotten_after_a_clean_time() -> None:
    quarantines = Quarantines()
    quarantines.add("m", "d", 100, 0.0)
    assert (
        quarantines.add("m", "d", 100, FIRST_QUARANTINE_SECONDS + FORGET_AFTER_SECONDS + 1.0)
        == FIRST_QUARANTINE_SECONDS
    )
    for _ in range(9):
        last = quarantines.add("m", "d", 100, now := quarantines.active["m", "d"].until)
    assert last == MAX_QUARANTINE_SECONDS
    assert (
        quarantines.add("m", "d", 100, now + MAX_QUARANTINE_SECONDS + FORGET_AFTER_SECONDS + 1.0)
        == MAX_QUARANTINE_SECONDS
    ), "an hour is no clean time for an hour"


def test_by_model_and_device() -> None:
    quarantines = Quarantines()
    quarantines.add("m", "d", 100, 0.0)
    quarantines.add("m", "e", 200, 0.0)
    quarantines.add("n", "d", 300, 0.0)
    assert [(q.model, q.device, q.bytes) for q in quarantines.in_force(1.0)] == [
        ("m", "d", 100),
        ("m", "e", 200),
        ("n", "d", 300),
    ]
    quarantines.keep({"m"}, {"d"})
    assert [(q.model, q.device) for q in quarantines.in_force(1.0)] == [("m", "d")]


def test_bounded() -> None:
    quarantines = Quarantines()
    for number in range(1000):
        quarantines.add("m", str(number), 100, float(number) / 100)
    assert len(quarantines.in_force(10.0)) == MAX_QUARANTINES_PER_MODEL


def test_told_at_once_and_then_now_and_then() -> None:
    quarantines = Quarantines()
    quarantines.add("m", "d", 100, 0.0)
    assert len(quarantines.to_send(0.0)) == 1
    assert quarantines.to_send(1.0) == []
    quarantines.add("m", "d", 90, 1.0)
    assert [q.bytes for q in quarantines.to_send(1.0)] == [90]
    quarantines.add("m", "d", 80, 1.01)
    assert quarantines.to_send(1.01) == []
    assert [q.bytes for q in quarantines.to_send(1.01 + MIN_MESSAGE_SPACING_SECONDS)] == [80]
