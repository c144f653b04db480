"""What a worker and the balancer process have in common: the supervisor's messages, and the reports to it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Final

from ...core.replica import Replica, State
from ...link.messages import (
    Applied,
    Apply,
    DeviceCapacities,
    Drain,
    Heartbeat,
    LoadReadings,
    MemberUpdate,
    MemorySizes,
    Quarantine,
    ReplicaEvents,
    ReplicaFailure,
    ReportRequest,
    Started,
    StartProgress,
    StartServing,
    ToWorker,
    WorkerReport,
)
from ..proxy.dispatch_hooks import Driver
from .fleet_updates import apply_load_readings, apply_replica_events, apply_start_progress
from .model_sync import ModelSync
from .passive_health import PassiveHealth
from .supervisor_channel import SupervisorChannel, log

REPORT_INTERVAL_SECONDS: Final = 1.0
REPORT_CHECK_SECONDS: Final = 0.25
FAILURE_INTERVAL_SECONDS: Final = 0.2  # between two reports of the same replica


class SupervisedProcess:
    """From the first configuration on."""

    def __init__(self, supervisor: SupervisorChannel, driver: Driver, fleet: ModelSync, *, decides: bool) -> None:
        """`decides`: the driver's balancer is its own."""
        self.loop = asyncio.get_running_loop()
        self.supervisor = supervisor
        self.decides = decides
        self._driver = driver
        self._fleet = fleet
        self._supervisor_silent = False  # it is gone, or frozen
        self._passive_health = PassiveHealth(driver)
        self._draining = False
        self._ejections = 0  # as of the last report
        self._stopped = asyncio.Event()

    # What a derived class does.

    def apply(self, message: Apply) -> None:
        """All of it, or it raises."""
        raise NotImplementedError

    def report(self, now: float, number: int = 0) -> WorkerReport:
        raise NotImplementedError

    def open(self) -> None:
        """Accept connections."""
        raise NotImplementedError

    async def drain(self, seconds: float | None, sockets_shared: bool) -> None:
        raise NotImplementedError

    async def supervisor_lost(self) -> None:
        """It is gone; the last good configuration stays in force."""

    def close(self) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------------ the supervisor

    async def run(self, messages: AsyncIterator[ToWorker]) -> None:
        self.loop.add_signal_handler(signal.SIGTERM, self.drain_soon, None)
        tasks = [asyncio.create_task(self._follow_supervisor(messages)), asyncio.create_task(self._report_forever())]
        await self._stopped.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.close()

    async def _follow_supervisor(self, messages: AsyncIterator[ToWorker]) -> None:
        try:
            async for message in messages:
                match message:
                    case Apply():
                        self._reload(message)
                    case StartServing():
                        self._start_serving()
                    case Drain():
                        self.drain_soon(message.seconds, sockets_shared=message.sockets_shared)
                    case _:
                        self._apply_message(message)
        except Exception as problem:  # deaf to all that follows it would serve by what was true once
            log(f"error invalid message from the supervisor, exiting: {problem!r}")
            self._stopped.set()
            return
        await self.supervisor_lost()

    def _apply_message(self, message: ToWorker) -> None:
        """Whatever goes wrong with one message, the next is heard."""
        now = monotonic()
        driver = self._driver
        try:
            match message:
                case Heartbeat():
                    self._check_supervisor(now)
                case MemberUpdate():
                    self._fleet.update_members(message, now)
                case ReplicaEvents():
                    apply_replica_events(driver, message.events, now)
                case LoadReadings():
                    if self.decides:
                        apply_load_readings(driver, message.loads, now)
                case StartProgress():
                    apply_start_progress(driver, message, now)
                    driver.wake_now(now)
                case DeviceCapacities() | MemorySizes() | Quarantine():
                    driver.memory.apply(message, now)
                    driver.wake_now(now)
                case ReportRequest():
                    self.supervisor.send(self.report(now, message.number))
        except Exception as problem:  # also whatever a user's own policy raises
            log(f"error {type(message).__name__}: {type(problem).__name__}: {problem}")

    def _reload(self, message: Apply) -> None:
        try:
            self.apply(message)
        except Exception as problem:  # also whatever a user's own policy or dialect raises
            self.supervisor.send(Applied(message.number, sentence(problem)))

    def _start_serving(self) -> None:
        """After the state of the fleet is known: an earlier request would find no replica ready."""
        self.open()
        gc.collect()
        gc.freeze()  # what is there now stays
        self.supervisor.send(Started(os.getpid()))

    def _check_supervisor(self, now: float) -> bool:
        """Is the supervisor silent?"""
        silent = self.supervisor.is_silent(now)
        if silent is not self._supervisor_silent:
            self._supervisor_silent = silent
            if silent:
                log("warning no heartbeat from the supervisor: replica health follows requests only")
            else:
                for replica in self._passive_health.end():
                    self.supervisor.send(ReplicaFailure(replica.context.model, replica.id, True))
        return silent

    async def _report_forever(self) -> None:
        last = monotonic()
        while True:
            await asyncio.sleep(REPORT_CHECK_SECONDS)
            now = monotonic()
            if self._check_supervisor(now) and self.decides:
                self._passive_health.tick(now, now - self.supervisor.heard_at)
            due = now - last >= REPORT_INTERVAL_SECONDS - REPORT_CHECK_SECONDS / 2
            if due or self._driver.memory.has_waiting():
                last = now
                self.report_now(now)

    def report_now(self, now: float) -> None:
        if self.supervisor.is_keeping_up():
            self._ejections = self._driver.balancer.ejections
            self.supervisor.send(self.report(now))

    def replica_failed(self, replica: Replica, refused: bool, now: float) -> None:
        """The supervisor should probe it. One that refuses connections is out until it is seen ready."""
        context = replica.context
        if not context.probed or replica.state is State.GONE:
            return  # no probe would tell when it is back: the balancer's own ejection has to do
        if self._check_supervisor(now):
            if self.decides:
                self._passive_health.request_failed(replica, refused, now)
        elif refused and replica.state in (State.READY, State.EJECTED):
            self.supervisor.send(ReplicaFailure(context.model, replica.id, True))
            self._driver.execute(self._driver.balancer.replica_lost(replica, context.model, now=now), now)
        elif now >= context.failure_reported_at + FAILURE_INTERVAL_SECONDS:
            context.failure_reported_at = now
            self.supervisor.send(ReplicaFailure(context.model, replica.id, False))

    # ------------------------------------------------------------------ the end

    def drain_soon(self, seconds: float | None, sockets_shared: bool = False) -> None:
        if self._draining:
            return
        self._draining = True
        self._drained = asyncio.create_task(self._drain(seconds, sockets_shared))

    async def _drain(self, seconds: float | None, sockets_shared: bool) -> None:
        await self.drain(seconds, sockets_shared)
        self.supervisor.send(self.report(monotonic()))  # the last word, whatever else is still to be said
        self._stopped.set()


async def run_process(supervisor: SupervisorChannel, make: Callable[[Apply], SupervisedProcess], name: str) -> None:
    """Until it is told to stop, or the supervisor leaves without ever having sent a configuration."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the terminal's Ctrl-C is the supervisor's business
    loop.add_signal_handler(signal.SIGTERM, os._exit, 0)  # there is nothing to finish yet
    messages = supervisor.messages()
    async for message in messages:
        if not isinstance(message, Apply):
            continue
        try:
            process = make(message)
            process.apply(message)
        except Exception as problem:
            supervisor.send(Applied(message.number, sentence(problem)))
            sys.exit(f"steelyard {name}: {problem}")
        await process.run(messages)
        break
    supervisor.close()
    await asyncio.sleep(0)  # what was closed is closed in the next turn


def sentence(problem: Exception) -> str:
    return str(problem) or repr(problem)
