"""When an engine's key-value cache is too small for its load."""

from __future__ import annotations

from steelyard.config import parse_config
from steelyard.control.observability.alarm_codes import SEVERITIES
from steelyard.control.observability.kv_cache import FULL_AFTER_SECONDS, WINDOW_SECONDS, KvCacheWatch
from steelyard.control.observability.views import Alarm
from steelyard.core.replica import State
from steelyard.protocols import EngineLoad

KEY = ("m", "a")


class Watched:
    def __init__(self) -> None:
        self.watch = KvCacheWatch()
        self.now = 100.0

    def hears(self, after: float = 2.0, **load: float) -> None:
        self.now += after
        self.watch.load_reported(KEY, EngineLoad(**load), self.now)

    def alarms(self) -> list[Alarm]:
        return list(self.watch.alarms(self.now))


def test_preemptions_in_two_readings_of_a_minute_are_an_alarm() -> None:
    watched = Watched()
    watched.hears(preempted=1000.0)  # before anybody looked
    watched.hears(preempted=1003.0)
    assert not watched.alarms()
    watched.hears(preempted=1010.0)
    (alarm,) = watched.alarms()
    assert (alarm.code, alarm.model, alarm.replica, alarm.severity) == ("kv_cache_full", "m", "a", "ticket")
    assert "preempted 10 requests in the last minute" in alarm.message
    assert "kv_cache_full" in SEVERITIES
    watched.hears(WINDOW_SECONDS - 3.0, preempted=1010.0)
    assert watched.alarms()
    watched.hears(WINDOW_SECONDS, preempted=1010.0)
    assert not watched.alarms()


def test_one_now_and_then_is_normal_and_a_restart_counts_anew() -> None:
    watched = Watched()
    for count in (5.0, 6.0, 6.0, 7.0, 0.0, 1.0):
        watched.hears(WINDOW_SECONDS + 1.0, preempted=count)
        assert not watched.alarms()


def test_a_full_cache_with_requests_that_wait_where_preemptions_are_not_counted() -> None:
    watched = Watched()
    watched.hears(cache=0.99, waiting=3.0)
    watched.hears(FULL_AFTER_SECONDS - 1.0, cache=1.0, waiting=3.0)
    assert not watched.alarms()
    watched.hears(cache=1.0, waiting=3.0)
    assert len(watched.alarms()) == 1
    watched.hears(WINDOW_SECONDS + 1.0, cache=1.0, waiting=0.0)
    assert not watched.alarms()


def test_one_that_is_gone_has_no_alarm() -> None:
    watched = Watched()
    for count in (1.0, 2.0, 3.0):
        watched.hears(preempted=count)
    watched.watch.state_changed(KEY, State.UNREACHABLE, watched.now)
    assert not watched.alarms()
    for count in (1.0, 2.0, 3.0):
        watched.hears(preempted=count)
    assert watched.alarms()
    watched.watch.config_changed(parse_config("models: {other: {replicas: []}}"), watched.now)
    assert not watched.alarms()
