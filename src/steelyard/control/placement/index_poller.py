"""Polls the model indexes of servers when they are due, a bounded number at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...protocols.repository import IndexEntry
from ..health.client.errors import ReplicaRequestError
from ..health.schedule import TaskLimiter
from .hosts import Host
from .index_reconciler import IndexReconciler

MAX_CONCURRENT_POLLS = 64
MIN_POLL_SPACING_SECONDS = 0.2  # of one server
INTERNAL_ERROR_RETRY_SECONDS = 5.0  # after an unexpected exception

log = logging.getLogger("steelyard.control.placement")


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
        host.next_poll_at = float("inf")
        host.poll_task = asyncio.get_running_loop().create_task(self._poll(host))
        return host.poll_task

    def _ended(self, host: Host, task: asyncio.Future[None]) -> None:
        host.poll_task = None
        host.asked = True
        host.last_poll_at = self._clock()
        if host.next_poll_at == float("inf"):
            host.next_poll_at = host.last_poll_at + (
                MIN_POLL_SPACING_SECONDS if host.discard_poll else INTERNAL_ERROR_RETRY_SECONDS
            )
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("the models of %s cannot be looked at", host.name, exc_info=problem)
        if not task.cancelled():
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
        else:
            if not host.discard_poll:
                self._reconciler.answered(host, found, self._clock())
