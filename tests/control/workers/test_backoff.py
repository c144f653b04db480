from __future__ import annotations

from steelyard.control.workers.slot import RestartBackoff


def test_who_keeps_dying_young_waits_longer_and_longer() -> None:
    backoff = RestartBackoff()
    assert [backoff.next_delay(0.3) for _ in range(12)] == [0, 0, 0, 0, 1, 2, 4, 8, 16, 30, 30, 30]


def test_who_lived_is_replaced_at_once() -> None:
    backoff = RestartBackoff()
    for _ in range(9):
        backoff.next_delay(9.9)
    assert backoff.next_delay(10.0) == 0.0
    assert [backoff.next_delay(0.3) for _ in range(5)] == [0, 0, 0, 0, 1]


def test_however_often() -> None:
    backoff = RestartBackoff()
    for _ in range(5000):
        assert backoff.next_delay(0.0) <= 30.0
