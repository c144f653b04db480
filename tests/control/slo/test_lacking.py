"""A history that cannot be kept is told, one with tenants' own promises can be, and a reload leaves it where it is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import uvloop

from steelyard.config import parse_config
from steelyard.control.chronicle import Chronicle
from steelyard.control.configuration import changeable
from steelyard.control.history.database import default_path, open_to_read
from steelyard.control.history.reading import read_slices
from steelyard.control.history.store import History
from steelyard.control.slo.keeping import Keeping
from steelyard.control.status import Past
from steelyard.core.slo import INDEX, KINDS
from steelyard.link.messages import ModelReport, Report

CONFIG = "{tenant_header: x-tenant, models: {m: {replicas: [], slo: {latency: 1s, tenants: {gold: {latency: 200ms}}}}}}"


def test_what_cannot_be_kept_is_an_alarm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    async def told() -> list[str]:
        keeping = Keeping(Chronicle())
        keeping.follow(parse_config(CONFIG))
        history = History(tmp_path / "file" / "history.sqlite", 1e6)
        keeping.begin(history, 0.0)
        history.flush(20.0)
        alarms = [alarm.code for alarm in keeping.alarms(0.0)]
        await keeping.end([], Past(), 1.0)
        return alarms

    assert uvloop.run(told()) == ["no_history"]


def test_a_promise_to_one_tenant_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    counts = [0] * KINDS
    counts[INDEX["met", ""]] = 3
    reports = [Report(0, (ModelReport("m", 0, 0, {}, {}, judged={"gold": counts}),), ())]

    async def kept() -> list[str]:
        keeping = Keeping(Chronicle())
        keeping.follow(parse_config(CONFIG))
        history = History(path, 1e6)
        keeping.begin(history, 0.0)
        await keeping.end(reports, Past(), 1.0)
        return [alarm.code for alarm in keeping.alarms(1.0)]

    assert uvloop.run(kept()) == []
    with open_to_read(path) as database:
        (found,) = [one for one in read_slices(database, 0.0) if one.tenant == "gold"]
    assert found.counts == {"met": 3}
    assert found.promised is not None
    assert found.promised.latency == 0.2


def test_another_history_needs_a_restart() -> None:
    now = parse_config(CONFIG)
    wanted = msgspec.structs.replace(now, history=msgspec.structs.replace(now.history, path="elsewhere"))
    assert changeable(wanted, now) == (now, "history")


def test_systemd_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/private/steelyard")
    assert default_path("shop") == Path("/var/lib/private/steelyard/shop.sqlite")
