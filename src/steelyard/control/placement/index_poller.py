"""Polls the model indexes of servers when due, and applies them: resident models count in the ledger and get requests.

Only for servers without a job: a job knows more than an index that was read a moment ago.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from ...core.replica import Event
from ...core.request import INFINITY
from ...protocols.repository import IndexEntry, ModelPresence
from ..backoff import exponential_delay
from ..fleet.observer import FleetControl
from ..health.http_client import ConnectRefusedError, ReplicaRequestError
from ..health.schedule import TaskLimiter
from ..memory import MemoryAccounting
from .hosts import CopyPhase, Host, ManagedCopy
from .repository_client import ABSENT_ENTRY

POLL_INTERVAL_SECONDS = 10.0  # others may load and unload there too
TRANSITION_POLL_SECONDS = 0.25  # while a model loads or unloads without us
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.5, 5.0  # for a server that does not answer; doubled each time
REFUSED_GRACE_SECONDS = 2.0  # until its models count as gone: some servers stop listening before their requests end
OVER_BUDGET_GRACE_SECONDS = 10.0  # for a model found loaded
MAX_CONCURRENT_POLLS = 64
MIN_POLL_SPACING_SECONDS = 0.2  # of one server
INTERNAL_ERROR_RETRY_SECONDS = 5.0  # after an unexpected exception

log = logging.getLogger("steelyard.control.placement")


class IndexReconciler:
    """Calls `too_much(copy)` for a model found loaded that its device has no room for."""

    def __init__(self, fleet: FleetControl, memory: MemoryAccounting, too_much: Callable[[ManagedCopy], None]) -> None:
        self._fleet = fleet
        self._memory = memory
        self._too_much = too_much

    def answered(self, host: Host, index: Mapping[str, IndexEntry], now: float) -> None:
        host.known, host.problem, host.failures, host.refuses_since = True, "", 0, INFINITY
        # Pinned models first: they get the room if it does not suffice for all.
        for copy in sorted(host.copies.values(), key=lambda copy: not copy.settings.pinned):
            self._apply_entry(copy, index.get(copy.model, ABSENT_ENTRY), now)
        changing = any(not _is_stable(copy) for copy in host.copies.values())
        host.poll_by(now + (TRANSITION_POLL_SECONDS if changing else POLL_INTERVAL_SECONDS))

    def unanswered(self, host: Host, problem: ReplicaRequestError, now: float) -> None:
        """Its models count until it answers again, or has refused connections for a while."""
        host.known, host.problem = False, str(problem)
        if not host.failures:
            host.failing_since = now
        host.failures += 1
        host.poll_by(now + exponential_delay(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, host.failures))
        if not isinstance(problem, ConnectRefusedError):
            host.refuses_since = INFINITY
            return
        host.refuses_since = min(host.refuses_since, now)
        for copy in host.copies.values():
            if now >= host.refuses_since + REFUSED_GRACE_SECONDS:
                copy.release(self._memory)
            if copy.phase is not CopyPhase.UNKNOWN:
                copy.set_phase(CopyPhase.UNKNOWN, now)
                self._fleet.transition(copy.key, Event.UNLOAD, f"its server {problem}")

    def _apply_entry(self, copy: ManagedCopy, entry: IndexEntry, now: float) -> None:
        match entry.presence:
            case ModelPresence.READY:
                self._mark_resident(copy, now)
                self._check_budget(copy, now)
                if entry.bytes and copy.reserved:
                    self._memory.footprint_measured(copy.key, entry.bytes, now)
            case ModelPresence.ABSENT:
                self._mark_absent(copy, entry.reason or "not loaded", now)
            case ModelPresence.LOADING | ModelPresence.UNLOADING:  # by others, or by a job of ours that gave up
                if not copy.reserved and self._memory.reserve(copy.key, self._memory.footprint(copy.model)):
                    copy.reserved, copy.reserved_bytes = True, self._memory.footprint(copy.model)
                phase = CopyPhase(entry.presence.value)
                if copy.phase is not phase:
                    copy.set_phase(phase, now)
                    self._fleet.transition(copy.key, Event.UNLOAD, f"its server is {phase.value} it")

    def _mark_resident(self, copy: ManagedCopy, now: float) -> None:
        if copy.phase is CopyPhase.RESIDENT:
            return
        if not copy.reserved:  # it holds its bytes whether or not there was room
            copy.reserved, copy.reserved_bytes = True, self._memory.footprint(copy.model)
            if copy.reserved_bytes > self._memory.free_bytes_at(copy.key):
                copy.over_budget_since = now
        copy.set_phase(CopyPhase.RESIDENT, now)
        self._memory.resident(copy.key)
        self._fleet.transition(copy.key, Event.LOAD, "loaded")
        self._fleet.reprobe(copy.key)

    def _check_budget(self, copy: ManagedCopy, now: float) -> None:
        if copy.over_budget_since == INFINITY:
            return
        if copy.settings.pinned or not self._memory.is_over(copy.key, now):
            copy.over_budget_since = INFINITY
        elif now >= copy.over_budget_since + OVER_BUDGET_GRACE_SECONDS:
            self._too_much(copy)

    def _mark_absent(self, copy: ManagedCopy, reason: str, now: float) -> None:
        copy.release(self._memory)
        copy.over_budget_since, copy.loaded_by_us = INFINITY, False
        if copy.phase is not CopyPhase.ABSENT:
            copy.set_phase(CopyPhase.ABSENT, now)
            self._fleet.transition(copy.key, Event.UNLOAD, reason)


def _is_stable(copy: ManagedCopy) -> bool:
    return copy.phase in (CopyPhase.ABSENT, CopyPhase.RESIDENT) and copy.over_budget_since == INFINITY


class IndexPoller:
    """A result is discarded if a job began meanwhile. Calls `polled(host)` after each poll."""

    def __init__(self, reconciler: IndexReconciler, polled: Callable[[Host], None], clock: Callable[[], float]) -> None:
        self._reconciler = reconciler
        self._on_polled = polled
        self._clock = clock
        self._limiter = TaskLimiter(MAX_CONCURRENT_POLLS, self._start, self._ended)

    def poll_soon(self, host: Host) -> None:
        """At the next tick, unless it was polled just now."""
        host.poll_by(max(self._clock(), host.last_poll_at + MIN_POLL_SPACING_SECONDS))

    def poll_if_due(self, host: Host, now: float) -> None:
        if now >= host.next_poll_at and host.poll_task is None and not host.busy and host not in self._limiter:
            self._limiter.submit(host)

    def forget(self, host: Host) -> None:
        self._limiter.forget(host)
        host.discard_poll = True
        if host.poll_task is not None:
            host.poll_task.cancel()

    async def close(self) -> None:
        await self._limiter.close()

    def _start(self, host: Host) -> asyncio.Task[None]:
        host.discard_poll = host.busy
        host.next_poll_at = INFINITY
        host.poll_task = asyncio.get_running_loop().create_task(self._poll(host))
        return host.poll_task

    def _ended(self, host: Host, task: asyncio.Future[None]) -> None:
        host.poll_task = None
        host.asked = True
        host.last_poll_at = self._clock()
        if host.next_poll_at == INFINITY:
            pause = MIN_POLL_SPACING_SECONDS if host.discard_poll else INTERNAL_ERROR_RETRY_SECONDS
            host.next_poll_at = host.last_poll_at + pause
        if not task.cancelled():
            if (problem := task.exception()) is not None:
                log.error("the models of %s cannot be listed", host.name, exc_info=problem)
            self._on_polled(host)

    async def _poll(self, host: Host) -> None:
        try:
            found: dict[str, IndexEntry] = {}
            for repository in host.repositories:
                index = await repository.index()
                theirs = {model for model, copy in host.copies.items() if copy.repository.kind == repository.kind}
                found.update((model, entry) for model, entry in index.items() if model in theirs)
        except ReplicaRequestError as problem:
            if not host.discard_poll:
                self._reconciler.unanswered(host, problem, self._clock())
            return
        if not host.discard_poll:
            self._reconciler.answered(host, found, self._clock())
