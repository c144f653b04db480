"""A replica that fails some of its attempts, though retries hide it and probes find it ready."""

from __future__ import annotations

from steelyard.control.observability.replica_failures import CLEAR_AFTER_SECONDS, ReplicaFailures, is_failing
from steelyard.control.observability.totals import ReplicaTotals
from steelyard.control.observability.views import Alarm

A, B = ("m", "a"), ("m", "b")


class Watched:
    """Totals of two replicas, second by second."""

    def __init__(self) -> None:
        self.failures = ReplicaFailures()
        self.now = 0.0
        self.ok = {A: 0, B: 0}
        self.failed = {A: 0, B: 0}
        self.failed_at = 0.0
        self.ejections = 0
        self.state = "ready"

    def passes(self, seconds: int, ok: int = 0, failed: int = 0) -> None:
        """So many attempts a second at A; at B all is well."""
        for _ in range(seconds):
            self.now += 1.0
            self.ok[A] += ok
            self.failed[A] += failed
            self.failed_at = self.now - 1.0 if failed else self.failed_at
            self.ok[B] += 10
            self.failures.update({key: self.status(key) for key in (A, B)}, self.now)

    def status(self, key: tuple[str, str]) -> ReplicaTotals:
        outcomes = {"ok": self.ok[key], "error": self.failed[key], "cancelled": 5}
        error = "HTTP 500" if self.failed[key] else ""
        state, ejections = (self.state, self.ejections) if key == A else ("ready", 0)
        return ReplicaTotals(
            *key, state, 0, 0, self.failed[key], 0.0, 1.0, consecutive_ejections=ejections, outcomes=outcomes,
            last_error=error, last_error_age=self.now - self.failed_at,
        )  # fmt: skip

    def alarms(self) -> list[Alarm]:
        return list(self.failures.alarms(self.now))


def test_most_attempts_fail_and_an_alarm_says_how_many_and_with_what() -> None:
    watched = Watched()
    watched.passes(30, ok=1)
    assert watched.alarms() == []
    watched.passes(60, failed=2)
    watched.passes(30, ok=1, failed=1)
    (alarm,) = watched.alarms()
    assert (alarm.code, alarm.model, alarm.replica, alarm.severity) == ("replica_failing", "m", "a", "ticket")
    assert "attempts failed in the last" in alarm.message
    assert "the last with HTTP 500 1 s ago" in alarm.message
    recent = watched.failures.recent(A, watched.now)
    assert recent.failing
    assert 60.0 <= recent.seconds <= 71.0
    assert recent.attempts == 2 * recent.seconds
    assert not is_failing(watched.failures.recent(B, watched.now))


def test_the_few_failures_of_a_restart_are_no_alarm() -> None:
    watched = Watched()
    watched.passes(20, ok=5)
    watched.passes(3, failed=5)
    watched.passes(60, ok=5)
    assert watched.alarms() == []
    assert watched.failures.recent(A, watched.now).last_error == "HTTP 500"  # and how long ago it was


def test_a_replica_that_is_avoided_because_it_fails_is_an_alarm_though_it_gets_little() -> None:
    watched = Watched()
    for _ in range(4):
        watched.passes(1, failed=1)
        watched.passes(39)
        watched.passes(1, ok=1)
        watched.passes(39)
    (alarm,) = watched.alarms()
    assert alarm.message == "m/a: 4 of 8 attempts failed in the last 5 min, the last with HTTP 500 80 s ago"
    watched.passes(int(CLEAR_AFTER_SECONDS) + 10, ok=5)
    assert watched.alarms() == []


def test_one_failure_in_a_thousand_is_shown_and_is_no_alarm() -> None:
    watched = Watched()
    for _ in range(12):
        watched.passes(9, ok=100)
        watched.passes(1, ok=99, failed=1)
    assert watched.alarms() == []
    recent = watched.failures.recent(A, watched.now)
    assert recent.failed >= 6
    assert not is_failing(recent)


def test_an_alarm_ends_when_it_has_been_calm_for_a_while() -> None:
    watched = Watched()
    watched.passes(40, ok=1, failed=1)
    assert watched.alarms()
    watched.passes(int(CLEAR_AFTER_SECONDS) - 2, ok=1000)
    assert watched.alarms()  # not yet: it may come back
    watched.passes(10, ok=1000)
    assert watched.alarms() == []


def test_an_ejected_replica_stays_an_alarm_as_nothing_shows_that_it_recovered() -> None:
    watched = Watched()
    watched.passes(40, ok=1, failed=1)
    watched.state = "ejected"
    watched.passes(300)
    assert [alarm.code for alarm in watched.alarms()] == ["replica_failing"]


def test_ejected_again_and_again_is_an_alarm() -> None:
    watched = Watched()
    watched.failed[A] = 5
    watched.ejections = 2
    watched.passes(5)
    assert watched.alarms() == []
    watched.ejections = 3
    watched.passes(5)
    (alarm,) = watched.alarms()
    assert alarm.code == "repeatedly_ejected"
    assert alarm.message == "m/a: ejected 3 times in a row: it does not recover; the last error was HTTP 500"
    watched.ejections = 2
    watched.passes(1)
    assert watched.alarms() == []


def test_another_replica_under_the_same_name_begins_anew() -> None:
    watched = Watched()
    watched.passes(40, ok=1, failed=1)
    assert watched.alarms()
    watched.ok[A] = watched.failed[A] = 0
    watched.passes(1, ok=3)
    assert watched.alarms() == []
    recent = watched.failures.recent(A, watched.now)
    assert (recent.attempts, recent.failed, recent.last_error) == (3, 0, "")


def test_a_window_is_no_longer_than_what_was_seen() -> None:
    watched = Watched()
    watched.passes(4, ok=1)
    assert watched.failures.recent(A, watched.now).seconds <= 4.0
