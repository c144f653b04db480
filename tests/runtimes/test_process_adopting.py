"""kill -9 of the supervisor: what it started goes on, and the next one of that name has it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from steelyard.runtimes import InstancePhase, ReplicaSpec
from steelyard.runtimes.process import procfs
from steelyard.runtimes.process.config import ProcessRuntimeConfig as Settings

from ..harness.waiting import wait_until
from .commands import shell
from .driving import ends, gateway, opened, pid_of, run, started_under, until, until_said

ROOT = Path(__file__).parents[2]
WAITS = "echo up; exec sleep 1000"


@pytest.fixture
def name() -> Iterator[str]:
    with gateway() as name:
        yield name


@contextmanager
def supervisor(name: str, log: Path, script: str = WAITS) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """And what it said until it waited."""
    command = [sys.executable, "-m", "tests.runtimes.doomed", name, str(log), script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            lines = (line.strip() for line in process.stdout)
            yield process, list(iter(lambda: next(lines), "waits"))
        finally:
            process.kill()


def test_a_killed_supervisors_replica_is_adopted_and_stopped(name: str, tmp_path: Path) -> None:
    with supervisor(name, tmp_path) as (_, said):
        where, _, url = said[0].rpartition(" ")
    pid = int(where.removeprefix("pid "))
    assert procfs.is_alive(pid)

    async def story() -> None:
        async with opened(name) as runtime:
            heard = ends(runtime)
            (found,) = await runtime.list()
            assert (found.model, found.id, found.url, found.device) == ("m", "one", url, "gpu0")
            assert (found.location, found.phase) == (where, InstancePhase.RUNNING)
            assert (await runtime.list())[0].location == where
            await until_said(runtime, found, "up")
            await runtime.stop("m", "one", timeout=20)
            assert not procfs.is_alive(pid)
            assert heard[0].exit_reason == "ended (exit code unknown: it was started by an earlier supervisor)"

    run(story())


def test_the_end_of_an_adopted_one_is_told_at_once(name: str, tmp_path: Path) -> None:
    with supervisor(name, tmp_path):
        pass

    async def story() -> None:
        async with opened(name) as runtime:
            (found,) = await runtime.list()
            heard = ends(runtime)
            os.kill(pid_of(found), 9)
            await until(lambda: heard)
            assert await runtime.list() == ()

    run(story())


def test_ports_and_cores_of_adopted_ones_are_taken(name: str, tmp_path: Path) -> None:
    with supervisor(name, tmp_path):
        pass

    async def story() -> None:
        async with opened(name) as runtime:
            (found,) = await runtime.list()
            port = found.url.rpartition(":")[2]
            settings = Settings(
                command="sleep 1000", port_range=f"{port}-{int(port) + 20}", log_directory=str(tmp_path), cpus=1
            )
            started = await runtime.start(ReplicaSpec("m", "two", settings))
            assert started.url != found.url
            if len(os.sched_getaffinity(0)) > 1:
                assert os.sched_getaffinity(pid_of(started)).isdisjoint(os.sched_getaffinity(pid_of(found)))

    run(story())


def test_what_a_living_supervisor_has_is_left_to_it(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(others: int) -> None:
        async with opened(name) as runtime:
            assert len(await runtime.list()) == others
            await runtime.stop("m", "one", timeout=20)

    with supervisor(name, tmp_path) as (process, _):
        run(story(0))
        assert f"pid {process.pid} is a gateway named {name!r} too" in caplog.text
    run(story(1))


def test_what_a_living_supervisor_adopted_is_left_to_it_too(name: str, tmp_path: Path) -> None:
    with supervisor(name, tmp_path):
        pass

    async def story(others: int) -> None:
        async with opened(name) as runtime:
            assert len(await runtime.list()) == others

    with supervisor(name, tmp_path, script="") as (_, said):
        assert said == ["found one"]
        run(story(0))
    run(story(1))


def test_children_of_a_replica_are_no_replicas(name: str, tmp_path: Path) -> None:
    """They have its marks, and the one here leads a session of its own."""
    script = "setsid sleep 1000 & sleep 1000 & echo up; exec sleep 1000"
    with supervisor(name, tmp_path, script) as (_, said):
        where = said[0].rpartition(" ")[0]

    async def story() -> None:
        async with opened(name) as runtime:
            (found,) = await runtime.list()
            assert found.location == where
            await until_said(runtime, found, "up")
            await runtime.stop("m", "one", timeout=20)
            assert await runtime.list() == ()

    run(story())


def test_what_is_left_of_a_replica_that_ended_without_a_supervisor_is_killed(name: str, tmp_path: Path) -> None:
    with supervisor(name, tmp_path, "sleep 1000 & sleep 1000 & echo up; exec sleep 1000") as (_, said):
        pid = int(said[0].split()[1])
        wait_until(lambda: len(started_under(name)) == 3, "its children are there")
    os.kill(pid, 9)

    async def story() -> None:
        async with opened(name) as runtime:
            await until(lambda: not procfs.is_alive(pid))
            assert await runtime.list() == ()
            await until(lambda: not started_under(name))

    run(story())


def test_look_alikes(name: str, tmp_path: Path) -> None:
    """Somebody's own variables of that name, damaged ones, and none of them in a session of its own."""
    marked = {"STEELYARD_STARTED_BY": name, "STEELYARD_MODEL": "m", "STEELYARD_ID": "one"}
    fine = {"STEELYARD_STARTED": '{"token": "1", "url": "http://127.0.0.1:9"}'}
    alikes = [
        (marked, True),
        (marked | {"STEELYARD_STARTED": "yes"}, True),
        (marked | fine | {"STEELYARD_STARTED_BY": f"{name}r"}, True),
        (marked | {"STEELYARD_STARTED": '{"token": "", "url": "http://127.0.0.1:9"}'}, True),
        (marked | fine, False),
    ]
    processes = [
        subprocess.Popen(["sleep", "1000"], env=os.environ | more, start_new_session=session)
        for more, session in alikes
    ]

    async def story() -> None:
        async with opened(name) as runtime:
            assert await runtime.list() == ()

    try:
        run(story())
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_one_of_another_version_is_adopted_too(name: str, tmp_path: Path) -> None:
    marked = {"STEELYARD_STARTED_BY": name, "STEELYARD_MODEL": "m", "STEELYARD_ID": "one"}
    facts = '{"token": "1", "url": "http://127.0.0.1:9", "later": [1, 2]}'
    process = subprocess.Popen(
        ["sleep", "1000"], env=os.environ | marked | {"STEELYARD_STARTED": facts}, start_new_session=True
    )

    async def story() -> None:
        async with opened(name) as runtime:
            (found,) = await runtime.list()
            assert found.fingerprint == ""
            assert runtime.log_tail("m", "one") == ()
            await asyncio.gather(runtime.stop("m", "one", timeout=20), asyncio.to_thread(process.wait))

    try:
        run(story())
    finally:
        process.kill()
        process.wait()


def test_a_replica_that_threw_its_marks_away_is_known_to_who_started_it(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(name) as runtime:
            settings = Settings(command=shell("exec env -i sleep 1000"), log_directory=str(tmp_path))
            started = await runtime.start(ReplicaSpec("m", "one", settings))
            await until(lambda: not procfs.environment(pid_of(started)))
            assert [instance.location for instance in await runtime.list()] == [started.location]
            await runtime.stop("m", "one", timeout=20)
            assert not procfs.is_alive(pid_of(started))

    run(story())
