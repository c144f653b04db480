"""SLOs in the fleet: what is shown, when somebody is alerted, and what survives the supervisor."""

import asyncio
import contextlib
from pathlib import Path

import uvloop

from steelyard.config import Config, parse_config
from steelyard.control.history.database import open_readonly, read_slices
from steelyard.control.history.store import HistoryStore
from steelyard.control.observability.alarms import AlarmLog
from steelyard.control.observability.event_log import EventLog
from steelyard.control.observability.retired_workers import RetiredTotals
from steelyard.control.slo.tracker import WRITE_INTERVAL_SECONDS, SloTracker
from steelyard.core.slo.verdicts import VERDICT_COUNT, VERDICT_INDEX
from steelyard.link.messages import ModelReport, WorkerReport

WALL_CLOCK_SECONDS = 1_700_000_000.0


def config(slo: str = "latency: 200ms, availability: 99.9") -> Config:
    return parse_config(f"models: {{resnet: {{slo: {{{slo}}}, replicas: []}}, idle: {{replicas: []}}}}")


def reported(met: int = 0, late: int = 0, failed: int = 0) -> list[WorkerReport]:
    counts = [0] * VERDICT_COUNT
    counts[VERDICT_INDEX["met", ""]] = met
    counts[VERDICT_INDEX["late", "replica"]] = late
    counts[VERDICT_INDEX["failed", "replica"]] = failed
    return [WorkerReport(0, (ModelReport("resnet", 0, 0, {}, {}, slo_verdicts={"": counts}),), ())]


class Wall:
    def __init__(self, now: float = WALL_CLOCK_SECONDS) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def keeping(slo: str = "latency: 200ms, availability: 99.9", wall: Wall | None = None) -> SloTracker:
    made = SloTracker(wall or Wall())
    made.config_changed(config(slo), 0.0)
    return made


def test_what_is_shown() -> None:
    made = keeping()
    made.update(reported(met=990, late=9, failed=1), RetiredTotals(), 10.0)
    idle, resnet = made.views(10.0)
    assert (idle.model, idle.counts, idle.objectives) == ("idle", {}, ())
    assert resnet.counts == {"met": 990, "late/replica": 9, "failed/replica": 1}
    latency, availability = resnet.objectives
    assert (latency.kind, latency.target, latency.latency, latency.first_byte) == ("latency", 99.0, 0.2, None)
    assert (latency.budget.good, latency.budget.bad, latency.budget.attainment) == (990, 10, 99.0)
    assert [window.seconds for window in latency.windows] == [300, 1800, 3600, 21600]
    assert abs(latency.error_budget_remaining) < 1e-6
    assert (availability.kind, availability.latency) == ("availability", None)
    assert (availability.budget.good, availability.budget.bad) == (999, 1)


def test_the_dead_count_too_and_once() -> None:
    made = keeping()
    past = RetiredTotals()
    (first,) = reported(met=5)
    made.update([first], past, 1.0)
    past.retire(first)
    made.update(reported(met=2), past, 2.0)
    assert made.views(2.0)[1].counts == {"met": 7}


def test_an_alert_begins_is_shown_and_ends() -> None:
    made = keeping("latency: 200ms")
    event_log = EventLog()
    log = AlarmLog(event_log)
    log.update(made.alarms(0.0), 0.0)
    made.update(reported(met=1), RetiredTotals(), -4000.0)
    made.update(reported(met=852, late=149), RetiredTotals(), 0.0)
    (alarm,) = made.alarms(5.0)
    log.update([alarm], 2.0)
    log.update([alarm], 5.0)
    assert (alarm.code, alarm.age) == ("slo_page", 5.0)
    assert alarm.message == (
        "resnet: 85.1 % within 200 ms over 1 h, target 99 %: the error budget burns 14.9 × as fast as allowed (page)"
    )
    assert made.views(5.0)[1].objectives[0].alert == "page"
    made.update(reported(met=100_000, late=149), RetiredTotals(), 20.0)
    assert made.alarms(20.0) != []  # not at once: it may come back
    made.update(reported(met=100_001, late=149), RetiredTotals(), 90.0)
    assert made.alarms(90.0) == []
    log.update(made.alarms(90.0), 90.0)
    begun, ended = event_log.latest()
    assert (begun.kind, begun.code, begun.model) == ("alarm", "slo_page", "resnet")
    assert alarm.message == f"resnet: {begun.message.removeprefix('alarm: ')}"  # who tells of it says whom it is about
    assert ended.message.startswith("alarm over after")


def test_an_alert_of_an_slo_that_is_gone_is_over() -> None:
    made = keeping("latency: 200ms")
    made.update(reported(late=100), RetiredTotals(), 0.0)
    assert made.alarms(0.0)
    made.config_changed(config("availability: 99"), 0.0)
    assert made.alarms(0.0) == []


