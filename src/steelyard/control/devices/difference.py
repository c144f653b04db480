"""How much more is in use since a model came: what it holds, where nobody says so."""

from __future__ import annotations

from enum import Enum

PATIENCE = 60.0  # seconds after it came


class Phase(Enum):
    AWAY = 0
    COMING = 1
    HERE = 2
    DONE = 3


class Difference:
    """Of the use of a server, or of a device, before and after. Only what was idle both times can be compared."""

    def __init__(self) -> None:
        self.clean = True  # no request was seen in between: none that may have left something behind
        self._phase = Phase.AWAY
        self._before: int | None = None
        self._since = 0.0
        self._changes = 0

    def away(self) -> None:
        if self._phase is not Phase.AWAY:
            self._phase, self._before = Phase.AWAY, None

    def coming(self) -> None:
        if self._phase is Phase.AWAY:
            self._phase = Phase.COMING

    def here(self, now: float) -> None:
        """It is ready."""
        if self._phase in (Phase.AWAY, Phase.COMING):
            self._phase, self._since, self.clean = Phase.HERE, now, True

    def beside(self, changes: int) -> None:
        """How often something else has changed what is in use: what was in use before cannot be compared then."""
        if changes != self._changes:
            self._changes, self._before = changes, None

    def look(self, used: int, idle: bool, began: float, *, announced: bool = False) -> int | None:
        """What the model holds, if this look tells. `announced`: nobody but we ourselves can bring it."""
        if self._phase is Phase.AWAY and idle:
            # Unannounced, it may have been on its way before anybody saw it: the least was before that.
            self._before = used if announced or self._before is None else min(self._before, used)
        elif self._phase is Phase.HERE and began >= self._since:
            self.clean = self.clean and idle
            if idle or self._before is None or began - self._since > PATIENCE:
                self._phase = Phase.DONE
            if idle and self._before is not None and used > self._before:
                return used - self._before
        return None
