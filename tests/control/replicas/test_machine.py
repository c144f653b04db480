"""Whatever happens in whatever order: what must hold all the time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from steelyard.config import Config, parse_config
from steelyard.core.replica import Event, State
from steelyard.runtimes import Instance, InstancePhase, ReplicaStartError

from .stage import Stage, config

START_TIMEOUT_SECONDS = 50.0
SETTINGS = [f"environment: {{A: '{n}'}}, start_timeout: {START_TIMEOUT_SECONDS:g}s" for n in range(2)]
SERVES = (State.READY, State.EJECTED)
some = st.integers(0, 9)


def without() -> Config:
    """The model is there, and nobody starts replicas of it."""
    return parse_config("models: {m: {replicas: [{url: 'http://h:1'}]}}")


class Watched(Stage):
    """Looks at each start, and at each that has to leave."""

    def __init__(self) -> None:
        super().__init__()
        self.hasty: list[float] = []
        self.wronged: list[str] = []

    def _note(self, what: str, model: str, replica: str = "", level: int = logging.INFO) -> None:
        super()._note(what, model, replica, level)
        failure = self.controller.summary("m").start_failure
        if "is being started" in what and failure is not None and failure.retry_in > 0.0:
            self.hasty.append(failure.retry_in)

    def move(self, key: tuple[str, str], event: Event, reason: str) -> None:
        serving = [k for k, status in self.statuses.items() if status.state in SERVES]
        by_us = event is Event.DRAIN and reason != "an operator"
        if by_us and key in serving and len(serving) <= self.controller.desired("m"):
            self.wronged.append(f"{key}: {reason}")
        super().move(key, event, reason)


class ReplicaControllerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.removed = False
        self.asked = False  # how many
        self.setting = 0

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(work)

    @initialize(left=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 1)), max_size=3, unique_by=lambda x: x[0]))
    def begin(self, left: list[tuple[int, int]]) -> None:
        async def work() -> None:
            self.stage = Watched()
            for number, which in left:
                runtime = config(SETTINGS[which]).models["m"].runtime
                assert runtime is not None
                made_of, url = runtime.fingerprint(), f"http://h:{number}"
                instance = Instance("m", f"p{number}", url, "", made_of, InstancePhase.RUNNING, 9.0)
                self.stage.runtime.left.append(instance)
            await self.stage.controller.begin(config(SETTINGS[0]))

        self.run(work())
        self.known = {f"p{number}" for number, _ in left}

    # ------------------------------------------------------------------ what happens

    @rule(replicas=st.integers(0, 4))
    def want(self, replicas: int) -> None:
        self.asked = not self.removed
        self.run(self.stage.want(replicas))

    @rule(seconds=st.sampled_from([0.25, 1.0, 3.0, 31.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.run(self.stage.later(seconds))

    @rule(which=some, event=st.sampled_from([Event.LOADED, Event.LOADED, Event.LOST, Event.LIVE, Event.EJECT]))
    def seen(self, which: int, event: Event) -> None:
        if (key := self.pick(which)) is not None:
            status = self.stage.statuses[key].state
            if event is not Event.EJECT or status is State.READY:
                self.stage.move(key, event, "seen")
        self.run(self.stage.turn())

    @rule()
    def all_ready(self) -> None:
        for key in list(self.stage.statuses):
            self.stage.move(key, Event.LOADED, "seen")
        self.run(self.stage.turn())

    @rule(which=some, event=st.sampled_from([Event.DRAIN, Event.UNDRAIN]))
    def operator(self, which: int, event: Event) -> None:
        if (key := self.pick(which)) is not None:
            self.stage.move(key, event, "an operator")
        self.run(self.stage.turn())

    @rule(which=some)
    def crash(self, which: int) -> None:
        if running := sorted(self.stage.runtime.running):
            self.stage.runtime.end(running[which % len(running)])
        self.run(self.stage.turn())

    @rule(broken=st.booleans())
    def command(self, broken: bool) -> None:
        self.stage.runtime.refuse = ReplicaStartError("command_not_found", "no") if broken else None

    @rule(which=some, busy=st.booleans())
    def requests(self, which: int, busy: bool) -> None:
        if (key := self.pick(which)) is not None and busy:
            self.stage.busy.add(key)
        elif not busy:
            self.stage.busy.clear()
        self.run(self.stage.turn())

    @rule(slow=st.booleans())
    def slow_starts(self, slow: bool) -> None:
        self.stage.runtime.slow_starts = slow
        (self.stage.runtime.answer.clear if slow else self.stage.runtime.answer.set)()
        self.run(self.stage.turn())

    @rule(setting=st.integers(0, 1))
    def reload(self, setting: int) -> None:
        self.setting, self.removed = setting, False
        self.stage.reconfigure(config(SETTINGS[setting]))
        self.run(self.stage.turn())

    @rule()
    @precondition(lambda self: not self.removed)
    def remove(self) -> None:
        self.removed, self.asked = True, False
        self.stage.reconfigure(without())
        self.run(self.stage.turn())

    def pick(self, which: int) -> tuple[str, str] | None:
        members = sorted(self.stage.statuses)
        return members[which % len(members)] if members else None

    # ------------------------------------------------------------------ what must hold

    @invariant()
    def never_too_many(self) -> None:
        controller = self.stage.controller
        count, views = controller.count("m"), controller.summary("m").instances
        alive = [view for view in views if view.phase != "terminating"]
        assert count.ready + count.starting == len(alive)
        if self.asked or self.removed:
            surge = 1 if any(view.outdated for view in alive) and not self.removed else 0
            assert len(alive) <= controller.desired("m") + surge

    @invariant()
    def never_hasty(self) -> None:
        assert self.stage.hasty == []

    @invariant()
    def nobody_is_stopped_who_is_needed(self) -> None:
        assert self.stage.wronged == []

    @invariant()
    def no_name_twice(self) -> None:
        names = [order.id for order in self.stage.runtime.orders]
        assert len(names) == len({*names, *self.known}) - len(self.known)

    @invariant()
    def everyone_who_runs_is_kept_and_told(self) -> None:
        running = {id for _, id in self.stage.runtime.running}
        kept = {view.replica: view for view in self.stage.controller.summary("m").instances}
        assert running <= set(kept)
        assert running == set(self.stage.ids())
        assert all(view.url == "" for id, view in kept.items() if id not in running)  # not answered yet

    @invariant()
    def what_is_missing_comes(self) -> None:
        """Or somebody says why it does not."""
        controller, kept = self.stage.controller, self.stage.controller.summary("m")
        count = controller.count("m")
        if count.ready + count.starting < controller.desired("m"):
            assert kept.start_failure is not None

    def teardown(self) -> None:
        async def work() -> None:
            self.stage.busy.clear()
            self.stage.runtime.answer.set()
            await self.stage.turn()
            await self.stage.controller.stop_all()
            assert not self.stage.runtime.running
            assert not self.stage.controller.summary("m").instances
            await self.stage.controller.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

        if hasattr(self, "stage"):
            self.run(work())
        self.loop.close()


TestReplicaControllerMachine = ReplicaControllerMachine.TestCase
TestReplicaControllerMachine.settings = settings(
    max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
