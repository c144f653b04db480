"""The supervisor with real processes; what they do is in fake_worker.py."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from steelyard.control.errors import ListenError, StartError
from steelyard.control.supervisor.fleet_admin import FleetAdmin
from steelyard.control.supervisor.supervisor import Supervisor
from steelyard.control.workers.slot import RestartBackoff

from ..driving import (
    FAKE,
    WAIT_TIMEOUT_SECONDS,
    ask,
    config,
    die_young,
    is_alive,
    lines,
    refused,
    release,
    run,
    serving,
    supervised,
    until,
)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO)
    run(asyncio.sleep(0))  # what uvloop opens once and keeps
    gc.collect()  # what tests before left, and would be closed any time now
    before = sorted(os.listdir("/proc/self/fd"))
    others = _children()  # fixtures of other modules may have theirs
    yield
    gc.collect()  # a shared ledger's memory is given back with its last view
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert _children() <= others


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


# ---------------------------------------------------------------------- start and stop


def test_it_serves_as_long_as_it_is_asked_to() -> None:
    async def work() -> None:
        async with supervised(config(workers=2)) as supervisor:
            await until(lambda: len(serving(supervisor)) == 2)
            answers = {await ask(supervisor) for _ in range(40)}
            assert {pid for _, pid, _ in answers} == set(serving(supervisor))
            assert {index for index, _, _ in answers} == {0, 1}
            pids = serving(supervisor)
            address = supervisor.addresses[0]
        assert not any(map(is_alive, pids))
        with pytest.raises(ConnectionRefusedError):
            await ask(supervisor, address=address)

    run(work())


def test_on_a_unix_socket(tmp_path: Path) -> None:
    async def work() -> None:
        async with supervised(config(workers=2, listen=f"unix:{tmp_path}/s")) as supervisor:
            for _ in range(5):
                await ask(supervisor)
        assert not (tmp_path / "s").exists()

    run(work())


def test_an_address_in_use_and_a_worker_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with supervised() as supervisor:
            taken = config(listen=str(supervisor.addresses[0]))
            with pytest.raises(ListenError, match="in use already"):
                await Supervisor(taken, command=FAKE).start()
        monkeypatch.setenv("FAKE_WORKER", "dies")
        with pytest.raises(
            StartError, match=r"worker \d .* ended with exit code 1 .*last line on stderr: error: I cannot start"
        ):
            await Supervisor(config(workers=3), command=FAKE).start()

    run(work())


def test_a_configuration_that_the_worker_refuses_at_the_start() -> None:
    async def work() -> None:
        with pytest.raises(StartError, match="no such certificate"):
            await Supervisor(config(models="refused"), command=FAKE).start()
        with pytest.raises(StartError, match=r"cannot be started: .*no/such/program"):
            await Supervisor(config(), command=("/no/such/program",)).start()

    run(work())


def test_a_request_in_flight_is_finished_and_no_other_begun() -> None:
    async def work() -> None:
        supervisor = Supervisor(config(), command=FAKE)
        await supervisor.start()
        pids = serving(supervisor)
        held = asyncio.create_task(ask(supervisor, "/held"))
        await until(lambda: supervisor.status().connections)
        stopping = asyncio.create_task(supervisor.stop(WAIT_TIMEOUT_SECONDS))
        others = await refused(supervisor)
        assert not held.done()
        release(pids)
        assert (await held)[0] == 0
        assert await stopping is True
        assert supervisor.status().models["m"].requests == 1 + others  # the last report was read too

    run(work())


def test_a_worker_that_does_not_drain_is_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        monkeypatch.setenv("FAKE_WORKER", "stubborn")
        monkeypatch.setattr("steelyard.control.workers.slot.DRAIN_GRACE_SECONDS", 0.2)
        supervisor = Supervisor(config(workers=2), command=FAKE)
        await supervisor.start()
        assert await supervisor.stop(0.1) is False
        assert "did not end within 0.3 s" in lines(caplog)

    run(work())


def test_it_can_be_ended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setenv("FAKE_WORKER", "stubborn")
        supervisor = Supervisor(config(), command=FAKE)
        await supervisor.start()
        stopping = asyncio.create_task(supervisor.stop(1000.0))
        await until(lambda: all(slot.draining for slot in supervisor.workers.all_slots()))
        supervisor.stop_now()
        assert await stopping is False

    run(work())


def test_killed_before_it_could_start(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """By whom ever: that is no reason to give up."""

    async def work() -> None:
        monkeypatch.setenv("FAKE_WORKER", "silent")
        supervisor = Supervisor(config(), command=FAKE)
        starting = asyncio.create_task(supervisor.start())
        await until(lambda: hasattr(supervisor, "workers") and supervisor.status().workers)
        monkeypatch.delenv("FAKE_WORKER")
        os.kill(supervisor.status().workers[0].pid, signal.SIGKILL)
        await starting
        await ask(supervisor)
        await supervisor.stop()
        assert "ended with signal SIGKILL" in lines(caplog)

    run(work())


def test_a_start_that_is_given_up_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setenv("FAKE_WORKER", "silent")
        supervisor = Supervisor(config(workers=2), command=FAKE)
        starting = asyncio.create_task(supervisor.start())
        await until(lambda: hasattr(supervisor, "workers") and len(supervisor.status().workers) == 2)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    run(work())


# ---------------------------------------------------------------------- workers that end


def test_a_killed_worker_is_replaced_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with supervised(config(workers=2)) as supervisor:
            await until(lambda: len(serving(supervisor)) == 2)
            for _ in range(10):
                await ask(supervisor)
            await until(lambda: supervisor.status().models["m"].requests == 10)
            first, second = serving(supervisor)
            os.kill(first, signal.SIGKILL)
            # Those whom the kernel gives to the dead one's socket wait for its replacement; nobody is refused.
            answers = await asyncio.gather(*(ask(supervisor) for _ in range(40)))
            assert len(answers) == 40
            await until(lambda: len(serving(supervisor)) == 2)
            assert second in serving(supervisor)
            assert first not in serving(supervisor)
            await until(lambda: supervisor.status().models["m"].requests == 50)  # what the dead one counted too
            assert supervisor.status().unexpected_exits == 1
        assert "ended with signal SIGKILL" in lines(caplog, logging.ERROR)
        assert "starting another" in lines(caplog, logging.ERROR)

    run(work())


def test_why_it_died_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with supervised() as supervisor:
            with pytest.raises(ConnectionError):
                await ask(supervisor, "/die")
            await ask(supervisor)
        assert "worker 0: a bad day" in lines(caplog)
        assert "ended with exit code 3" in lines(caplog)
        assert "its last line on stderr: ValueError: died as told" in lines(caplog)

    run(work())


def test_one_that_keeps_dying_is_started_more_and_more_slowly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with supervised(config(workers=2)) as supervisor:
            await until(lambda: len(serving(supervisor)) == 2)
            victim, other = serving(supervisor)
            die_young(monkeypatch)
            monkeypatch.setenv("FAKE_WORKER", "dies")
            os.kill(victim, signal.SIGKILL)
            await until(lambda: "next try in 1 s" in lines(caplog))
            monkeypatch.setattr(RestartBackoff, "next_delay", lambda *_: 1000.0)  # and now more slowly than any test
            await until(lambda: "next try in 1000 s" in lines(caplog))
            # Its sockets are closed meanwhile, so that nobody waits there.
            assert {pid for _, pid, _ in await asyncio.gather(*(ask(supervisor) for _ in range(30)))} == {other}
            monkeypatch.undo()
            supervisor.workers.retry_now()
            await until(lambda: len(serving(supervisor)) == 2)
            answers = await asyncio.gather(*(ask(supervisor) for _ in range(60)))
            assert len({pid for _, pid, _ in answers}) == 2

    run(work())


async def another(supervisor: Supervisor) -> int:
    """Who answers; on a slow machine the next may seem frozen too."""
    while True:
        with suppress(ConnectionError):
            return (await ask(supervisor))[1]


@pytest.mark.parametrize("how", ["/freeze", "stopped"])
def test_a_frozen_worker_is_killed_and_replaced(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with supervised(frozen=1.0) as supervisor:
            (pid,) = serving(supervisor)
            if how == "stopped":
                os.kill(pid, signal.SIGSTOP)
            else:
                with suppress(ConnectionError):  # a slow machine may have it killed before it answers
                    await ask(supervisor, how)
            await until(lambda: serving(supervisor) not in ([], [pid]))
            assert await another(supervisor) != pid
        assert re.search(r"no heartbeat for \d+ s, killing it", lines(caplog))

    run(work())


def operator(supervisor: Supervisor) -> FleetAdmin:
    """What the admin API asks."""
    parts = supervisor.fleet, supervisor.controllers, supervisor.workers
    return FleetAdmin(*parts, supervisor.reload_config, supervisor.live_feed)


def balancer_alarms(admin: FleetAdmin) -> list[str]:
    return [alarm.message for alarm in admin.fleet().alarms if alarm.code == "balancer_unavailable"]


def test_a_balancer_process_that_cannot_start_is_an_alarm_and_tried_every_second(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with supervised(config(workers=2)) as supervisor:
            admin = operator(supervisor)
            before = admin.fleet().balancer
            assert before is not None
            assert before.serving
            assert before.pid is not None
            assert (admin.readiness_problems(), balancer_alarms(admin)) == ([], [])
            die_young(monkeypatch)
            monkeypatch.setenv("FAKE_WORKER", "no balancer")
            os.kill(before.pid, signal.SIGKILL)
            await until(lambda: "next try in" in lines(caplog))
            away = admin.fleet().balancer
            assert away is not None
            assert not away.serving
            assert "ended with exit code 1" in away.problem
            (message,) = balancer_alarms(admin)
            assert message.startswith("the balancer process does not serve, so requests wait: ")
            assert admin.readiness_problems() == [message]
            await until(lambda: lines(caplog).count("next try in") == 3)
            assert set(re.findall(r"next try in (.*)", lines(caplog))) == {"1 s"}
            assert "worker -1" not in lines(caplog)
            monkeypatch.delenv("FAKE_WORKER")
            await until(lambda: not admin.readiness_problems())
            after = admin.fleet().balancer
            assert after is not None
            assert (after.serving, after.problem, after.unavailable_for) == (True, "", 0.0)
            assert after.pid != before.pid
            assert len(serving(supervisor)) == 2, "the workers stayed"

    run(work())


def test_a_silent_balancer_process_is_an_alarm_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with supervised(config(workers=2)) as supervisor:
            admin = operator(supervisor)
            before = admin.fleet().balancer
            assert before is not None
            assert before.pid is not None
            os.kill(before.pid, signal.SIGSTOP)
            await until(lambda: balancer_alarms(admin))
            assert "no report for" in balancer_alarms(admin)[0]
            assert admin.readiness_problems()
            await until(lambda: not admin.readiness_problems())
            assert admin.fleet().balancer != before
        assert re.search(r"balancer process \(pid \d+\): no heartbeat for \d+ s, killing it", lines(caplog))

    run(work())


def test_a_supervisor_that_stood_still_blames_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with supervised() as supervisor:
            pool = supervisor.workers
            (worker,) = pool.workers()
            worker.last_heard_at -= 1000.0  # the whole supervisor stood still for so long, as after Ctrl-Z
            pool.last_check -= 1000.0
            pool.kill_silent()
            before = worker.report
            await until(lambda: worker.report is not before)
            assert serving(supervisor) == [worker.pid]
        assert "no heartbeat" not in lines(caplog)

    run(work())


def test_one_that_speaks_nonsense_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with supervised() as supervisor:
            (pid,) = serving(supervisor)
            with suppress(ConnectionError):
                await ask(supervisor, "/garbage")
            await until(lambda: serving(supervisor) not in ([], [pid]))
        assert "invalid message, killing it" in lines(caplog)

    run(work())
