"""The accounts of all devices: who holds what there, measured where it can be, in the book that workers share.

Meters, probes, servers and workers say what they see; what follows is written into the book (what models hold, what
servers hold, what others use) and told to the workers (how large devices are, what requests need, which sizes are kept
from where). All of it in the supervisor's loop; only the meters look in threads of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from ...config import Config
from ...core.memory import Ledger
from ...core.replica import State
from ...core.request import INFINITY
from ...link.book import Book
from ...link.messages import Capacity, RanOut, Report, ToWorker
from ...protocols.load import EngineLoad
from ...units import show_size
from ..roster import Key
from ..slots import Table
from ..views import Alarm, DeviceView, SizesView
from .alarms import Alarms, is_over, troubles
from .ghosts import Ghosts
from .holders import Holders
from .measuring import SURE, Measuring
from .meters import Meters
from .quarantines import Quarantines
from .showing import device_views, sizes_view
from .sizing import Sizing
from .watched import Watched

LEARNED = 48  # measured requests in one tick, of all models: each may take a millisecond
BOUNDLESS = 1 << 62  # bytes of room where nobody knows how large the device is
OFTEN = 1.0  # seconds between two lines in the chronicle about one model that runs out of memory on one device


class Accounts:
    def __init__(
        self,
        book: Book,
        tell: Callable[[ToWorker], None],
        note: Callable[..., None],
        *,
        meters: Meters | None = None,
    ) -> None:
        """`tell` reaches all workers; `note` writes the chronicle."""
        self._tell = tell
        self._note = note
        self._ledger = Ledger(book)
        self._meters = meters or Meters()
        self._watched: dict[str, Watched] = {}
        self._sizings: dict[str, Sizing] = {}
        self._holders = Holders(self._ledger, self.footprint)
        self._measuring = Measuring(self._ledger, self._holders, self._sizings)
        self._ghosts = Ghosts(book)
        self._quarantines = Quarantines()
        self._alarms = Alarms()
        self._capacities: dict[str, int] = {}  # as told
        self._noted: dict[tuple[str, str], float] = {}  # model, device → when it last ran out, in the chronicle
        self._now = 0.0

    # ------------------------------------------------------------------ who is there

    def follow(self, config: Config, slots: Table, devices: Mapping[str, int], now: float) -> None:
        """The configuration, or who belongs to the fleet, has changed."""
        self._now = now
        self._know(config, devices, now)
        counted = {name: m for name, m in config.models.items() if any(r.device in self._watched for r in m.replicas)}
        for name in [name for name in self._sizings if name not in counted]:
            del self._sizings[name]
        for name, model in counted.items():
            self._sizings.setdefault(name, Sizing(name, model.memory)).declare(model.memory)
        self._holders.follow(config, slots, now)
        for name, model in counted.items():
            self._sizings[name].footprint.keep({replica.name for replica in model.replicas})
            self._holders.rebase(name)
        self._quarantines.keep(set(counted), set(self._watched))
        self._noted = {key: when for key, when in self._noted.items() if key[1] in self._watched}
        self._tell_news(now)

    def _know(self, config: Config, devices: Mapping[str, int], now: float) -> None:
        named = {name: config.devices[name] for name in devices if name in config.devices}
        self._meters.follow(named, now)
        for name in [name for name in self._watched if name not in named]:
            del self._watched[name]
            self._ledger.forget(name)
        for name, settings in named.items():
            known = self._watched.get(name)
            device = self._ledger.know(name, devices[name], 0, settings.headroom, settings.concurrency or INFINITY)
            if known is None or known.device is not device or not known.is_measured_as(settings):
                known = self._watched[name] = Watched(device, settings, self._meters.source(name))
                self._ledger.cells.set_other(device.index, 0)
            known.settings = settings
            device.capacity = known.capacity

    def standing(self, key: Key, state: State, now: float) -> None:
        """How a replica stands has changed."""
        self._now = now
        self._holders.move(key, state, now)

    # ------------------------------------------------------------------ what servers and workers say

    def heard(self, key: Key, load: EngineLoad, now: float) -> None:
        """What a server says of itself."""
        self._now = now
        holder = self._holders.get(key)
        if holder is not None:
            self._measuring.hear(holder, self._watched[holder.place.device.name], load, now)

    def weighed(self, key: Key, amount: int, now: float) -> None:
        """A server said how much more it holds since it loaded the model."""
        self._now = now
        holder = self._holders.get(key)
        if holder is not None:
            holder.told = now
            self._measuring.weigh(holder, amount, now)

    def reported(self, report: Report, now: float) -> None:
        """What servers hold, workers write into the book themselves as soon as they hear it."""
        self._now = now
        for sample in report.samples:
            if sample.model in self._sizings:
                self._sizings[sample.model].hear(sample)
        for model in report.unmeasured:
            if model in self._sizings:
                self._sizings[model].is_silent(now)
        for replica in report.replicas:
            if replica.base is None:
                continue
            holder = self._holders.get((replica.model, replica.id))
            if holder is not None and now - holder.told > SURE:
                self._measuring.hear_base(holder, replica.base, now)

    def ran_out(self, message: RanOut, now: float) -> None:
        """A request ran out of memory: such are believed to need more, and are kept from the device for a while."""
        self._now = now
        holder = self._holders.get((message.model, message.id))
        if holder is None:
            return
        watched, sizing = self._watched[holder.place.device.name], self._sizings[message.model]
        watched.ran_out += 1
        watched.last_ran_out = now
        needed = sizing.ran_out(message, now)
        seconds = self._quarantines.add(message.model, watched.name, needed, now) if needed else 0.0
        if quarantines := self._quarantines.to_tell(now):
            self._tell(sizing.tell(now))
            for quarantine in quarantines:
                self._tell(quarantine)
        where = (message.model, watched.name)
        if now - self._noted.get(where, -INFINITY) >= OFTEN:
            self._noted[where] = now
            self._note_ran_out(message, watched.name, needed, seconds)

    def _note_ran_out(self, message: RanOut, device: str, needed: int, seconds: float) -> None:
        had = f"{show_size(message.bytes)} were reserved for it"
        what = f"a request ran out of memory on {device} ({message.how}): {had}"
        if needed:
            what += f"; such count with {show_size(needed)} now, and are kept from {device} for {seconds:.0f} s"
        self._note("memory", what, model=message.model, replica=message.id, level=logging.WARNING)

    def buried(self, row: int, now: float) -> None:
        """The worker with this row of the book is dead. Its requests may still run, so what it had still counts."""
        self._now = now
        left = self._ghosts.bury(row, self._holders.devices, now)
        if left:
            self._note("memory", f"a worker died with {show_size(left)} reserved: that counts until it is surely over")

    # ------------------------------------------------------------------ for who loads and unloads models

    def rooms(self) -> dict[str, int]:
        """Bytes of each device that a load may take."""
        return {
            name: self._ledger.room(watched.device) if watched.capacity else BOUNDLESS
            for name, watched in self._watched.items()
        }

    def budgets(self) -> dict[str, int]:
        """Bytes of each device that may be given out in all."""
        return {name: watched.device.budget for name, watched in self._watched.items()}

    def room_at(self, key: Key) -> int:
        """Bytes that a load may take there: what its server keeps for later is room for it, and for no other."""
        holder = self._holders.get(key)
        if holder is None:
            return 0
        return self._ledger.room_at(holder.place.server) if holder.place.device.capacity else BOUNDLESS

    def footprint(self, model: str) -> int:
        """What it holds with nothing running; 0: nobody knows."""
        sizing = self._sizings.get(model)
        return sizing.footprint.value if sizing is not None else 0

    def reserve(self, key: Key, amount: int) -> bool:
        """Room for a model that is to be loaded there. False: there is none, now."""
        holder = self._holders.get(key)
        return holder is None or self._holders.reserve(holder, amount)

    def release(self, key: Key) -> None:
        """It was unloaded, or its load failed."""
        holder = self._holders.get(key)
        if holder is not None:
            self._holders.release(holder)

    def resident(self, key: Key) -> None:
        """It was found there, though nobody reserved room for it: it counts, whether it fits or not."""
        holder = self._holders.get(key)
        if holder is not None and not holder.resident:
            watched = self._watched[holder.place.device.name]
            before = self._ledger.taken(watched.device)
            self._holders.hold(holder)
            # Until now it was taken for a stranger's, unless its server was measured.
            watched.strangers.were_ours(self._ledger.taken(watched.device) - before)
            self._ledger.cells.set_other(watched.device.index, watched.other)

    def is_over(self, key: Key) -> bool:
        """Is more of its device in use than may be given out? As measured, or else as it is in the book."""
        holder = self._holders.get(key)
        if holder is None:
            return False
        watched = self._watched[holder.place.device.name]
        return is_over(watched, self._ledger, self._now)

    def device_of(self, key: Key) -> str:
        """Empty: it is on none that is counted."""
        holder = self._holders.get(key)
        return holder.place.device.name if holder is not None else ""

    # ------------------------------------------------------------------ what time brings about

    def tick(self, now: float) -> None:
        """To be called a few times a second."""
        self._now = now
        self._measuring.sample(self._watched, now)
        for name, look, began in self._meters.tick(now):
            self._measuring.see(self._watched[name], look, began, now)
        self._ghosts.tick(now)
        for sizing in self._sizings.values():
            sizing.tick(now)
        self._holders.tick(now)
        self._learn()
        self._tell_news(now)
        self._look_for_troubles(now)

    def _learn(self) -> None:
        """A little of each model, so that one with many requests leaves time for the others, and for all else."""
        waiting = [sizing for sizing in self._sizings.values() if sizing.waiting]
        for sizing in waiting:
            sizing.learn(max(1, LEARNED // len(waiting)))

    def _tell_news(self, now: float) -> None:
        capacities = {name: w.capacity for name, w in self._watched.items() if w.capacity and not w.settings.memory}
        if capacities != self._capacities:
            self._capacities = capacities
            self._tell(Capacity(dict(capacities)))
        for sizing in self._sizings.values():
            if sizing.due(now):
                self._tell(sizing.tell(now))
        for quarantine in self._quarantines.to_tell(now):
            self._tell(quarantine)

    def so_far(self) -> list[ToWorker]:
        """All that a new worker must know."""
        sizes = [sizing.message() for sizing in self._sizings.values()]
        return [Capacity(dict(self._capacities)), *sizes, *self._quarantines.in_force(self._now)]

    async def close(self) -> None:
        await self._meters.close()

    # ------------------------------------------------------------------ to be shown

    def views(self, reports: Iterable[Report], now: float) -> tuple[tuple[DeviceView, ...], tuple[SizesView, ...]]:
        quarantines = self._quarantines.in_force(now)
        devices = device_views(self._watched.values(), self._ledger, self._holders, reports, quarantines, now)
        return devices, tuple(map(sizes_view, self._sizings.values()))

    def alarms(self, now: float) -> list[Alarm]:
        """What a person should know now."""
        self._look_for_troubles(now)
        return self._alarms.in_force(now)

    def _look_for_troubles(self, now: float) -> None:
        self._alarms.see(troubles(self._watched.values(), self._ledger, self._holders, self._sizings, now), now)
