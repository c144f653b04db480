"""One change of who is where: models that go make room for one that comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ...core.replica import Event
from ...link.messages import Coming
from ...protocols.repository import Presence, Progress
from ..probing.errors import AskError
from .errors import LoadError, LoadTimeoutError, NoRoomError, StillRunsError
from .hands import Hands
from .host import Copy, Phase
from .load_times import LoadTimes
from .unloading import ABSENT, unload

DRAIN = 60.0  # seconds for requests in flight; `drained` may have less patience
ROOM = (
    5.0  # seconds for the room that was made to show in the book; longer where servers are seldom asked what they hold
)
LOOK = 0.05  # seconds between two looks for it


class Job:
    """Runs to its end, or fails with a PlacingError. However it ends, each copy is what it is known to be: back in use,
    gone, or UNSURE until the server's index was read. No room is given back before its model is gone."""

    def __init__(
        self,
        hands: Hands,
        times: LoadTimes,
        clock: Callable[[], float],
        coming: Copy | None,
        going: Sequence[Copy],
        why: str,
    ) -> None:
        self.coming = coming
        self.going = going
        self.why = why
        self.began = clock()
        self.loads_since: float | None = None
        self._hands = hands
        self._times = times
        self._clock = clock

    @property
    def main(self) -> Copy:
        """The one it is about."""
        return self.coming if self.coming is not None else self.going[0]

    @property
    def copies(self) -> list[Copy]:
        return [*self.going, *([self.coming] if self.coming is not None else [])]

    @property
    def stage(self) -> str:
        """For whoever looks."""
        phases = {copy.phase for copy in self.going}
        for phase in (Phase.DRAINING, Phase.UNLOADING):
            if phase in phases:
                return str(phase.value)
        return "loading" if self.loads_since is not None else "waiting for room"

    async def run(self) -> None:
        """PlacingError: it did not go well."""
        try:
            self._announce()
            await self._drain()
            await self._unload()
            if self.coming is not None:
                await self._reserve(self.coming)
                await self._load(self.coming)
        except BaseException as problem:  # a cancellation too
            self._abandon(str(problem) or "given up")
            raise

    def _announce(self) -> None:
        if self.coming is not None:
            model = self.coming.model
            self._hands.tell(Coming(model, self._times.of(model, float(self.coming.settings.load_time))))

    # ------------------------------------------------------------------ those that go

    async def _drain(self) -> None:
        for copy in self.going:
            self._turn(copy, Phase.DRAINING)
            why = f"makes room for {self.coming.model}" if self.coming is not None else self.why
            self._hands.move(copy.key, Event.UNLOAD, why)
        done = await asyncio.gather(*map(self._drained, self.going))
        if still := [copy for copy, is_done in zip(self.going, done, strict=True) if not is_done]:
            names = ", ".join(f"{copy.model} at {copy.host.name}" for copy in still)
            raise StillRunsError(f"requests still run on {names}, which should make room")

    async def _drained(self, copy: Copy) -> bool:
        try:
            return await asyncio.wait_for(self._hands.drained(copy.key), DRAIN)
        except TimeoutError:
            return False

    async def _unload(self) -> None:
        if not self.going:
            return
        done = await asyncio.gather(*map(self._unload_one, self.going), return_exceptions=True)
        for problem in filter(None, done):
            raise problem
        # Only now, and just before it is reserved again: between the two others could take it.
        for copy in self.going:
            self._let_go(copy)

    async def _unload_one(self, copy: Copy) -> None:
        self._turn(copy, Phase.UNLOADING)
        await unload(copy.desk, f"{copy.model} at {copy.host.name}")
        copy.ours = False
        self._turn(copy, Phase.ABSENT)

    # ------------------------------------------------------------------ the one that comes

    async def _reserve(self, copy: Copy) -> None:
        room, amount = self._hands.room, self._hands.room.footprint(copy.model)
        until = self._clock() + ROOM * max(1.0, *(float(each.target.load.interval) / 4.0 for each in self.copies))
        while not room.reserve(copy.key, amount):
            if self._clock() >= until:
                raise NoRoomError(f"{copy.host.device or copy.host.name} has no room for {copy.model} any more")
            await asyncio.sleep(LOOK)
        copy.counted, copy.size = True, amount
        self._turn(copy, Phase.ROOMED)

    async def _load(self, copy: Copy) -> None:
        self.loads_since = self._clock()
        self._turn(copy, Phase.LOADING)
        copy.ours = True
        self._hands.move(copy.key, Event.LOAD, self.why or "it is wanted")
        self._announce()
        limit = float(copy.settings.timeout)
        try:
            async with asyncio.timeout(limit):
                await self._loaded(copy, limit)
        except TimeoutError:
            raise LoadTimeoutError(f"{copy.model} was not loaded within {limit:g} s at {copy.host.name}") from None
        except AskError as problem:
            raise LoadError(f"{copy.model} was not loaded at {copy.host.name}: {problem}") from None
        if copy.dropped:
            return
        self._times.learn(copy.model, self._clock() - self.loads_since)
        self._turn(copy, Phase.RESIDENT)
        self._hands.room.resident(copy.key)
        self._hands.see_anew(copy.key)

    async def _loaded(self, copy: Copy, limit: float) -> None:
        said = await copy.desk.load(limit + 1.0)  # `timeout` around it ends it
        if said.progress is Progress.UNDER_WAY:
            entry = await copy.desk.until(lambda entry: entry.presence in (Presence.READY, Presence.ABSENT), ABSENT)
            if entry.presence is Presence.READY:
                return
            said = said._replace(progress=Progress.REFUSED, reason=entry.reason or "it is not among its models")
        if said.progress is Progress.REFUSED:
            raise LoadError(f"{copy.model} was not loaded at {copy.host.name}: {said.reason}")

    # ------------------------------------------------------------------ when it does not go well

    def _abandon(self, why: str) -> None:
        for copy in self.copies:
            if copy.dropped:
                continue
            match copy.phase:
                case Phase.DRAINING if copy.counted:  # it was not asked to unload: it goes on as before
                    self._turn(copy, Phase.RESIDENT)
                    self._hands.move(copy.key, Event.LOAD, "it stays: the load that it made room for was given up")
                    self._hands.see_anew(copy.key)
                case Phase.ABSENT | Phase.ROOMED:
                    self._let_go(copy)
                    self._turn(copy, Phase.ABSENT)
                case Phase.DRAINING | Phase.UNLOADING | Phase.LOADING:
                    self._turn(copy, Phase.UNSURE)
                    self._hands.move(copy.key, Event.UNLOAD, why)

    def _let_go(self, copy: Copy) -> None:
        if copy.counted and not copy.dropped:
            copy.counted, copy.size = False, 0
            self._hands.room.release(copy.key)

    def _turn(self, copy: Copy, phase: Phase) -> None:
        copy.turn(phase, self._clock())
