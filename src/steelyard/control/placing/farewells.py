"""Models that have left the configuration: what was loaded by us is unloaded, or it would hold its memory for ever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ...protocols.repository import Presence
from ..probing.errors import AskError, RefusedError
from .errors import UnloadError
from .hands import Hands
from .host import Copy
from .unloading import ABSENT, GONE, unload

PARTING, RUNNING = 2.0, 30.0  # seconds until it is unloaded: where nothing ran of late, and where something did
LOOK = 0.05  # seconds between two looks whether its server does something else
AGAIN, LONGEST = 5.0, 300.0  # seconds until it is tried again: twice as long each time
MOST = 256  # of more, the rest stays where it is

log = logging.getLogger("steelyard.control.placing")

Where = tuple[str, str]  # server and model


class Trouble(NamedTuple):
    times: int
    since: float
    why: str


class Farewells:
    def __init__(self, hands: Hands, clock: Callable[[], float]) -> None:
        self.troubles: dict[Where, Trouble] = {}
        self._hands = hands
        self._clock = clock
        self._tasks: dict[Where, asyncio.Task[None]] = {}

    def begin(self, copy: Copy, running: bool) -> None:
        """`running`: it had requests when one last heard of it. Nobody counts them any more."""
        where = (copy.host.name, copy.model)
        if where in self._tasks or len(self._tasks) >= MOST:
            return
        task = asyncio.get_running_loop().create_task(self._part(copy, RUNNING if running else PARTING))
        self._tasks[where] = task
        task.add_done_callback(partial(self._ended, where))

    def end(self, copy: Copy) -> None:
        """It is back."""
        if (task := self._tasks.pop((copy.host.name, copy.model), None)) is not None:
            task.cancel()
            self.troubles.pop((copy.host.name, copy.model), None)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, where: Where, task: asyncio.Task[None]) -> None:
        if self._tasks.get(where) is task:
            del self._tasks[where]
            self.troubles.pop(where, None)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("an unload of %s at %s went wrong", where[1], where[0], exc_info=problem)

    async def _part(self, copy: Copy, pause: float) -> None:
        where = (copy.host.name, copy.model)
        while True:
            await asyncio.sleep(pause)
            while copy.host.busy:
                await asyncio.sleep(LOOK)
            try:
                await self._unload(copy)
            except UnloadError as problem:
                known = self.troubles.get(where, Trouble(0, self._clock(), ""))
                self.troubles[where] = known._replace(times=known.times + 1, why=str(problem))
                pause = min(LONGEST, AGAIN * 2.0 ** min(known.times, 10))
            else:
                return

    async def _unload(self, copy: Copy) -> None:
        copy.host.busy = copy.host.doubted = True
        where = f"{copy.model}, which left the configuration, at {copy.host.name}"
        try:
            async with asyncio.timeout(GONE):  # a load that was begun goes on, whoever is still interested
                entry = await copy.desk.until(lambda e: e.presence in (Presence.READY, Presence.ABSENT), ABSENT)
            if entry.presence is Presence.READY:
                await unload(copy.desk, where)
                self._hands.note("unloaded: it left the configuration", *copy.key)
        except RefusedError:
            return  # nobody is there, and nothing is
        except TimeoutError:
            raise UnloadError(f"{where} was not unloaded: what became of its load is not known") from None
        except AskError as problem:
            raise UnloadError(f"{where} was not unloaded: {problem}") from None
        finally:
            copy.host.busy = False
            copy.host.look_by(self._clock())
