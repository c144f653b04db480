"""How replicas leave: drained, then stopped. A replica that is still draining may return."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...config import RuntimeConfig, RuntimeSection
from ...core.replica import Event
from ..fleet.observer import ReplicaLoad
from .context import ControllerContext
from .lifecycle import TERMINATING_PHASES, PhaseEvent, ReplicaPhase
from .managed_replica import ManagedReplica
from .start_requests import ADOPTED_READY_SECONDS

IDLE_STOP_DELAY_SECONDS = 2.0  # for an idle replica of a removed model: its requests are no longer counted
MAX_SHORT_DRAIN_SECONDS = 30.0  # for requests on a failed replica, or where they are no longer counted
STOP_RETRY_SECONDS, MAX_STOP_RETRY_SECONDS = 1.0, 60.0  # after a failed stop; doubled each time
DRAIN_SLACK_SECONDS = 5.0  # beyond the time a drain has

log = logging.getLogger("steelyard.control.replicas")


class ReplicaShutdown:
    """Calls `gone` for each replica that has stopped."""

    def __init__(self, model: str, context: ControllerContext, gone: Callable[[ManagedReplica], None]) -> None:
        self.settings: RuntimeConfig = RuntimeSection()  # the last in force
        self.impatient = False  # stop at once
        self._model = model
        self._context = context
        self._fleet = context.fleet
        self._gone = gone

    @property
    def timeout(self) -> float:
        """Seconds between SIGTERM and SIGKILL."""
        return 0.0 if self.impatient else float(self.settings.stop_timeout)

    def drain_and_stop(self, replica: ManagedReplica, reason: str, *, given_up: bool = False) -> None:
        """Drains it where it is a member, and stops it. A replica that is `given_up` has less time."""
        now = self._context.clock()
        if replica.phase in TERMINATING_PHASES:
            return
        self._fleet.record("scaling", f"stopping: {reason}", *replica.key)
        if replica.phase is ReplicaPhase.REQUESTED:
            replica.transition(PhaseEvent.STOP, now)  # once its start was answered
        else:
            replica.transition(PhaseEvent.DRAIN if replica.member else PhaseEvent.STOP, now)
            if replica.member:
                self._fleet.transition(replica.key, Event.DRAIN, reason)
            drain = min(MAX_SHORT_DRAIN_SECONDS, self._longest) if given_up else self._longest
            self._end(replica, drain, self._rest(replica))

    def stop_now(self, replica: ManagedReplica) -> None:
        """At shutdown."""
        if replica.phase is ReplicaPhase.STOPPING:
            return
        ordered = replica.phase is ReplicaPhase.REQUESTED
        replica.transition(PhaseEvent.STOP, self._context.clock())
        if not ordered:
            self._context.operations.cancel(replica)
            self.stop(replica)

    def kill(self, replica: ManagedReplica) -> None:
        if replica.phase is ReplicaPhase.STOPPING and replica.operation is not None:
            self._context.operations.kill(replica)

    def stop(self, replica: ManagedReplica) -> None:
        """Without a drain."""
        self._end(replica, 0.0, 0.0)

    def cancel_drain(self, replica: ManagedReplica, now: float) -> None:
        self._context.operations.cancel(replica)
        replica.transition(PhaseEvent.UNDRAIN, now)
        replica.ready_by = now + ADOPTED_READY_SECONDS
        self._fleet.transition(replica.key, Event.UNDRAIN, "it is needed after all")

    def _end(self, replica: ManagedReplica, drain: float, rest: float) -> None:
        self._context.operations.stop(replica, self._drain_and_stop(replica, drain, rest, self.timeout))

    async def _drain_and_stop(self, replica: ManagedReplica, drain: float, rest: float, timeout: float) -> None:
        """A draining replica is drained first, and left alone for `rest` seconds."""
        if replica.phase is ReplicaPhase.DRAINING:
            await self._drained(replica, drain)
            await asyncio.sleep(rest)
            replica.transition(PhaseEvent.STOP, self._context.clock())
        pause = STOP_RETRY_SECONDS
        while not await self._stopped(replica, timeout, pause):
            await asyncio.sleep(pause)
            pause = min(MAX_STOP_RETRY_SECONDS, 2.0 * pause)
        self._gone(replica)

    async def _drained(self, replica: ManagedReplica, seconds: float) -> None:
        drained = False
        try:
            async with asyncio.timeout(seconds + DRAIN_SLACK_SECONDS):
                drained = await self._fleet.wait_drained(replica.key, seconds)
        except TimeoutError:
            pass
        except Exception:
            log.exception("a drain of %s/%s failed unexpectedly", *replica.key)
        if not drained:
            what = f"stopped though requests may still run there, after {seconds:g} s"
            self._fleet.record("scaling", what, *replica.key, level=logging.WARNING)

    async def _stopped(self, replica: ManagedReplica, timeout: float, pause: float) -> bool:
        try:
            await replica.runtime.stop(*replica.key, timeout=timeout)
            return True
        except Exception as problem:
            what = f"could not be stopped, tried again in {pause:g} s: {type(problem).__name__}: {problem}"
            self._fleet.record("scaling", what, *replica.key, level=logging.ERROR)
            return False

    @property
    def _longest(self) -> float:
        """Seconds for requests in flight: `runtime.drain`, or the longest a request may last."""
        drain = self.settings.drain_timeout
        return float(self._context.config.timeouts.total if drain is None else drain)

    def _rest(self, replica: ManagedReplica) -> float:
        """Seconds to wait for a removed model, whose requests are no longer counted."""
        if self._model in self._context.config.models:
            return 0.0
        load = self._fleet.replica_loads(self._model).get(replica.id, ReplicaLoad(in_flight=1))
        if not load.in_flight:
            return IDLE_STOP_DELAY_SECONDS
        drain = self.settings.drain_timeout
        return MAX_SHORT_DRAIN_SECONDS if drain is None else float(drain)
