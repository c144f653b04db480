"""Replica health as one worker sees it, while the supervisor, which probes, is frozen or dead.

Real requests find out: a replica that refuses connections leaves the rotation for a moment, and is then tried by one
request at a time (`Balancer.admit_unverified`). The first answer puts it back; a failure doubles the pause, up to
MAX_RETRY_SECONDS. A replica that was loading, or never ready, may still be starting: it is tried only when that news is
old and the model has no other. Drained and unloaded replicas are left alone.
"""

from __future__ import annotations

from typing import Final

from ...core.replica import Event, Replica, State
from ..proxy.dispatch_hooks import Driver

FIRST_RETRY_SECONDS: Final = 0.25
MAX_RETRY_SECONDS: Final = 4.0
UNAVAILABLE_STATES: Final = (State.UNREACHABLE, State.LOADING, State.STARTING)
ASSUME_LOADED_SECONDS: Final = 30.0  # of silence, after which one that was loading may be ready


class PassiveHealth:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._retries: dict[Replica, tuple[float, float]] = {}  # until when, and the pause

    def request_failed(self, replica: Replica, refused: bool, now: float) -> None:
        if replica.state is not State.READY or not (refused or replica.unverified):
            return  # others are a matter of ejection
        tried = replica.unverified
        self._driver.execute(self._driver.balancer.report(replica.id, Event.LOST, replica.context.model, now=now), now)
        before = self._retries.get(replica, (0.0, 0.0))[1] if tried else 0.0
        pause = min(MAX_RETRY_SECONDS, 2.0 * before) if before else FIRST_RETRY_SECONDS
        self._retries[replica] = (now + pause, pause)

    def tick(self, now: float, silent_for: float) -> None:
        """Puts on trial what is due; a few times a second while the supervisor is silent."""
        balancer = self._driver.balancer
        for model in balancer.models:
            pool = balancer.pool(model)
            out = [r for r in pool.replicas.values() if r.state in UNAVAILABLE_STATES]
            known = [r for r in out if r.state is State.UNREACHABLE and r.has_been_ready]
            unknown = out if not pool.members and silent_for > ASSUME_LOADED_SECONDS else known
            for replica in unknown:
                if replica.context.probed and now >= self._retries.get(replica, (0.0, 0.0))[0]:
                    self._driver.execute(balancer.admit_unverified(replica.id, model, now=now), now)

    def end(self) -> list[Replica]:
        """The supervisor speaks again. Returns what this worker took out: it should probe them."""
        out = [replica for replica in self._retries if replica.state is State.UNREACHABLE]
        self._retries.clear()
        return out
