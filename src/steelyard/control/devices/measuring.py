"""What is measured of devices, servers and models, and what it means for the book."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ...core.memory import Ledger
from ...protocols.load import EngineLoad
from .difference import Difference
from .holder import LOADED, Holder, held, is_idle
from .holders import Holders
from .look import Look
from .sizing import Sizing
from .watched import Watched

STALE = 1.5  # seconds: what a server says of its device may be so old
REMEMBERED = 8  # samples of what is ours
SURE = 10.0  # seconds for which what a server says itself counts more than what others saw of it


class Measuring:
    def __init__(self, ledger: Ledger, holders: Holders, sizings: Mapping[str, Sizing]) -> None:
        self._ledger = ledger
        self._holders = holders
        self._sizings = sizings
        self._ours: dict[str, deque[tuple[float, int, int]]] = {}  # device → when, surely, possibly

    def sample(self, devices: Mapping[str, Watched], now: float) -> None:
        """What is ours just now: what is measured is seen a while later, and requests come and go meanwhile."""
        for name in [name for name in self._ours if name not in devices]:
            del self._ours[name]
        for name, watched in devices.items():
            history = self._ours.setdefault(name, deque(maxlen=REMEMBERED))
            history.append((now, *self._holders.ours(watched.device)))

    def hear(self, holder: Holder, watched: Watched, load: EngineLoad, now: float) -> None:
        """What a server says of itself, and of its device."""
        if load.held is not None or load.base is not None:
            for each in self._holders.at(holder.place.server):
                each.measured = each.resident and (each.measured or each.state in LOADED)
        if load.held is not None:
            self._ledger.measure(holder.place, int(load.held))
        if load.base is not None:
            holder.told, holder.tells_base = now, True
            self._ledger.measure_idle(holder.place, int(load.base))
        if not self._is_its_server(holder):
            self._compare_server(holder, load, now)
        elif load.base is not None:
            self.hear_base(holder, int(load.base), now)
        if watched.hear(holder.key, load, now):
            self._compare(watched, now - STALE, now)
        self._write(watched)

    def hear_base(self, holder: Holder, base: int, now: float) -> None:
        """What its server holds with nothing running: its model's, where the two come and go together."""
        if holder.state in LOADED and self._is_its_server(holder):
            self.weigh(holder, base, now)

    def _is_its_server(self, holder: Holder) -> bool:
        """Of several models nobody can tell whose it is; and one on demand goes, and its server stays."""
        return len(holder.place.server.places) == 1 and not holder.on_demand

    def _compare_server(self, holder: Holder, load: EngineLoad, now: float) -> None:
        """What a server holds, with what it held before this model came."""
        said = load.base if holder.tells_base else load.held
        if said is not None:
            idle = holder.tells_base or is_idle(holder.place.server, self._ledger.cells)
            self._weigh_by(holder, holder.of_server, int(said), idle, now, now)

    def see(self, watched: Watched, look: Look, began: float, now: float) -> None:
        """A meter looked at the device."""
        if watched.see(look, now):
            self._compare(watched, began, now)
        self._write(watched)

    def weigh(self, holder: Holder, amount: int, now: float) -> None:
        """Its model was measured to hold so much with nothing running."""
        footprint = self._sizings[holder.model].footprint
        before = footprint.value
        footprint.observe(holder.key[1], amount, now)
        if footprint.value != before:
            self._holders.rebase(holder.model)

    def _compare(self, watched: Watched, began: float, now: float) -> None:
        """All that is in use of the device with what is ours, and with what was in use before a model came."""
        device, used = watched.device, watched.used or 0
        surely, possibly = self._holders.ours(device)
        for when, least, most in self._ours.get(watched.name, ()):
            if when >= began:
                surely, possibly = min(surely, least), max(possibly, most)
        watched.strangers.look(used, surely, possibly)
        idle = self._ledger.cells.count(device.index) == 0
        self._correct(watched, watched.overcount.look(used, surely, idle))
        for holder in self._holders.on(device):
            if now - holder.told > SURE:
                self._weigh_by(holder, holder.of_device, used, idle, began, now)

    def _correct(self, watched: Watched, over: int) -> None:
        """So much less is in use than models seem to hold: most likely the one that is most above what was declared."""
        cells = self._ledger.cells
        there = [
            h.model for h in self._holders.on(watched.device) if h.state in LOADED and not held(h.place.server, cells)
        ]
        model = max(there, key=lambda model: self._sizings[model].footprint.excess, default="")
        if over and model:
            self._sizings[model].footprint.lower(over // there.count(model))
            self._holders.rebase(model)

    def _weigh_by(
        self, holder: Holder, difference: Difference, used: int, idle: bool, began: float, now: float
    ) -> None:
        """By what is in use since it came. What requests may have left behind is better than nothing, no more."""
        server, device = self._holders.changes_beside(holder)
        difference.beside(device if difference is holder.of_device else server)
        found = difference.look(used, idle, began, announced=holder.on_demand)
        footprint = self._sizings[holder.model].footprint
        if found is not None and (difference.clean or not footprint.value):
            self.weigh(holder, footprint.believed(found) if difference is holder.of_device else found, now)

    def _write(self, watched: Watched) -> None:
        watched.device.capacity = watched.capacity
        self._ledger.cells.set_other(watched.device.index, watched.other)
