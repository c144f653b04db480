"""Memory in the fleet: the accounts of devices and the placer of models, told what happens and asked what follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.replica import Event, State
from ..link.book import Book
from ..link.messages import RanOut, Report, ToWorker, Wanted
from ..protocols.load import EngineLoad
from .demand import Demands
from .devices import Accounts
from .placing.hands import Hands, Wish
from .placing.placer import Placer
from .probing.target import Key
from .views import Alarm, DeviceView, SizesView

if TYPE_CHECKING:
    from .fleet import Fleet, Workers

DRAINED = 30.0  # seconds that what runs on a replica has to end, before it is not unloaded after all
LOOK = 0.1  # seconds between two looks whether it has
EAGER = 5.0  # seconds in which workers are asked for each look; then what they report by themselves has to do


class Holdings:
    def __init__(self, fleet: Fleet, workers: Workers, book: Book) -> None:
        self._fleet = fleet
        self._workers = workers
        self._demands = Demands()
        self.accounts = Accounts(book, self._tell, fleet.chronicle.note)
        self.placer = Placer(
            Hands(
                room=self.accounts,
                move=fleet.move,
                see_anew=fleet.see_anew,
                drained=self.drained,
                demands=self._wishes,
                in_flight=self._in_flight,
                note=self._note,
                tell=self._tell,
            )
        )

    async def close(self) -> None:
        await self.placer.close()
        await self.accounts.close()

    def follow(self) -> None:
        """Another configuration is in force, or other replicas."""
        good = self._fleet.in_force.good
        self.accounts.follow(good.config, good.slots, good.devices, self._fleet.now())
        self.placer.follow(good.config)
        self._demands.keep(set(good.config.models))

    # ------------------------------------------------------------------ what happens

    def standing(self, key: Key, state: State) -> None:
        self.accounts.standing(key, state, self._fleet.now())
        self.placer.state(key, state)

    def heard(self, key: Key, load: EngineLoad) -> None:
        self.accounts.heard(key, load, self._fleet.now())

    def reported(self, report: Report) -> None:
        now = self._fleet.now()
        self.accounts.reported(report, now)
        self._demands.take_in(self._workers.reports(), now)

    def wanted(self, message: Wanted) -> None:
        self._demands.wanted(message.model, self._fleet.now())
        self.placer.wanted(message)

    def ran_out(self, message: RanOut) -> None:
        self.accounts.ran_out(message, self._fleet.now())

    def buried(self, row: int) -> None:
        self.accounts.buried(row, self._fleet.now())

    def tick(self, now: float) -> None:
        self.accounts.tick(now)
        self.placer.tick(now)

    # ------------------------------------------------------------------ what is told

    def so_far(self) -> list[ToWorker]:
        return [*self.accounts.so_far(), *self.placer.coming()] if self._fleet.config.devices else []

    def views(self) -> tuple[tuple[DeviceView, ...], tuple[SizesView, ...]]:
        return self.accounts.views(self._workers.reports(), self._fleet.now())

    def alarms(self) -> list[Alarm]:
        return [*self.accounts.alarms(self._fleet.now()), *self.placer.alarms()]

    # ------------------------------------------------------------------ what the placer needs

    def _tell(self, message: ToWorker) -> None:
        self._fleet.flush()  # in the order in which it happened
        self._workers.broadcast(message)

    def _note(self, what: str, model: str, replica: str) -> None:
        self._fleet.chronicle.note("placement", what, model=model, replica=replica, level=logging.INFO)

    def _wishes(self) -> Mapping[str, Wish]:
        return self._demands.wishes(self._workers.reports(), self._fleet.now())

    def _in_flight(self) -> Mapping[Key, int]:
        found: dict[Key, int] = {}
        for report in self._workers.reports():
            for replica in report.replicas:
                if replica.in_flight:
                    key = (replica.model, replica.id)
                    found[key] = found.get(key, 0) + replica.in_flight
        return found

    async def drained(self, key: Key, seconds: float = DRAINED) -> bool:
        """Until no worker has a request there; each has heard by then that it gets none. False: some still run."""
        self._fleet.flush()
        began = self._fleet.now()
        while True:
            eager = self._fleet.now() < began + EAGER
            if eager or key not in self._in_flight():
                told = await self._workers.tell(1.0)
                if told and key not in self._in_flight():
                    return True
            if self._fleet.now() >= began + seconds or key not in self._fleet.standings:
                return False
            await asyncio.sleep(LOOK if eager else 5 * LOOK)

    def asked_to(self, key: Key, event: Event) -> str:
        """An operator wants a model loaded or unloaded there. Why not, if it cannot be."""
        return self.placer.asked_to(key, load=event is Event.LOAD)
