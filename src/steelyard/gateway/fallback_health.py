"""Replica health as one worker sees it, for the time in which the supervisor is frozen or dead.

The supervisor probes. Without it nobody says that a replica is back, so real requests find out: a replica that refuses
connections leaves the rotation for a moment, and is then tried by one request at a time
(`Balancer.try_out`). The first answer puts it back; a failure takes it out for twice as long, at most LONGEST_PAUSE.
A replica that was loading by the last news, or has not been ready yet, may still be starting: it is tried only when
that news is old and the model has no other. Replicas that an operator drains, or that were unloaded, are left alone.
"""

from __future__ import annotations

from typing import Final

from ..core.replica import Event, Replica, State
from .carrier import Carrier

SILENT_AFTER: Final = 2.0  # seconds without a word: the supervisor speaks twice a second
FIRST_PAUSE: Final = 0.25  # seconds until a replica that failed is tried again
LONGEST_PAUSE: Final = 4.0
OUT: Final = (State.UNREACHABLE, State.LOADING, State.STARTING)
LOADED_AFTER: Final = 30.0  # seconds of silence after which one that was loading may have finished


class FallbackHealth:
    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._pauses: dict[Replica, tuple[float, float]] = {}  # until when it is out, and for how long that was

    def failed(self, replica: Replica, refused: bool, now: float) -> None:
        """A request failed there."""
        if replica.state is not State.READY or not (refused or replica.on_trial):
            return  # ejection judges replicas that accept connections and were vouched for
        tried = replica.on_trial
        self._carrier.carry_out(
            self._carrier.balancer.report(replica.id, Event.LOST, replica.context.model, now=now), now
        )
        before = self._pauses.get(replica, (0.0, 0.0))[1] if tried else 0.0
        pause = min(LONGEST_PAUSE, 2.0 * before) if before else FIRST_PAUSE
        self._pauses[replica] = (now + pause, pause)

    def look(self, now: float, silent_for: float) -> None:
        """Put on trial whatever is due; a few times a second while the supervisor is silent."""
        balancer = self._carrier.balancer
        for model in balancer.models:
            pool = balancer.pool(model)
            out = [r for r in pool.replicas.values() if r.state in OUT]
            known = [r for r in out if r.state is State.UNREACHABLE and r.has_been_ready]
            unknown = out if not pool.members and silent_for > LOADED_AFTER else known
            for replica in unknown:
                if replica.context.probed and now >= self._pauses.get(replica, (0.0, 0.0))[0]:
                    self._carrier.carry_out(balancer.try_out(replica.id, model, now=now), now)

    def end(self) -> list[Replica]:
        """The supervisor speaks again, and what it says counts. Returns what this worker took out and the supervisor
        does not know of: it should probe them."""
        out = [replica for replica in self._pauses if replica.state is State.UNREACHABLE]
        self._pauses.clear()
        return out
