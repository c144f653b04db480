"""How replicas leave: drained, then stopped. One that only drains may come back."""

from __future__ import annotations

from collections.abc import Callable

from ...config import Runtime
from ...core.replica import Event
from .hands import Worth
from .life import LEAVING, Phase, Turn
from .orders import SEEN
from .started import Started
from .tools import Tools

PARTING = 2.0  # seconds until one without requests is stopped, when its model is gone: nobody counts them any more
SHORT = 30.0  # seconds, at the most, for requests on one that is given up; or where nobody counts them


class Departures:
    """`gone` hears of each when it is."""

    def __init__(self, model: str, tools: Tools, gone: Callable[[Started], None]) -> None:
        self.settings = Runtime(command="")  # the last in force: how long to wait
        self.impatient = False  # told to end at once
        self._model = model
        self._tools = tools
        self._hands = tools.hands
        self._gone = gone

    @property
    def patience(self) -> float:
        """Seconds for one that is stopped."""
        return 0.0 if self.impatient else float(self.settings.stop_timeout)

    def leave(self, replica: Started, why: str, *, given_up: bool = False) -> None:
        """Drained, where the fleet knows it, and stopped. Nothing hurries that, unless it is `given_up`."""
        now = self._tools.clock()
        if replica.phase in LEAVING:
            return
        self._hands.note(f"leaves: {why}", *replica.key)
        if replica.phase is Phase.ORDERED:
            replica.take(Turn.STOP, now)  # as soon as its start was answered
        else:
            replica.take(Turn.DRAIN if replica.member else Turn.STOP, now)
            if replica.member:
                self._hands.move(replica.key, Event.DRAIN, why)
            self._end(replica, min(SHORT, self._longest) if given_up else self._longest, self._rest(replica))

    def stop_now(self, replica: Started) -> None:
        """All ends."""
        if replica.phase is Phase.STOPPING:
            return
        ordered = replica.phase is Phase.ORDERED
        replica.take(Turn.STOP, self._tools.clock())
        if not ordered:
            self._tools.errands.call_off(replica)
            self.send_away(replica)

    def kill(self, replica: Started) -> None:
        """One that is being stopped, without waiting any longer."""
        if replica.phase is Phase.STOPPING and replica.errand is not None:
            self._tools.errands.kill(replica)

    def send_away(self, replica: Started) -> None:
        """One that does not drain."""
        self._end(replica, 0.0, 0.0)

    def back(self, replica: Started, now: float) -> None:
        """It is not stopped yet, and needed after all."""
        self._tools.errands.call_off(replica)
        replica.take(Turn.UNDRAIN, now)
        replica.expected = now + SEEN
        self._hands.move(replica.key, Event.UNDRAIN, "it is needed after all")

    def _end(self, replica: Started, drain: float, rest: float) -> None:
        self._tools.errands.end(replica, drain, rest, self.patience, self._gone)

    @property
    def _longest(self) -> float:
        """Seconds for requests in flight: what the operator allows, or as long as the gateway lets a request last."""
        drain = self.settings.drain
        return float(self._tools.config.timeouts.total if drain is None else drain)

    def _rest(self, replica: Started) -> float:
        """When a model is gone, nobody counts its requests any more."""
        if self._model in self._tools.config.models:
            return 0.0
        worth = self._hands.worths(self._model).get(replica.id, Worth(in_flight=1))
        return (SHORT if self.settings.drain is None else float(self.settings.drain)) if worth.in_flight else PARTING