def test_history_survives_and_nothing_counts_twice(tmp_path: Path) -> None:
    async def once(reports: list[WorkerReport], before: tuple[int, int], after: tuple[int, int], wall: float) -> None:
        made = keeping(wall=Wall(wall))
        made.begin(HistoryStore(tmp_path / "h.sqlite", 1e9), 1000.0)
        assert made.restoring is not None
        await made.restoring
        assert budget(made, 1000.0) == before
        made.update_and_store(reports, RetiredTotals(), 1001.0)
        made.update_and_store(reports, RetiredTotals(), 1002.0 + WRITE_INTERVAL_SECONDS)
        assert budget(made, 1020.0) == after
        await made.end([], _past(reports), 1020.0)

    def budget(made: SloTracker, now: float) -> tuple[int, int]:
        whole = made.views(now)[1].objectives[0].budget
        return whole.good, whole.bad

    def _past(reports: list[WorkerReport]) -> RetiredTotals:
        past = RetiredTotals()
        for report in reports:
            past.retire(report)
        return past

    async def work() -> None:
        await once(reported(met=10, late=2), (0, 0), (10, 2), WALL_CLOCK_SECONDS)
        await once(reported(met=1, failed=1), (10, 2), (11, 3), WALL_CLOCK_SECONDS + 20.0)  # in the same minute
        await once(reported(met=1), (11, 3), (12, 3), WALL_CLOCK_SECONDS + 7200.0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())


def test_a_clock_that_is_set_back_is_followed(tmp_path: Path) -> None:
    """It was a day fast: what came since is not put into a day to come."""

    async def work() -> None:
        wall = Wall(WALL_CLOCK_SECONDS + 86400.0)
        made = keeping(wall=wall)
        history = HistoryStore(tmp_path / "h.sqlite", 1e9)
        made.begin(history, 0.0)
        assert made.restoring is not None
        await made.restoring
        made.update(reported(met=1), RetiredTotals(), 1.0)
        wall.now = WALL_CLOCK_SECONDS
        made.update(reported(met=3), RetiredTotals(), 2.0)
        wall.now = WALL_CLOCK_SECONDS + 60.0
        made.update(reported(met=7), RetiredTotals(), 3.0)
        await made.end(reported(met=7), RetiredTotals(), 4.0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())
    database = open_readonly(tmp_path / "h.sqlite")
    with contextlib.closing(database):
        found = {part.start: part.counts for part in read_slices(database, 0) if part.counts}
    start = int(WALL_CLOCK_SECONDS) // 60 * 60
    # What came is of the minute that was open when it was first heard of.
    assert found == {start + 86400: {"met": 1}, start: {"met": 2}, start + 60: {"met": 4}}


def test_a_tenant_is_named_and_the_model_once() -> None:
    made = SloTracker(Wall())
    made.config_changed(config("latency: 200ms"), 0.0)
    counts = [0] * VERDICT_COUNT
    counts[VERDICT_INDEX["failed", "replica"]] = 100
    made.update(
        [WorkerReport(0, (ModelReport("resnet", 0, 0, {}, {}, slo_verdicts={"acme": counts}),), ())],
        RetiredTotals(),
        0.0,
    )
    (alarm,) = made.alarms(0.0)
    said = "within 200 ms since 22:13 UTC (0 s) for acme, target 99 %: the error budget burns"
    assert alarm.message.startswith(f"resnet: 0 % {said}")
    assert (alarm.model, alarm.subject) == ("resnet", "latency acme")


def test_windows_claim_no_more_than_was_seen() -> None:
    made = keeping("latency: 200ms")
    made.update(reported(met=80), RetiredTotals(), 0.0)
    made.update(reported(met=80, late=20), RetiredTotals(), 180.0)
    (alarm,) = made.alarms(180.0)
    assert "80 % within 200 ms since " in alarm.message
    assert " UTC (3 min), target 99 %" in alarm.message
    objective = made.views(180.0)[-1].objectives[0]
    assert [window.covered_seconds for window in objective.windows] == [180.0] * 4
    assert (objective.budget.covered_seconds, objective.budget.seconds) == (180.0, 30 * 86400.0)
    later = made.views(7000.0)[-1].objectives[0]
    assert [window.covered_seconds for window in later.windows] == [None, None, None, 7000.0]


def test_a_page_that_eases_for_a_moment_stays_a_page() -> None:
    """Around the limit it would be a page and a ticket in turn, several times a minute."""
    made = keeping("latency: 200ms")
    late, met = 10, 100

    def second(now: float, share: float) -> str:
        nonlocal late, met
        late += round(100 * share)
        met += 100 - round(100 * share)
        made.update(reported(met=met, late=late), RetiredTotals(), now)
        return made.alarms(now)[0].code

    start = 7 * 3600.0
    made.update(reported(met=met, late=late), RetiredTotals(), 0.0)
    codes = [second(start + number * 10.0, 0.25) for number in range(6)]
    assert set(codes) == {"slo_page"}
    eased = [second(start + 60.0 + number * 10.0, 0.08) for number in range(60)]
    first = eased.index("slo_ticket")
    assert set(eased[:first]) == {"slo_page"}
    assert first >= 29  # five minutes
    assert set(eased[first:]) == {"slo_ticket"}
