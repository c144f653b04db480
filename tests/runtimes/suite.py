"""What every runtime must do. A class of tests derives from `RuntimeSuite` and says how its runtime is made."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from steelyard.addresses import replica_address
from steelyard.core.errors import MisuseError
from steelyard.runtimes import Instance, InstancePhase, ReplicaSpec, ReplicaStartError, Runtime
from steelyard.runtimes.process.config import ProcessRuntimeConfig as Settings

from .driving import WAIT_TIMEOUT_SECONDS, ends, until, until_said

STOP_TIMEOUT_SECONDS = 20.0  # more than a replica that stops when asked ever needs


async def all_placed(runtime: Runtime) -> tuple[Instance, ...]:
    """Where a start is only requested, some time may pass until it runs."""
    async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
        while not all(instance.phase is InstancePhase.RUNNING for instance in await runtime.list()):
            await asyncio.sleep(0.01)
    return await runtime.list()


class RuntimeSuite:
    def run(self, work: Coroutine[Any, Any, None]) -> None:
        raise NotImplementedError

    @pytest.fixture
    def name(self) -> Iterator[str]:
        """Of a gateway; in the end, nothing is left of what was started under it."""
        raise NotImplementedError

    def opened(self, name: str) -> AbstractAsyncContextManager[Runtime]:
        raise NotImplementedError

    def settings(self, does: str) -> Settings:
        """A replica that says "up" and then `waits` until it is asked to end, is `deaf` to that, or `serves` at its
        url; one that `ends` with code 3 after it said "so long"; one whose command is `missing`."""
        raise NotImplementedError

    # ------------------------------------------------------------------ start and list

    def test_what_is_started_is_listed(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime:
                settings = self.settings("waits")
                first = await runtime.start(ReplicaSpec("a model", "one", settings, device="gpu0"))
                second = await runtime.start(ReplicaSpec("a model", "two", settings, number=1))
                assert (first.model, first.id, first.device) == ("a model", "one", "gpu0")
                assert first.fingerprint == second.fingerprint == settings.fingerprint()
                listed = {instance.id: instance for instance in await all_placed(runtime)}
                assert listed["one"].url != listed["two"].url
                assert listed["one"].device == "gpu0"
                assert listed["one"].age >= 0
                assert listed["one"].location != listed["two"].location

        self.run(story())

    def test_it_can_be_reached_at_its_url(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime:
                started = await runtime.start(ReplicaSpec("m", "one", self.settings("serves")))
                await until_said(runtime, started, "up")
                where = replica_address(started.url)
                _, writer = await asyncio.open_connection(where.host, where.port)
                writer.close()

        self.run(story())

    def test_the_same_replica_is_not_started_twice(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime:
                spec = ReplicaSpec("m", "one", self.settings("waits"))
                await runtime.start(spec)
                with pytest.raises(ReplicaStartError, match="one of model m runs already"):
                    await runtime.start(spec)
                assert len(await runtime.list()) == 1

        self.run(story())

    def test_what_cannot_be_started_leaves_nothing_behind(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime:
                with pytest.raises(ReplicaStartError) as caught:
                    await runtime.start(ReplicaSpec("m", "one", self.settings("missing")))
                assert caught.value.reason == "command_not_found"
                assert await runtime.list() == ()
                await runtime.start(ReplicaSpec("m", "one", self.settings("waits")))

        self.run(story())

    def test_one_that_ended_may_be_started_again(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime:
                heard = ends(runtime)
                await runtime.start(ReplicaSpec("m", "one", self.settings("ends")))
                await until(lambda: heard)
                again = await runtime.start(ReplicaSpec("m", "one", self.settings("waits")))
                await until_said(runtime, again, "up")
                assert "so long" not in runtime.log_tail("m", "one")  # those of the one before

        self.run(story())

    # ------------------------------------------------------------------ ends

    def test_stop_returns_when_it_is_gone(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime:
                heard = ends(runtime)
                started = await runtime.start(ReplicaSpec("m", "one", self.settings("waits")))
                await until_said(runtime, started, "up")
                await runtime.stop("m", "one", timeout=STOP_TIMEOUT_SECONDS)
                assert await runtime.list() == ()
                assert [(end.model, end.id, end.phase) for end in heard] == [("m", "one", InstancePhase.ENDED)]
                assert heard[0].exit_reason
                assert "up" in runtime.log_tail("m", "one")

        self.run(story())

    def test_stop_of_what_is_gone_returns(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime:
                await runtime.stop("m", "nobody", timeout=STOP_TIMEOUT_SECONDS)
                await runtime.start(ReplicaSpec("m", "one", self.settings("waits")))
                await runtime.stop("m", "one", timeout=STOP_TIMEOUT_SECONDS)
                await runtime.stop("m", "one", timeout=STOP_TIMEOUT_SECONDS)

        self.run(story())

    def test_two_may_stop_the_same(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime:
                heard = ends(runtime)
                await runtime.start(ReplicaSpec("m", "one", self.settings("waits")))
                both = (runtime.stop("m", "one", timeout=STOP_TIMEOUT_SECONDS) for _ in range(2))
                await asyncio.gather(*both)
                assert len(heard) == 1

        self.run(story())

    def test_one_that_does_not_listen_is_made_to_end(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime:
                started = await runtime.start(ReplicaSpec("m", "one", self.settings("deaf")))
                await until_said(runtime, started, "up")
                await runtime.stop("m", "one", timeout=0.05)
                assert await runtime.list() == ()

        self.run(story())

    def test_an_impatient_stop_overtakes_a_patient_one(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime:
                started = await runtime.start(ReplicaSpec("m", "one", self.settings("deaf")))
                await until_said(runtime, started, "up")
                patient = asyncio.create_task(runtime.stop("m", "one", timeout=3600))
                await runtime.stop("m", "one", timeout=0.05)
                await patient

        self.run(story())

    def test_an_end_is_told_with_how_and_last_words(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime:
                heard = ends(runtime)
                await runtime.start(ReplicaSpec("m", "one", self.settings("ends")))
                await until(lambda: heard)
                assert "3" in heard[0].exit_reason
                assert heard[0].fingerprint == self.settings("ends").fingerprint()
                assert runtime.log_tail("m", "one")[-1] == "so long"
                assert runtime.log_tail("m", "one", 0) == ()
                assert await runtime.list() == ()

        self.run(story())

    def test_of_the_unknown_there_are_no_last_words(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime:
                assert runtime.log_tail("m", "nobody") == ()

        self.run(story())

    def test_all_who_watch_hear_of_it_though_one_of_them_fails(
        self, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        def failing(_: Instance) -> None:
            raise ValueError("not my day")

        async def story() -> None:
            async with self.opened(name) as runtime:
                runtime.watch(failing)
                heard = ends(runtime)
                await runtime.start(ReplicaSpec("m", "one", self.settings("ends")))
                await until(lambda: heard)

        self.run(story())
        assert "not my day" in caplog.text

    # ------------------------------------------------------------------ the next supervisor

    def test_what_runs_goes_on_and_the_next_runtime_has_it(self, name: str) -> None:
        async def story() -> None:
            settings = self.settings("waits")
            async with self.opened(name) as runtime:
                started = await runtime.start(ReplicaSpec("a/model", "one", settings, device="gpu0"))
                await until_said(runtime, started, "up")
            async with self.opened(name) as runtime:
                heard = ends(runtime)
                (found,) = await runtime.list()
                assert found._replace(age=0.0) == started._replace(age=0.0)
                assert runtime.log_tail("a/model", "one") == ("up",)
                with pytest.raises(ReplicaStartError, match="runs already"):
                    await runtime.start(ReplicaSpec("a/model", "one", settings))
                await runtime.stop("a/model", "one", timeout=STOP_TIMEOUT_SECONDS)
                assert [end.id for end in heard] == ["one"]

        self.run(story())

    def test_a_closed_runtime_starts_and_stops_nothing(self, name: str) -> None:
        async def story() -> None:
            spec = ReplicaSpec("m", "one", self.settings("waits"))
            async with self.opened(name) as runtime:
                await runtime.start(spec)
            with pytest.raises(MisuseError):
                await runtime.stop("m", "one", timeout=STOP_TIMEOUT_SECONDS)
            with pytest.raises(MisuseError):
                await runtime.start(spec._replace(id="two"))
            async with self.opened(name) as runtime:
                assert len(await runtime.list()) == 1

        self.run(story())

    def test_another_gateways_replicas_are_not_ours(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime, self.opened(f"{name} not") as other:
                await runtime.start(ReplicaSpec("m", "one", self.settings("waits")))
                assert await other.list() == ()
                await other.stop("m", "one", timeout=STOP_TIMEOUT_SECONDS)
                assert len(await runtime.list()) == 1

        self.run(story())

    def test_the_same_id_under_two_models(self, name: str) -> None:
        async def story() -> None:
            async with self.opened(name) as runtime:
                for model in "ab":
                    await runtime.start(ReplicaSpec(model, "one", self.settings("waits")))
                await runtime.stop("a", "one", timeout=STOP_TIMEOUT_SECONDS)
                assert [instance.model for instance in await runtime.list()] == ["b"]

        self.run(story())
