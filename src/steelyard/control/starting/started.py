"""One replica that was started, or adopted, and what is known of it."""

from __future__ import annotations

import asyncio

from ...config import ReplicaConfig
from ...core.replica import State
from ...runtimes import Instance, Runtime
from ...runtimes import Phase as RunPhase
from ..probing.target import Key
from .life import ALIVE, Phase, Turn, next_phase

UP = (State.LOADING, State.READY, State.EJECTED, State.DRAINING)  # the ledger counts its bytes
LOST = 30.0  # seconds out of reach after which the ledger does so no more; see devices/holder.py
LATE, SOONEST = 0.1, 0.1  # part of its age, seconds
UNSURE = 1.0  # part of its age, where starts were never measured: half of it may be over
STEADY = 30.0  # seconds: one that was ready for so long did not fail in its start
# Seconds: one that was ready and has not answered for so long will not any more. One that answers and is not ready may
# be loading anew, and one that was never ready may open its port late: they have `start_timeout`.
HUNG = 60.0


class Started:
    def __init__(self, instance: Instance, runtime: Runtime, number: int, now: float, *, adopted: bool = False) -> None:
        self.instance = instance
        self.runtime = runtime
        self.number = number
        self.adopted = adopted
        self.phase = Phase.STARTING if adopted else Phase.ORDERED
        self.began = now - (instance.age if adopted else 0.0)
        self.since = now  # in this phase
        self.was_ready = False  # ever
        self.proven = False  # it was ready for a while, so its settings are good
        self.drained_ready = False  # when it was told to leave
        self.member = False  # the fleet knows it
        self.paid = now  # its time is accounted for until here
        self.expected: float | None = None  # when it should be ready
        self.errand: asyncio.Task[None] | None = None  # its start, or its end
        self._up = False
        self._lost: float | None = None
        self._silent: float | None = None  # it does not answer, since then

    @property
    def key(self) -> Key:
        return self.instance.model, self.instance.id

    @property
    def id(self) -> str:
        return self.instance.id

    @property
    def alive(self) -> bool:
        return self.phase in ALIVE

    @property
    def coming(self) -> bool:
        """Being started, and never ready before."""
        return self.phase in (Phase.ORDERED, Phase.STARTING) and not self.was_ready

    @property
    def has_ended(self) -> bool:
        return self.instance.phase is RunPhase.ENDED

    @property
    def settings(self) -> ReplicaConfig:
        return ReplicaConfig(url=self.instance.url, id=self.id, device=self.instance.device)

    def take(self, turn: Turn, now: float) -> None:
        before, self.phase = self.phase, next_phase(self.phase, turn)
        self.since = now
        if turn is Turn.DRAIN:
            self.drained_ready = before is Phase.READY
        if turn is Turn.SEEN_READY:
            self.was_ready = True
        if turn in (Turn.SEEN_READY, Turn.FELL):
            self.expected = None

    @property
    def on_trial(self) -> bool:
        return self.alive and not self.proven

    def is_steady(self, now: float) -> bool:
        return self.phase is Phase.READY and now - self.since >= STEADY

    def is_overdue(self, now: float, timeout: float) -> bool:
        return self.phase in (Phase.ORDERED, Phase.STARTING) and now - self.since >= timeout

    def is_hung(self, now: float) -> bool:
        was_ready = self.was_ready and self.phase is Phase.STARTING
        return was_ready and self._silent is not None and now - self._silent >= HUNG

    def ready_in(self, now: float, measured: bool = True) -> float | None:
        """Seconds; one that is late is later by a part of what it took so far. None: nobody expects it."""
        if self.expected is None or self.phase not in (Phase.ORDERED, Phase.STARTING):
            return None
        if not measured and now > self.expected:
            return max(UNSURE * (now - self.since), SOONEST)
        return max(self.expected - now, LATE * (now - self.since), SOONEST)

    def stood(self, state: State, now: float) -> None:
        """In the eyes of the fleet, from now on."""
        if state is not State.UNREACHABLE:
            self._silent = None
        elif self._silent is None:
            self._silent = now
        if state in UP:
            self._up, self._lost = True, None
        elif self._lost is None:
            self._lost = now

    def is_counted(self, now: float) -> bool:
        """Does the ledger count what it holds?"""
        return self._up and (self._lost is None or now - self._lost < LOST)
