"""Runtimes that are not in the table: opened when a configuration uses them."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from steelyard.config import Config, ModelConfig, RuntimeSection
from steelyard.config.sections.runtime import RUNTIMES
from steelyard.control.replicas import controller
from steelyard.runtimes import Instance, InstancePhase

from .fake_runtime import FakeRuntime
from .stage import config, staged


class OwnRuntimeConfig(RuntimeSection, frozen=True):
    image: str = "a"

    opened: ClassVar[list[str]] = []
    made: ClassVar[FakeRuntime]
    refuse: ClassVar[Exception | None] = None

    @classmethod
    def open(cls, gateway: str) -> FakeRuntime:
        cls.opened.append(gateway)
        if cls.refuse is not None:
            raise cls.refuse
        return cls.made


OWN = Config(models={"m": ModelConfig(runtime=OwnRuntimeConfig())})


def prepare(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    runtime = FakeRuntime()
    monkeypatch.setattr(OwnRuntimeConfig, "made", runtime, raising=False)
    monkeypatch.setattr(OwnRuntimeConfig, "opened", [])
    return runtime


def run_left(runtime: FakeRuntime) -> None:
    made_of = OwnRuntimeConfig().fingerprint()
    runtime.left = [Instance("m", "p7", "http://10.0.0.1:80", "", made_of, InstancePhase.RUNNING, 5.0)]


def test_it_is_opened_at_the_start_and_what_it_runs_is_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        runtime = prepare(monkeypatch)
        run_left(runtime)
        async with staged(OWN) as stage:
            assert stage.ids() == ["p7"]
            await stage.want(2)
            assert [order.id for order in runtime.orders] == ["p8"]
            assert not stage.runtime.orders
        assert len(OwnRuntimeConfig.opened) == 1
        assert runtime.closed

    asyncio.run(work())


@pytest.mark.parametrize("left", [True, False])
def test_one_of_the_table_that_no_model_uses_is_opened_for_what_it_left(
    left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        runtime = prepare(monkeypatch)
        run_left(runtime)
        monkeypatch.setitem(RUNTIMES, "own", f"{__name__}:OwnRuntimeConfig")
        monkeypatch.setattr(OwnRuntimeConfig, "has_replicas", classmethod(lambda cls, gateway, predecessor_pid: left))
        async with staged(Config(models={"m": ModelConfig()})) as stage:
            await stage.turn()
            assert len(OwnRuntimeConfig.opened) == left
            assert [id for _, id in runtime.stops] == (["p7"] if left else [])

    asyncio.run(work())


def test_it_is_opened_when_a_reload_uses_it_and_adopts_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        runtime = prepare(monkeypatch)
        run_left(runtime)
        async with staged(config()) as stage:
            await stage.want(1)
            assert not OwnRuntimeConfig.opened
            stage.reconfigure(OWN)
            stage.reconfigure(OWN)
            await stage.turn()
            assert "p7" in stage.ids()
            await stage.want(3)
            assert "p7" not in {order.id for order in runtime.orders}
            assert runtime.orders
            assert len(stage.runtime.orders) == 1
        assert len(OwnRuntimeConfig.opened) == 1
        assert runtime.closed

    asyncio.run(work())


def test_what_cannot_be_opened_is_noted_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        runtime = prepare(monkeypatch)
        monkeypatch.setattr(controller, "OPEN_RETRY_SECONDS", 0.01)
        monkeypatch.setattr(OwnRuntimeConfig, "refuse", OSError("no such socket"))
        async with staged(OWN) as stage:
            assert "cannot be opened: OSError: no such socket" in stage.words()
            await stage.want(1)
            assert not runtime.orders
            monkeypatch.setattr(OwnRuntimeConfig, "refuse", None)
            async with asyncio.timeout(5):
                while not runtime.orders:
                    await asyncio.sleep(0.01)
                    await stage.want(1)

    asyncio.run(work())


def test_a_runtime_that_is_being_opened_is_closed_with_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        runtime = prepare(monkeypatch)
        never = asyncio.Event()

        async def hangs(predecessor_pid: int = 0) -> tuple[Instance, ...]:
            await never.wait()
            return ()

        monkeypatch.setattr(runtime, "list", hangs)
        async with staged(config()) as stage:
            stage.reconfigure(OWN)
            await stage.turn()
        assert runtime.closed

    asyncio.run(work())


def test_other_settings_replace_what_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        runtime = prepare(monkeypatch)
        async with staged(OWN) as stage:
            await stage.want(1)
            await stage.ready("p1")
            other = OwnRuntimeConfig(image="b")
            stage.reconfigure(Config(models={"m": ModelConfig(runtime=other)}))
            await stage.turn()
            assert [order.settings.image for order in runtime.orders] == ["a", "b"]

    asyncio.run(work())
