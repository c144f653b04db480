"""Takes replicas out of rotation and brings them back, as the detector and probation found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..replica import Event, Replica, State
from .ejection_reason import EjectionReason

if TYPE_CHECKING:
    from ..pool import Pool
    from ..request import Attempt
    from ..review import Review, Steps

SilentCallback = Callable[[Replica], None]


class Ejector:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def eject(self, replica: Replica, reason: EjectionReason, now: float) -> None:
        """For longer each time."""
        self.eject_for(replica, self._pool.outliers.ejection_seconds(replica), reason, now)

    def eject_for(self, replica: Replica, seconds: float, reason: EjectionReason, now: float) -> None:
        self._pool.ejected += 1
        replica.ejection_count += 1
        replica.ejection = reason
        replica.ejected_at = now
        replica.ejected_until = now + seconds
        self._pool.apply_event(replica, Event.EJECT, now)

    def restore_after_success(self, attempt: Attempt, now: float) -> None:
        """An ejected replica, used in a panic, answered well: it is back. If that ends the panic, so are all that were
        ejected for failures, tried by one request first: they shared a cause. An ejection for speed stands."""
        replica, pool = attempt.replica, self._pool
        if attempt.started < replica.ejected_at or (replica.ejection is not None and replica.ejection.rule.is_speed):
            return
        self._restore_early(replica, now)
        pool.probation.end(replica)
        if pool.panicking:
            return
        for other in self._ejected():
            if other.ejection is not None and not other.ejection.rule.is_speed:
                self._restore_early(other, now)

    def _restore_early(self, replica: Replica, now: float) -> None:
        replica.ejection_backoff = max(0, replica.ejection_backoff - 1)
        self._pool.apply_event(replica, Event.RESTORE, now, in_use=True)

    def review(self, review: Review, on_silent: SilentCallback | None) -> Steps:
        """Restores what was out long enough, then ejects the silent (told to `on_silent`) and the outliers."""
        pool = self._pool
        ejected = self._ejected()
        for replica in ejected:
            if replica.state is State.EJECTED and review.now >= replica.ejected_until:
                pool.apply_event(replica, Event.RESTORE, review.now)
                yield
        silent = yield from pool.probation.review(review)
        for replica, reason in silent:
            if replica.state is State.READY:
                self.eject(replica, reason, review.now)
                if on_silent is not None:
                    on_silent(replica)
        out = sum(r.state is State.EJECTED for r in ejected)
        outliers = yield from pool.outliers.review(review, out)
        for replica, reason in outliers:
            if replica.state is State.READY:
                self.eject(replica, reason, review.now)

    def _ejected(self) -> list[Replica]:
        return sorted(self._pool.ejected_replicas, key=lambda replica: replica.order)
