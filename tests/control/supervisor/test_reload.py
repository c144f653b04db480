"""Configurations that take each other's place while workers serve."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.config import Config, load_config
from steelyard.control.supervisor.supervisor import Supervisor
from steelyard.documents import DocumentError

from ..driving import ask, config, die_young, lines, release, run, serving, supervised, until


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


class Source:
    """What the file says, without a file."""

    def __init__(self, now: Config | Exception) -> None:
        self.now = now

    def __call__(self) -> Config:
        if isinstance(self.now, Exception):
            raise self.now
        return self.now


def models(supervisor: Supervisor) -> set[str]:
    return set(supervisor.config.models)


async def numbers(supervisor: Supervisor) -> set[int]:
    return {number for _, _, number in await asyncio.gather(*(ask(supervisor) for _ in range(20)))}


def test_every_worker_has_the_new_one_and_no_request_is_lost() -> None:
    async def work() -> None:
        source = Source(config(workers=2))
        async with supervised(config(workers=2), reread=source) as supervisor:
            await until(lambda: len(serving(supervisor)) == 2)
            pids = serving(supervisor)
            asking = [asyncio.create_task(ask(supervisor, "/slow")) for _ in range(10)]
            for turn in range(20):
                source.now = config(workers=2, models=" ".join(f"m{n}" for n in range(turn % 5 + 1)))
                assert await supervisor.reload()
                asking += [asyncio.create_task(ask(supervisor)) for _ in range(5)]
            assert len(await asyncio.gather(*asking)) == 110
            assert await numbers(supervisor) == {21}
            assert serving(supervisor) == pids

    run(work())


def test_a_bad_one_is_refused_and_the_last_good_one_stays(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        source = Source(config())
        async with supervised(reread=source) as supervisor:
            source.now = DocumentError("x.yaml:3: models.m.policy: no policy 'nope'")
            assert not await supervisor.reload()
            source.now = ZeroDivisionError("in a policy of the user's own")
            assert not await supervisor.reload()
            assert models(supervisor) == {"m"}
            source.now = config(models="n")
            assert await supervisor.reload()
            assert models(supervisor) == {"n"}
        errors = [line for line in lines(caplog, logging.ERROR).splitlines() if "alarm:" not in line]
        assert errors[0].endswith("refused, the last good one stays: x.yaml:3: models.m.policy: no policy 'nope'")
        assert errors[1].endswith("ZeroDivisionError: in a policy of the user's own")

    run(work())


def test_one_that_a_worker_refuses_is_taken_back_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        source = Source(config(workers=2, models="refused"))
        async with supervised(config(workers=2), reread=source) as supervisor:
            await until(lambda: len(serving(supervisor)) == 2)
            assert not await supervisor.reload()
            assert models(supervisor) == {"m"}
            (pid, _) = serving(supervisor)
            os.kill(pid, signal.SIGKILL)  # its replacement starts with the good one
            await until(lambda: len(serving(supervisor)) == 2 and pid not in serving(supervisor))
            assert await numbers(supervisor) == {3}  # all are back
        assert ": no such certificate" in lines(caplog, logging.ERROR)

    run(work())


def test_one_that_kills_the_workers_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        source = Source(config(models="deadly"))
        async with supervised(reread=source) as supervisor:
            assert not await supervisor.reload()
            await until(lambda: serving(supervisor))
            assert models(supervisor) == {"m"}
            await ask(supervisor)
        assert "ended with exit code 1 when it got it, and so did its replacement" in lines(caplog)

    run(work())


def test_a_worker_that_is_killed_meanwhile_is_no_reason_to_refuse() -> None:
    async def work() -> None:
        source = Source(config(workers=2, models="n"))
        async with supervised(config(workers=2), reread=source) as supervisor:
            await until(lambda: len(serving(supervisor)) == 2)
            victim = serving(supervisor)[0]
            os.kill(victim, signal.SIGSTOP)
            reloading = asyncio.create_task(supervisor.reload())
            await until(lambda: supervisor.fleet.members.active_config.rollout)
            os.kill(victim, signal.SIGKILL)
            assert await reloading
            await until(lambda: len(serving(supervisor)) == 2)
            assert await numbers(supervisor) == {2}

    run(work())


def test_a_good_one_ends_the_waiting_of_workers_that_kept_dying(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        die_young(monkeypatch)
        source = Source(config(models="n"))
        async with supervised(reread=source) as supervisor:
            monkeypatch.setenv("FAKE_WORKER", "dies")
            os.kill(serving(supervisor)[0], signal.SIGKILL)
            await until(lambda: "next try in 2 s" in lines(caplog))
            monkeypatch.delenv("FAKE_WORKER")
            assert await supervisor.reload()
            assert (await ask(supervisor))[2] == 2

    run(work())


def test_more_replicas_than_the_board_has_room_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        monkeypatch.setattr("steelyard.control.fleet.active_config.MIN_LEDGER_COLUMNS", 3)
        source = Source(config(models="a b c d"))
        async with supervised(reread=source) as supervisor:
            assert not await supervisor.reload()
            assert models(supervisor) == {"m"}
            source.now = config(models="a b c")
            assert await supervisor.reload()
        assert "4 replicas are more than the 3 that fit in the shared memory ledger" in lines(caplog)

    run(work())


def test_other_numbers_of_workers_and_nobody_is_turned_away() -> None:
    async def work() -> None:
        source = Source(config(workers=1))
        async with supervised(config(workers=1), reread=source) as supervisor:
            for size in (3, 1, 2):
                old = serving(supervisor)
                held = [asyncio.create_task(ask(supervisor, "/held")) for _ in range(5)]
                await until(lambda: supervisor.status().connections >= 5)
                source.now = config(workers=size)
                assert await supervisor.reload()
                while len(set(serving(supervisor)) - set(old)) < size:
                    await ask(supervisor)
                release(old)
                while set(old) & set(serving(supervisor)):
                    await ask(supervisor)
                assert {pid for _, pid, _ in await asyncio.gather(*held)} <= set(old)
                assert {i for i, _, _ in await asyncio.gather(*(ask(supervisor) for _ in range(60)))} == set(
                    range(size)
                )
            assert supervisor.status().unexpected_exits == 0
            assert supervisor.status().models["m"].requests >= 15  # of those that left too

    run(work())


def test_where_it_listens_needs_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        source = Source(config(listen="127.0.0.1:1", models="n"))
        async with supervised(reread=source) as supervisor:
            assert await supervisor.reload()
            assert models(supervisor) == {"n"}
            assert (await ask(supervisor))[2] == 2
        assert "needs a restart: listen" in lines(caplog, logging.WARNING)

    run(work())


# ---------------------------------------------------------------------- files


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "config.yaml"
    write(path, "m")
    return path


def write(path: Path, model: str, more: str = "") -> None:
    path.write_text(f"listen: 127.0.0.1:0\nmodels:\n  {model}: {{replicas: [{{url: 'http://127.0.0.1:9'}}]{more}}}\n")


def errors_about(caplog: pytest.LogCaptureFixture, file: Path) -> list[str]:
    """The errors about this file. Others may be there: a replica that nobody started is an alarm after a while."""
    return [line for line in lines(caplog, logging.ERROR).splitlines() if str(file) in line]


def test_a_changed_file_is_read_and_a_bad_one_is_told_with_its_line(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with supervised(load_config(file), reread=lambda: load_config(file), files=[file]) as supervisor:
            write(file, "n")
            await until(lambda: models(supervisor) == {"n"})
            write(file, "o", ", polcy: random")
            await until(lambda: errors_about(caplog, file))
            assert models(supervisor) == {"n"}
            aside = file.with_name("aside")
            write(aside, "p")
            aside.rename(file)
            await until(lambda: models(supervisor) == {"p"})
        (error,) = errors_about(caplog, file)
        assert f"{file}:3: models.o" in error
        assert "polcy" in error

    run(work())


def test_a_changed_certificate_is_brought_to_the_workers(tmp_path: Path) -> None:
    async def work() -> None:
        authority = tmp_path / "ca.pem"
        authority.write_text("one")
        async with supervised(config(replica_tls=f"{{ca: {authority}}}")) as supervisor:
            assert (await ask(supervisor))[2] == 1
            authority.write_text("two")
            while (await ask(supervisor))[2] == 1:
                await asyncio.sleep(0.05)

    run(work())
