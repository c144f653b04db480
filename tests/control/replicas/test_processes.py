"""With processes: they end, are killed, cannot be started, and outlive the controller."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from steelyard.config import Config, ModelConfig
from steelyard.core.replica import Event, State
from steelyard.runtimes.process.runtime import ProcessRuntime

from ...runtimes.commands import settings
from ...runtimes.driving import gateway, started_under
from ..driving import run, until
from .stage import Stage


@pytest.fixture
def name() -> Iterator[str]:
    with gateway() as made:
        yield made


def config(does: str, log: Path) -> Config:
    return Config(models={"m": ModelConfig(runtime=settings(does, log))})


@asynccontextmanager
async def kept(name: str, made: Config) -> AsyncIterator[Stage]:
    """The clock is the test's; processes have their own."""
    stage = Stage(ProcessRuntime(name))
    await stage.controller.begin(made)
    try:
        yield stage
    finally:
        await stage.controller.close()


def pid(stage: Stage, id: str) -> int:
    (view,) = [view for view in stage.controller.summary("m").instances if view.replica == id]
    return int(view.location.removeprefix("pid "))


def test_killed_it_is_replaced(name: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with kept(name, config("waits", tmp_path)) as stage:
            stage.controller.scale("m", 2, "test")
            await until(lambda: stage.ids() == ["p1", "p2"])
            await stage.ready("p1", "p2")
            await stage.later(30.0)
            os.kill(pid(stage, "p1"), signal.SIGKILL)
            await until(lambda: stage.ids() == ["p2", "p3"])
            assert (("m", "p1"), Event.LOST, "its process ended: signal SIGKILL") in stage.moves
            assert stage.state("p2") is State.READY
            await stage.controller.stop_all()
            assert not started_under(name)

    run(work())


def test_what_ends_at_once_is_shown_with_its_last_words(name: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with kept(name, config("ends", tmp_path)) as stage:
            stage.controller.scale("m", 1, "test")
            await until(lambda: stage.controller.summary("m").crashes == 1)
            failure = stage.controller.summary("m").start_failure
            assert failure is not None
            assert (failure.reason, failure.message) == ("ended", "its process ended: exit code 3")
            assert failure.log_tail == ("so long",)
            assert failure.retry_in == 1.0
            await stage.later(0.5)
            assert stage.controller.summary("m").starts == 1
            await stage.later(0.5)
            await until(lambda: stage.controller.summary("m").crashes == 2)
            assert stage.controller.log_tail(("m", "p1"), 5) == ("so long",)
            assert stage.controller.log_tail(("m", "other"), 5) is None

    run(work())


def test_what_cannot_be_started(name: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with kept(name, config("missing", tmp_path)) as stage:
            stage.controller.scale("m", 1, "test")
            await until(lambda: stage.controller.summary("m").start_failure is not None)
            failure = stage.controller.summary("m").start_failure
            assert failure is not None
            assert failure.reason == "command_not_found"
            assert "no-such-command-anywhere" in failure.message
            assert not stage.controller.summary("m").instances

    run(work())


def test_it_outlives_the_controller_and_the_next_one_adopts_it(name: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with kept(name, config("waits", tmp_path)) as stage:
            stage.controller.scale("m", 1, "test")
            await until(lambda: stage.ids() == ["p1"])
            first = pid(stage, "p1")
            await until(lambda: first in started_under(name))  # it has begun its program
        async with kept(name, config("waits", tmp_path)) as stage:
            assert stage.ids() == ["p1"]
            assert pid(stage, "p1") == first
            stage.controller.scale("m", 2, "test")
            await until(lambda: stage.ids() == ["p1", "p2"])
            await stage.ready("p1")
            stage.controller.scale("m", 1, "test")
            await until(lambda: stage.ids() == ["p1"])
            stage.controller.scale("m", 0, "test")
            await until(lambda: not started_under(name))

    run(work())
