from __future__ import annotations

from steelyard.control.backoff import Backoff


def test_who_keeps_dying_young_waits_longer_and_longer() -> None:
    backoff = Backoff()
    assert [backoff.ended(0.3) for _ in range(12)] == [0, 0, 0, 0, 1, 2, 4, 8, 16, 30, 30, 30]


def test_who_lived_is_replaced_at_once() -> None:
    backoff = Backoff()
    for _ in range(9):
        backoff.ended(9.9)
    assert backoff.ended(10.0) == 0.0
    assert [backoff.ended(0.3) for _ in range(5)] == [0, 0, 0, 0, 1]


def test_however_often() -> None:
    backoff = Backoff()
    for _ in range(5000):
        assert backoff.ended(0.0) <= 30.0
