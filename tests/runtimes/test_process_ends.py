"""How processes end, and what they leave behind."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.runtimes import ReplicaSpec
from steelyard.runtimes.process import procfs
from steelyard.runtimes.process.config import ProcessRuntimeConfig as Settings
from steelyard.runtimes.process.ownership import Descendants, is_descendant

from .commands import shell
from .driving import ends, gateway, opened, pid_of, run, spare_ports, started_under, until, until_said


@pytest.fixture
def name() -> Iterator[str]:
    with gateway() as name:
        yield name


def no_pidfd(pid: int, flags: int = 0) -> int:
    raise OSError(38, "Function not implemented")


@pytest.mark.parametrize(
    ("script", "how"), [("exit 0", "exit code 0"), ("exit 7", "exit code 7"), ("kill -9 $$", "signal SIGKILL")]
)
def test_how_it_ended(name: str, tmp_path: Path, script: str, how: str) -> None:
    async def story() -> None:
        async with opened(name) as runtime:
            heard = ends(runtime)
            started = await runtime.start(
                ReplicaSpec("m", "one", Settings(command=shell(script), log_directory=str(tmp_path)))
            )
            await until(lambda: heard)
            assert heard[0].exit_reason == how
            assert procfs.stat(pid_of(started)) is None  # no zombie

    run(story())


def test_a_full_disk_may_be_why_and_is_told(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs

    def full(path: str) -> os.statvfs_result:
        numbers = list(real(path)[:11])
        numbers[3] = numbers[4] = 0  # f_bfree, f_bavail
        return os.statvfs_result(numbers)

    async def story() -> None:
        async with opened(name) as runtime:
            heard = ends(runtime)
            monkeypatch.setattr(os, "statvfs", full)
            one = await runtime.start(
                ReplicaSpec("m", "one", Settings(command=shell("exit 1"), log_directory=str(tmp_path)))
            )
            await until(lambda: heard)
            assert heard[0].exit_reason == f"exit code 1; the disk of its log is full ({one.log_path})"
            two = await runtime.start(
                ReplicaSpec("m", "two", Settings(command=shell("sleep 1000"), log_directory=str(tmp_path)))
            )
            await runtime.stop("m", "two", timeout=20)
            await until(lambda: len(heard) == 2)
            assert (two.id, heard[1].exit_reason) == ("two", "signal SIGTERM")  # as it was asked to

    run(story())


def test_a_kernel_that_does_not_tell(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pidfd_open", no_pidfd)
    monkeypatch.setattr("steelyard.runtimes.process.runtime.LOG_CHECK_INTERVAL_SECONDS", 0.01)

    async def story() -> None:
        async with opened(name) as runtime:
            heard = ends(runtime)
            settings = Settings(
                command=shell("setsid sleep 1000 & echo up; exec sleep 1000"), log_directory=str(tmp_path)
            )
            started = await runtime.start(ReplicaSpec("m", "one", settings))
            await until_said(runtime, started, "up")
            await runtime.stop("m", "one", timeout=20)
            assert heard[0].exit_reason == "signal SIGTERM"
            assert started_under(name) == []

    run(story())


def test_one_that_was_halted_is_stopped(name: str, tmp_path: Path) -> None:
    cases = [
        ("echo up; exec sleep 1000", 20.0, "signal SIGTERM"),
        ("trap 'exit 4' TERM; echo up; while :; do sleep 0.01; done", 20.0, "exit code 4"),
        ("trap '' TERM; echo up; sleep 1000", 0.05, "signal SIGKILL"),
    ]

    async def story() -> None:
        async with opened(name) as runtime:
            heard = ends(runtime)
            for script, timeout, how in cases:
                settings = Settings(command=shell(script), log_directory=str(tmp_path))
                started = await runtime.start(ReplicaSpec("m", "one", settings))
                await until_said(runtime, started, "up")
                os.kill(pid_of(started), signal.SIGSTOP)
                await runtime.stop("m", "one", timeout=timeout)
                assert not procfs.is_alive(pid_of(started))
                assert heard[-1].exit_reason == how

    run(story())


def test_it_is_asked_to_end_once(name: str, tmp_path: Path) -> None:
    """Some servers drop all they still do at a second SIGTERM."""
    script = "trap 'echo asked' TERM; echo up; while :; do sleep 0.01; done"

    async def story() -> None:
        async with opened(name) as runtime:
            started = await runtime.start(
                ReplicaSpec("m", "one", Settings(command=shell(script), log_directory=str(tmp_path)))
            )
            await until_said(runtime, started, "up")
            patient = asyncio.create_task(runtime.stop("m", "one", timeout=1000))
            await until_said(runtime, started, "asked")
            await runtime.stop("m", "one", timeout=0.2)
            await patient
            assert runtime.log_tail("m", "one") == ("up", "asked")

    run(story())


@pytest.mark.parametrize("ended_by", ["itself", "SIGTERM", "SIGKILL"])
def test_nothing_is_left_of_its_group_nor_of_other_sessions(name: str, tmp_path: Path, ended_by: str) -> None:
    deaf = "trap '' TERM; sleep 1000 & setsid sleep 1000 & echo up; "
    script = {"itself": "read x", "SIGTERM": "trap 'exit 4' TERM; read x", "SIGKILL": "read x"}[ended_by]

    async def story() -> None:
        async with opened(name) as runtime:
            heard = ends(runtime)
            fifo = tmp_path / "fifo"
            os.mkfifo(fifo)
            settings = Settings(command=shell(f"{deaf} {script} <{fifo}; exit 5"), log_directory=str(tmp_path))
            started = await runtime.start(ReplicaSpec("m", "one", settings))
            await until_said(runtime, started, "up")
            await until(lambda: len(started_under(name)) == 3)
            if ended_by == "itself":
                fifo.write_text("now\n")
                await until(lambda: heard)
                await until(lambda: not started_under(name))
            else:
                await runtime.stop("m", "one", timeout=0.1 if ended_by == "SIGKILL" else 1)
            assert started_under(name) == []
            assert len(heard) == 1

    run(story())


FINISHES = "trap 'echo asked; sleep 0.1; echo finished; exit' TERM; echo up; while :; do sleep 0.01; done"


@pytest.mark.parametrize("begun", ["{server}; echo done", "setsid {server}; echo done"])
def test_a_server_behind_a_shell_has_time_too(name: str, tmp_path: Path, begun: str) -> None:
    """The shell ends at once when it is asked to."""
    script = begun.format(server=f'sh -c "{FINISHES}"')

    async def story() -> None:
        async with opened(name) as runtime:
            started = await runtime.start(
                ReplicaSpec("m", "one", Settings(command=shell(script), log_directory=str(tmp_path)))
            )
            await until_said(runtime, started, "up")
            await runtime.stop("m", "one", timeout=20)
            said = [word for word in runtime.log_tail("m", "one") if "Term" not in word]
            assert said == ["up", "asked", "finished"]
            assert started_under(name) == []

    run(story())


def test_whoever_hurries_need_not_wait_for_what_is_behind_a_shell(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(name) as runtime:
            heard = ends(runtime)
            script = "sh -c \"trap 'echo asked' TERM; echo up; while :; do sleep 0.01; done\"; echo done"
            started = await runtime.start(
                ReplicaSpec("m", "one", Settings(command=shell(script), log_directory=str(tmp_path)))
            )
            await until_said(runtime, started, "up")
            patient = asyncio.create_task(runtime.stop("m", "one", timeout=1000))
            await until_said(runtime, started, "asked")
            await until(lambda: heard)
            assert not patient.done()
            await runtime.stop("m", "one", timeout=0)
            await patient
            assert started_under(name) == []

    run(story())


def test_what_one_leaves_that_ended_by_itself_has_no_time(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(name) as runtime:
            script = f'sh -c "{FINISHES}"; echo done'
            started = await runtime.start(
                ReplicaSpec("m", "one", Settings(command=shell(script), log_directory=str(tmp_path)))
            )
            await until_said(runtime, started, "up")
            os.kill(pid_of(started), signal.SIGKILL)
            await until(lambda: not started_under(name))
            assert runtime.log_tail("m", "one") == ("up",)

    run(story())


@pytest.fixture
def init() -> Iterator[None]:
    """As the first process of a container we become the parent of all whose own has ended."""
    prctl, subreaper = ctypes.CDLL(None).prctl, 36
    assert prctl(subreaper, 1, 0, 0, 0) == 0
    yield
    prctl(subreaper, 0, 0, 0, 0)


@pytest.mark.usefixtures("init")
@pytest.mark.parametrize("ended_by", ["itself", "stop"])
def test_no_zombies_of_others_are_left_to_us(name: str, tmp_path: Path, ended_by: str) -> None:
    script = "sleep 1000 & sleep 1000 & setsid sleep 1000 & echo up; sleep 1000; echo done"

    async def story() -> None:
        async with opened(name) as runtime:
            started = await runtime.start(
                ReplicaSpec("m", "one", Settings(command=shell(script), log_directory=str(tmp_path)))
            )
            await until_said(runtime, started, "up")
            await until(lambda: len(started_under(name)) == 5)
            pids = started_under(name)
            if ended_by == "itself":
                os.kill(pid_of(started), signal.SIGKILL)
            else:
                await runtime.stop("m", "one", timeout=20)
            await until(lambda: not any(procfs.stat(pid) for pid in pids))

    run(story())


def test_those_without_a_group_are_nobodys_relatives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of the kernel, and in a container what was started from outside."""
    stranger = procfs.Stat("S", 0, 0, 0, 5)
    monkeypatch.setattr(procfs, "stat", lambda pid: stranger if pid else None)
    monkeypatch.setattr(procfs, "environment", lambda pid: {})
    assert not is_descendant(4711, 0, 0, "token")
    monkeypatch.setattr(procfs, "stat", lambda pid: stranger._replace(state="Z", parent=os.getpid()) if pid else None)
    monkeypatch.setattr(os, "waitpid", lambda pid, options: (pid, 0))
    assert (
        Descendants(0, 0, "token").signal_all(signal.SIGCONT) == 0
    )  # a worker of ours, perhaps: others ask how it ended


