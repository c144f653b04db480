"""How much more than the work needs: raised while a promise is broken for lack of replicas, lowered while it holds."""

from __future__ import annotations

from math import sqrt

from ..request import INFINITY
from .base import Seen
from .windows import Average, Totals

UP, DOWN = 0.5, 0.25
KEPT = 0.5  # times as fast as allowed, or slower: it is kept with room to spare
SEEN = 3.0  # late requests that are allowed in what was seen, before it says that the promise is kept
MEMORY = 5.0  # times `slowly`, for which answers are remembered
BUSY = 0.7  # requests at a replica for each that it can work on at once, above which one more would help


class Spare:
    """In square roots of the work. It moves in steps, each by what was seen since the one before, and down not more
    often than every `slowly` seconds."""

    def __init__(self, spare: float, least: float, most: float, settle: float, slowly: float) -> None:
        self.usual, self.least, self.most = spare, least, most
        self.now = spare
        self.burn = 0.0  # how many times as fast as allowed the promise is broken, over the window
        self.helpless = False  # is it broken though nothing waits?
        self._settle, self._slowly = settle, slowly
        self._window = MEMORY * slowly
        self._counts = Totals(self._window)
        self._pressure = Average(self._window)
        self._since = -INFINITY  # what came before is of another number of replicas, or another spare
        self._fleet = (-1, -1)

    def see(self, seen: Seen, *, tight: bool) -> None:
        """`tight`: there are no more replicas than this spare asks for."""
        self._counts.add(seen.now, seen.answered, seen.late)
        width = max(1, seen.ready) * max(1.0, seen.rate)
        self._pressure.add(seen.now, seen.waiting, seen.running / width)
        if seen.coming or self._fleet != (seen.ready, seen.coming):
            self._fleet = (seen.ready, seen.coming)
            self._since = seen.now + self._settle
        _, (answered, late) = self._counts.over(self._slowly)
        self.burn = late / answered / seen.allowed if answered > 0 and seen.allowed > 0 else 0.0
        self._judge(seen, tight)

    def _judge(self, seen: Seen, tight: bool) -> None:
        waiting, use = self._pressure.over(self._window)
        idle = waiting <= 0 and use <= BUSY
        _, (answered, late) = self._counts.over(min(self._window, max(0.0, seen.now - self._since)))
        allowed = seen.allowed * answered
        broken = late - allowed > 2.0 * sqrt(allowed + 0.25)
        self.helpless = idle and broken
        if broken and not idle:
            self._move(min(self.now + UP, self.most), seen.now)
        elif answered and late <= KEPT * allowed and seen.now - self._since >= self._slowly:
            lowest = self._lowest(seen) if tight and seen.promised < INFINITY and allowed >= SEEN else self.usual
            if self.now > lowest:
                self._move(max(self.now - DOWN, lowest), seen.now)

    def _lowest(self, seen: Seen) -> float:
        """The longer a start takes, the longer too few stay too few: then less of the spare may be given up."""
        return self.least + (self.usual - self.least) * min(1.0, 2.0 * seen.cold_start / self._slowly)

    def _move(self, spare: float, now: float) -> None:
        if spare != self.now:
            self.now, self._since = spare, now
