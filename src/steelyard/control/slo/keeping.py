"""Promises in the fleet: the ledger, its alerts and the history, told what happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import time
from typing import Final

from ...config import Config
from ...core.request import INFINITY
from ...core.slo import LATENCY
from ...core.slo_windows import LONGEST, WINDOWS, Objective, Weighed, objectives, percent_kept
from ...link.messages import Report
from ..history.slices import by_name, minute
from ..history.store import History
from ..status import Past, lost
from ..views import Alarm, ObjectiveView, SloView, WindowView
from .alerts import Alerts
from .ledger import Kept, Key, Ledger, digest, totals
from .losses import Losses

EVERY: Final = 1.0  # seconds between looks at what workers say
AT_ONCE: Final = 500  # parts of the history that are remembered in one go: a few milliseconds
WRITTEN: Final = 10.0  # seconds between gifts to the history: so much is lost if the supervisor is killed

log = logging.getLogger("steelyard.control")


class Keeping:
    def __init__(self, clock: Callable[[], float] = time) -> None:
        """`clock`: seconds since 1970; what is kept on disk is for people, who go by the time of day."""
        self._clock = clock
        self._ledger = Ledger()
        self._alerts = Alerts()
        self._losses = Losses()
        self._history: History | None = None
        self._remembering: asyncio.Task[None] | None = None
        self._minute = 0  # the one that is open
        self._looked = -INFINITY
        self._written = -INFINITY

    def follow(self, config: Config) -> None:
        """What is promised from now on."""
        self._turn_page()
        self._ledger.follow(config.models, self._minute)
        self._alerts.keep({(key, o.kind) for key in self._ledger.kept for o in self._objectives(key)})

    def begin(self, history: History, now: float) -> None:
        """What it knows is brought in when it has been read."""
        self._history = history
        self._remembering = asyncio.create_task(self._remember(history, now))

    async def _remember(self, history: History, now: float) -> None:
        wall = self._clock()
        slos = [model.slo for model in self._ledger.models.values() if model.slo is not None]
        since = wall - max([float(slo.period) for slo in slos], default=0.0)
        try:
            made = partial(digest, recent=wall - LONGEST)
            known = await asyncio.to_thread(history.read, since, made) if slos else []
            for at in range(0, len(known), AT_ONCE):
                self._ledger.remember(known[at : at + AT_ONCE], now, wall)
                await asyncio.sleep(0)  # there is more to do than to remember
        except Exception:  # the gateway serves without it
            log.exception("what was promised before and kept could not be read")

    async def end(self, reports: Sequence[Report], past: Past, now: float) -> None:
        """All workers are gone: this is the last of what they said."""
        if self._remembering is not None:
            await asyncio.gather(self._remembering, return_exceptions=True)
        self.take_in(reports, past, now)
        self._write()
        if self._history is not None:
            await asyncio.to_thread(self._history.close)
            self._history = None

    # ------------------------------------------------------------------ what happens

    def tick(self, reports: Sequence[Report], past: Past, now: float) -> None:
        if now - self._looked < EVERY:
            return
        self._looked = now
        self.take_in(reports, past, now)
        if now - self._written >= WRITTEN:
            self._written = now
            self._write()

    def take_in(self, reports: Sequence[Report], past: Past, now: float) -> None:
        """The latest of each worker, and of those that are dead."""
        self._turn_page()
        self._losses.look(lost(reports, past), now)
        judged, latency = totals([*(report.models for report in reports), past.models.values()])
        changed = self._ledger.take_in(judged, latency, now)
        burning = {key for key, _ in self._alerts.burning}
        for key in (changed | burning) & self._ledger.kept.keys():
            self._look(key, now)

    def _look(self, key: Key, now: float) -> None:
        promise = self._ledger.promise(key)
        for objective in objectives(promise):
            self._alerts.look(key, objective, promise, self._ledger.kept[key], now, self._clock())

    def _turn_page(self) -> None:
        """What came so far is of the minute that was open. The clock may be set back: then a minute comes again, and
        what came in it adds up."""
        now = minute(self._clock())
        if now != self._minute:
            if self._minute:
                self._write()
            self._minute = now

    def _write(self) -> None:
        """Not before the history was read: what came since would come back as what was there before."""
        if self._remembering is None or self._remembering.done():
            slices = self._ledger.hand_over(self._minute)
            if self._history is not None:
                self._history.add(slices)

    # ------------------------------------------------------------------ what is shown

    def alarms(self, now: float) -> list[Alarm]:
        return [*self._unwritten(), *self._losses.alarms(now), *self._alerts.alarms(now)]

    def _unwritten(self) -> list[Alarm]:
        history = self._history
        if history is None or not (history.problem or history.behind):
            return []
        if history.problem:
            what = f"{history.problem}: error budgets begin anew at a restart"
        else:
            what = f"{history.behind}; a restart now would forget what is not yet written"
        return [Alarm(code="no_history", what=what, age=0.0)]

    def views(self, now: float) -> tuple[SloView, ...]:
        return tuple(self._view(key, kept, now) for key, kept in self._shown(now).items())

    def _shown(self, now: float) -> Mapping[Key, Kept]:
        """Of each model, who has asked; where all name their tenants, not those who name none."""
        ledger = self._ledger
        several = {model for model, tenant in ledger.kept if tenant}
        return {
            key: kept
            for key, kept in sorted(ledger.kept.items())
            if key[1] or key[0] not in several or any(kept.counts) or any(kept.period.sums(kept.period.longest, now))
        }

    def _objectives(self, key: Key) -> list[Objective]:
        return objectives(self._ledger.promise(key))

    def _view(self, key: Key, kept: Kept, now: float) -> SloView:
        return SloView(
            model=key[0],
            tenant=key[1],
            counts=by_name(kept.counts),
            objectives=tuple(self._objective(key, kept, objective, now) for objective in self._objectives(key)),
        )

    def _objective(self, key: Key, kept: Kept, objective: Objective, now: float) -> ObjectiveView:
        promise = self._ledger.promise(key)
        timed = objective.kind == LATENCY
        whole = kept.period.sums(kept.period.longest, now)
        return ObjectiveView(
            kind=objective.kind,
            target=objective.target,
            latency=promise.latency if timed and promise.latency < INFINITY else None,
            first_byte=promise.first_byte if timed and promise.first_byte < INFINITY else None,
            windows=tuple(
                _window(objective, kept.recent.sums(seconds, now), seconds, kept.covered(seconds, now))
                for seconds in WINDOWS
            ),
            budget=_window(objective, whole, kept.period.longest, kept.covered(kept.period.longest, now)),
            budget_left=objective.budget_left(whole),
            alert=self._alerts.level(key, objective.kind),
        )


def _window(objective: Objective, weighed: Weighed, seconds: float, covered: float | None) -> WindowView:
    good, bad = objective.parts(weighed)
    return WindowView(
        seconds=seconds,
        good=good,
        bad=bad,
        kept=percent_kept(good, bad),
        burn=round(objective.burn(weighed), 6),
        covered=covered,
    )
