"""Alarms reach the log: when each begins, and when it is over."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path

import pytest

import steelyard.control
from steelyard.control.observability.alarm_codes import SEVERITIES
from steelyard.control.observability.alarms import CLEAR_AFTER_SECONDS, RAISE_AFTER_SECONDS, AlarmLog
from steelyard.control.observability.event_log import EventLog
from steelyard.control.observability.views import Alarm
from steelyard.control.supervisor import log_setup

NOBODY = Alarm(code="no_ready_replica", message="no replica of m is ready", age=0.0, model="m")
FAILING = Alarm(code="replica_failing", message="m/a: 7 of 10 attempts failed", age=0.0, model="m", replica="a")
DOCS = Path(__file__).parents[3] / "docs"


def seen(*moments: tuple[float, list[Alarm]]) -> list[tuple[str, str, str]]:
    event_log = EventLog()
    alarms = AlarmLog(event_log)
    for now, there in moments:
        alarms.update(there, now)
    return [(happened.kind, happened.code, happened.message) for happened in event_log.latest()]


def test_an_alarm_is_an_event_when_it_begins_and_when_it_is_over() -> None:
    events = seen(
        (0.0, [NOBODY]), (RAISE_AFTER_SECONDS, [NOBODY]), (65.0, [NOBODY]), (66.0, []), (66.0 + CLEAR_AFTER_SECONDS, [])
    )
    assert events == [
        ("alarm", "no_ready_replica", "alarm: no replica of m is ready"),
        ("alarm", "no_ready_replica", "alarm over after 65 s: no replica of m is ready"),
    ]


def test_not_ready_is_superseded_when_the_last_replica_goes() -> None:
    one = Alarm(code="replica_not_ready", message="m/a: not ready for 2 min: down", age=0.0, model="m", replica="a")
    events = seen((0.0, [one]), (9.0, [one]), (10.0, [NOBODY]), (20.0, [NOBODY]))
    assert "alarm superseded by no_ready_replica after 9 s: not ready for 2 min: down" in [what for *_, what in events]


def test_names_that_stand_beside_it_are_not_said_twice() -> None:
    assert seen((0.0, [FAILING]), (9.0, [FAILING]))[0][2] == "alarm: 7 of 10 attempts failed"


def test_one_that_comes_and_goes_is_said_once() -> None:
    flapping = [(float(second), [NOBODY] if second % 4 else []) for second in range(3, 60)]
    assert len(seen(*flapping)) == 1


def test_what_is_over_at_once_is_not_said() -> None:
    assert seen((0.0, [NOBODY]), (1.0, []), (10.0, [])) == []


def test_no_replica_ready_is_an_error_in_the_log_and_has_fields() -> None:
    stream = io.StringIO()
    log_setup.configure_logging("json", stream)
    try:
        seen((0.0, [NOBODY, FAILING]), (9.0, [NOBODY, FAILING]), (20.0, [NOBODY]))
    finally:
        log_setup.configure_logging("text", io.StringIO())
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    events = [(line["level"], line["event"], line["code"], line["model"], line.get("replica")) for line in lines]
    assert events == [
        ("error", "alarm", "no_ready_replica", "m", None),
        ("warning", "alarm", "replica_failing", "m", "a"),
        ("warning", "alarm", "replica_failing", "m", "a"),
    ]


@pytest.mark.parametrize(("level", "said"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_how_much_is_logged_is_the_operator_s_choice(level: str, said: int) -> None:
    stream = io.StringIO()
    logger = log_setup.configure_logging("text", stream, level)
    try:
        for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logger.getChild("fleet").log(number, "something")
    finally:
        log_setup.configure_logging("text", io.StringIO())
    assert len(stream.getvalue().splitlines()) == said


def test_every_alarm_is_in_the_table_and_in_the_docs() -> None:
    """Or it would be missing from the metrics at 0."""
    sources = [path.read_text("utf-8") for path in Path(steelyard.control.__file__).parent.rglob("*.py")]
    codes = {code for text in sources for code in re.findall(r'Alarm\(\s*code="(\w+)"', text)}
    assert codes >= {"no_ready_replica", "replica_failing", "telemetry_dropped"}
    assert codes <= SEVERITIES.keys()
    docs = (DOCS / "admin.md").read_text("utf-8") + (DOCS / "memory.md").read_text("utf-8")
    missing = [code for code in SEVERITIES if code not in docs]
    assert missing == []
