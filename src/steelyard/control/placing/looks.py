"""Looks at the indexes of servers when they are due, a bounded number at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from ...protocols.repository import Entry
from ..probing.errors import AskError
from ..probing.lane import Lane
from .host import Host
from .settling import Settling

AT_ONCE = 64
SPACING = 0.2  # seconds between two looks at one server, however often somebody asks for one
MISTAKE = 5.0  # seconds until the next, after one that failed for a reason of our own

log = logging.getLogger("steelyard.control.placing")


class Looks:
    """What is found while a job has begun does not count. `looked(host)` is told each look that counted."""

    def __init__(self, settling: Settling, looked: Callable[[Host], None], clock: Callable[[], float]) -> None:
        self._settling = settling
        self._looked = looked
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._lane: Lane[Host] = Lane(AT_ONCE, self._begin)
        self._closed = False

    def look_soon(self, host: Host) -> None:
        """At the next turn, unless it was looked at just now."""
        host.look_by(max(self._clock(), host.looked + SPACING))

    def begin_due(self, host: Host, now: float) -> None:
        if now >= host.due and host.looking is None and not host.busy and host not in self._lane:
            self._lane.enter(host)

    def forget(self, host: Host) -> None:
        self._lane.forget(host)
        host.doubted = True
        if host.looking is not None:
            host.looking.cancel()

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, host: Host) -> None:
        if self._closed:
            return
        host.doubted = host.busy
        host.due = float("inf")
        task = host.looking = asyncio.get_running_loop().create_task(self._look(host))
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, host))

    def _done(self, host: Host, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        host.looking = None
        host.asked = True
        host.looked = self._clock()
        if host.due == float("inf"):
            host.due = host.looked + (SPACING if host.doubted else MISTAKE)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("the models of %s cannot be looked at", host.name, exc_info=problem)
        self._lane.leave()
        if not task.cancelled():
            self._looked(host)

    async def _look(self, host: Host) -> None:
        try:
            found: dict[str, Entry] = {}
            for desk in host.desks:
                index = await desk.index()
                theirs = {model for model, copy in host.copies.items() if copy.desk.kind == desk.kind}
                found.update((model, entry) for model, entry in index.items() if model in theirs)
        except AskError as problem:
            if not host.doubted:
                self._settling.unanswered(host, problem, self._clock())
        else:
            if not host.doubted:
                self._settling.answered(host, found, self._clock())
