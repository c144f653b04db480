"""Failures of a model's replicas: recorded with the end of their logs, and remembered for the backoff."""

from __future__ import annotations

import logging

from ..fleet.observer import FleetControl
from .crash_backoff import CrashBackoff, MemoryShortage, StartFailure
from .managed_replica import ManagedReplica

MAX_LOG_LINES = 20  # of a failed replica, kept
SHOWN_LOG_LINES = 3  # in the event log and in refusals
MAX_MESSAGE_CHARACTERS = 500
SEE_ADMIN_API = " are in the gateway's log and admin API"

log = logging.getLogger("steelyard.control.replicas")


class FailureRecorder:
    def __init__(self, fleet: FleetControl) -> None:
        self.backoff = CrashBackoff()
        self.shortage = MemoryShortage()
        self._fleet = fleet

    def failed(self, replica: ManagedReplica, reason: str, why: str, began: float, former: int, now: float) -> None:
        """`former`: replicas that still run with outdated settings and should have been replaced."""
        self.backoff.failed(self._record_failure(replica, reason, _with_outdated_count(why, former)), began, now)

    def ended(self, replica: ManagedReplica, why: str, now: float) -> None:
        """After it had been ready for a while."""
        self.backoff.ended(self._record_failure(replica, "ended", why), now)

    def ended_leaving(self, replica: ManagedReplica, why: str) -> None:
        self._record_failure(replica, "ended", why)

    def no_room(self, model: str, why: str, former: int, now: float) -> None:
        why = _with_outdated_count(why, former)
        if self.shortage.begin(why, now):
            self._fleet.record("scaling", f"no replica can be started: {why}", model, level=logging.WARNING)

    def client_message(self, with_words: bool) -> str:
        """Why the last start failed; empty: none did. The log may hold secrets: clients see it only if allowed."""
        failure = self.backoff.last_failure
        if failure is None or not self.backoff.consecutive_failures:
            return ""
        said = ""
        if failure.log_tail:
            said = f"; its last words{': ' + _join_lines(failure.log_tail) if with_words else SEE_ADMIN_API}"
        return "".join(c if c.isprintable() else " " for c in f"{failure.why}{said}")[:MAX_MESSAGE_CHARACTERS]

    def _record_failure(self, replica: ManagedReplica, reason: str, why: str) -> StartFailure:
        words = _log_tail(replica)
        said = f"; its last words: {_join_lines(words)}" if words else ""
        self._fleet.record("scaling", f"{why}{said}", *replica.key, level=logging.WARNING)
        return StartFailure(replica.id, reason, why, words)


def _join_lines(words: tuple[str, ...]) -> str:
    return " | ".join(words[-SHOWN_LOG_LINES:])


def _with_outdated_count(why: str, former: int) -> str:
    return f"{why}; {former} with the settings before serve on" if former else why


def _log_tail(replica: ManagedReplica) -> tuple[str, ...]:
    try:
        return replica.runtime.log_tail(*replica.key, MAX_LOG_LINES)
    except Exception:
        log.exception("the last words of %s/%s could not be read", *replica.key)
        return ()
