"""One replica under watch: what is asked of it, what is known of it, and what is under way."""

from __future__ import annotations

import asyncio
from random import Random

from ..views import ProbeView
from .command_probe import CommandProbe
from .http_probe import HttpProbe
from .inference import infer
from .keeper import INFINITY, Keeper
from .seen import Kind, Seen, Tried
from .target import Key, Target
from .tls import Contexts
from .trials import Trial
from .warm_up import WarmUps

STOOD_STILL = 0.5  # seconds over its time limit: it was this process that did not listen


class Course:
    def __init__(self, key: Key, target: Target, contexts: Contexts, rng: Random, now: float) -> None:
        self.key = key
        self.keeper = Keeper(target.health, rng, now)
        self.looking: asyncio.Task[None] | None = None
        self.trial: asyncio.Task[None] | None = None
        self.waits = False  # for a place in a lane
        self.began = -INFINITY  # the last look
        self.hurried = False  # look again as soon as this look has ended
        self.stale = False  # this look does not count
        self._contexts = contexts
        self._take(target)

    def change(self, target: Target, now: float) -> None:
        """Other settings for the same server."""
        self.keeper.change(target.health, now)
        self.stale = self.looking is not None
        self._take(target)

    def _take(self, target: Target) -> None:
        self.target = target
        self._probe: CommandProbe | HttpProbe | None = None
        self._warm_ups = WarmUps(target, self._contexts)
        self._cooled = self.keeper.cooled

    async def look(self) -> Seen:
        """Raises whatever a dialect of the user's own may raise."""
        if self._probe is None:
            by_command = bool(self.target.health.command)
            self._probe = CommandProbe(self.target) if by_command else HttpProbe(self.target, self._contexts)
        seen = await self._probe.look()
        if seen.kind is Kind.SILENT and seen.seconds > self.target.health.timeout + STOOD_STILL:
            self.hurried = True
            return seen._replace(kind=Kind.UNKNOWN, detail=f"{seen.detail}; but Steelyard itself stood still")
        return seen

    async def attempt(self, trial: Trial) -> Tried:
        return await (self._warm_ups.run() if trial is Trial.WARM_UP else infer(self.target, self._contexts))

    def begin_anew(self) -> None:
        """Forget what does not hold for the process that is there now."""
        if self._cooled != self.keeper.cooled:
            self._cooled = self.keeper.cooled
            self._warm_ups.forget()
            if self._probe is not None:
                self._probe.forget()

    def view(self, now: float) -> ProbeView:
        keeper = self.keeper
        seen, since = keeper.last, keeper.loading_since
        return ProbeView(
            verdict=seen.kind.value,
            detail=seen.detail,
            age=now - keeper.looked_at if keeper.looked_at > -INFINITY else None,
            seconds=seen.seconds,
            good=keeper.good,
            bad=keeper.bad,
            needed=keeper.needed,
            instance=keeper.lives.instance,
            restarts=keeper.lives.restarts,
            loading_for=None if since is None else now - since,
        )
