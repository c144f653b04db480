"""What happened, in words: for the log, and for whoever asks later."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from time import monotonic

from .views import Happening

KEPT = 1000

log = logging.getLogger("steelyard.fleet")


class Chronicle:
    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kept: deque[tuple[float, Happening]] = deque(maxlen=KEPT)

    def note(self, kind: str, what: str, *, model: str = "", replica: str = "", level: int = logging.INFO) -> None:
        where = f"{model}/{replica}: " if replica else f"{model}: " if model else ""
        log.log(level, "%s%s", where, what)
        self._kept.append((self._clock(), Happening(age=0.0, kind=kind, what=what, model=model, replica=replica)))

    def latest(self) -> list[Happening]:
        """The latest last."""
        now = self._clock()
        return [
            Happening(age=now - when, kind=h.kind, what=h.what, model=h.model, replica=h.replica)
            for when, h in self._kept
        ]