def test_a_fixed_port_is_free_when_stop_returns(name: str, tmp_path: Path) -> None:
    """Though a child of the replica held it."""
    port = spare_ports()
    serves = (
        "import os, signal, socket, time; s = socket.create_server(('127.0.0.1', int(os.environ['PORT'])));"
        "pid = os.fork(); print('up', flush=True); time.sleep(1000)"
    )

    async def story() -> None:
        async with opened(name) as runtime:
            settings = Settings(
                command=(sys.executable, "-S", "-c", serves),
                environment={"PORT": str(port)},
                url=f"http://127.0.0.1:{port}",
                log_directory=str(tmp_path),
            )
            for _ in range(2):
                started = await runtime.start(ReplicaSpec("m", "one", settings))
                await until_said(runtime, started, "up")
                await runtime.stop("m", "one", timeout=20)
            with socket.create_server(("127.0.0.1", port)):
                pass

    run(story())


def test_a_stop_that_is_given_up_can_be_taken_up_again(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(name) as runtime:
            settings = Settings(command=shell("trap '' TERM; echo up; sleep 1000"), log_directory=str(tmp_path))
            started = await runtime.start(ReplicaSpec("m", "one", settings))
            await until_said(runtime, started, "up")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await runtime.stop("m", "one", timeout=1000)
            assert len(await runtime.list()) == 1
            await runtime.stop("m", "one", timeout=0)

    run(story())


def test_many_at_once(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(name) as runtime:
            heard = ends(runtime)
            settings = Settings(command="sleep 1000", log_directory=str(tmp_path))
            started = await asyncio.gather(*(runtime.start(ReplicaSpec("m", str(n), settings)) for n in range(20)))
            assert len({instance.url for instance in started}) == 20
            await asyncio.gather(*(runtime.stop("m", str(n), timeout=20) for n in range(20)))
            assert len(heard) == 20
            assert started_under(name) == []

    run(story())


def test_what_ends_after_close_is_not_told(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(name) as runtime:
            heard = ends(runtime)
            started = await runtime.start(
                ReplicaSpec("m", "one", Settings(command="sleep 1000", log_directory=str(tmp_path)))
            )
        os.kill(pid_of(started), signal.SIGKILL)
        await until(lambda: not procfs.is_alive(pid_of(started)))
        assert heard == []
        os.waitpid(pid_of(started), 0)

    run(story())
