"""A history that cannot be kept is told, one with tenants' own SLOs can be, and a reload leaves it where it is."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
import uvloop

from steelyard.config import parse_config
from steelyard.control.history import store
from steelyard.control.history.database import default_path, open_readonly, read_slices
from steelyard.control.history.slices import Slice
from steelyard.control.history.store import HistoryStore
from steelyard.control.observability.retired_workers import RetiredTotals
from steelyard.control.slo.tracker import SloTracker
from steelyard.control.supervisor.reload import split_reloadable
from steelyard.core.slo.verdicts import VERDICT_COUNT, VERDICT_INDEX
from steelyard.link.messages import ModelReport, WorkerReport

CONFIG = "{tenant_header: x-tenant, models: {m: {replicas: [], slo: {latency: 1s, tenants: {gold: {latency: 200ms}}}}}}"


def test_what_cannot_be_kept_is_an_alarm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    async def collect_alarms() -> list[str]:
        keeping = SloTracker()
        keeping.config_changed(parse_config(CONFIG), 0.0)
        history = HistoryStore(tmp_path / "file" / "history.sqlite", 1e6)
        keeping.begin(history, 0.0)
        history.flush(20.0)
        alarms = [alarm.code for alarm in keeping.alarms(0.0)]
        await keeping.end([], RetiredTotals(), 1.0)
        return alarms

    assert uvloop.run(collect_alarms()) == ["history_unavailable"]


def test_what_cannot_be_written_just_now_is_an_alarm_as_long_as_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "RETRY_DELAY_SECONDS", 0.01)

    async def collect_alarms() -> tuple[list[str], list[str]]:
        keeping = SloTracker()
        keeping.config_changed(parse_config(CONFIG), 0.0)
        history = HistoryStore(tmp_path / "history.sqlite", 1e6)
        keeping.begin(history, 0.0)
        assert history.flush(20.0)
        with monkeypatch.context() as patch:
            patch.setattr(store, "add_slice", Mock(side_effect=sqlite3.OperationalError("database or disk is full")))
            history.add([Slice(0, "m", "", {"met": 1})])
            while not history.behind:
                await asyncio.sleep(0.01)
            during = [f"{alarm.code}: {alarm.message}" for alarm in keeping.alarms(0.0)]
        assert history.flush(20.0)
        after = [alarm.code for alarm in keeping.alarms(0.0)]
        await keeping.end([], RetiredTotals(), 1.0)
        return during, after

    during, after = uvloop.run(collect_alarms())
    assert [
        one for one in during if one.startswith("history_unavailable") and "disk is full; trying again" in one
    ] == during
    assert (len(during), after) == (1, [])


def test_lines_that_are_being_lost_are_an_alarm_until_a_minute_later() -> None:
    keeping = SloTracker()
    keeping.config_changed(parse_config(CONFIG), 0.0)

    def said(lost: dict[str, int], now: float) -> list[str]:
        keeping.update([WorkerReport(0, (), (), dropped=lost)], RetiredTotals(), now)
        return [f"{alarm.code} {alarm.age:.0f} s: {alarm.message}" for alarm in keeping.alarms(now)]

    assert said({"access_log": 0, "spans": 0}, 0.0) == []
    assert said({"access_log": 3, "spans": 0}, 10.0) == [
        "telemetry_dropped 0 s: lines of the access log are being lost (3 so far): its disk is full, or too slow"
    ]
    assert said({"access_log": 5, "spans": 2}, 15.0) == [
        "telemetry_dropped 5 s: lines of the access log are being lost (5 so far): its disk is full, or too slow",
        "telemetry_dropped 0 s: spans are being lost (2 so far): they cannot be sent",
    ]
    assert len(said({"access_log": 5, "spans": 2}, 74.0)) == 2
    assert said({"access_log": 5, "spans": 2}, 75.0) == []
    assert said({"access_log": 6, "spans": 2}, 80.0) == [
        "telemetry_dropped 0 s: lines of the access log are being lost (1 so far): its disk is full, or too slow"
    ]


def test_an_slo_to_one_tenant_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    counts = [0] * VERDICT_COUNT
    counts[VERDICT_INDEX["met", ""]] = 3
    reports = [WorkerReport(0, (ModelReport("m", 0, 0, {}, {}, slo_verdicts={"gold": counts}),), ())]

    async def kept() -> list[str]:
        keeping = SloTracker()
        keeping.config_changed(parse_config(CONFIG), 0.0)
        history = HistoryStore(path, 1e6)
        keeping.begin(history, 0.0)
        await keeping.end(reports, RetiredTotals(), 1.0)
        return [alarm.code for alarm in keeping.alarms(1.0)]

    assert uvloop.run(kept()) == []
    with open_readonly(path) as database:
        (found,) = [one for one in read_slices(database, 0.0) if one.tenant == "gold"]
    assert found.counts == {"met": 3}
    assert found.slo is not None
    assert found.slo.latency == 0.2


def test_another_history_needs_a_restart() -> None:
    now = parse_config(CONFIG)
    wanted = msgspec.structs.replace(now, history=msgspec.structs.replace(now.history, path="elsewhere"))
    assert split_reloadable(wanted, now) == (now, "history")


def test_systemd_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/private/steelyard")
    assert default_path("shop") == Path("/var/lib/private/steelyard/shop.sqlite")
