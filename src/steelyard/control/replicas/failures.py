"""Failures of a model's replicas: recorded with the end of their logs, and remembered for the backoff."""

from __future__ import annotations

import logging
from typing import NamedTuple

from ..backoff import exponential_delay
from ..fleet.observer import FleetControl
from .managed_replica import ManagedReplica

FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 60.0
CRASH_LOOP_FAILURES = 3  # in a row
FORGET_AFTER_SECONDS = 600.0  # after the last failure, if nothing is on trial
MAX_LOG_LINES = 20  # of a failed replica, kept
SHOWN_LOG_LINES = 3  # in the event log and in refusals
MAX_MESSAGE_CHARACTERS = 500
SEE_ADMIN_API = " are in the gateway's log and admin API"

log = logging.getLogger("steelyard.control.replicas")


class StartFailure(NamedTuple):
    """A start that failed, or a replica that ended by itself."""

    replica: str
    reason: str
    message: str
    log_tail: tuple[str, ...]  # the end of its log


class CrashBackoff:
    """A failed start is retried after 1, 2, 4 … 60 seconds. Replicas started together fail together: that counts once.
    After a failure a single replica is tried; each success since then doubles how many may start at once."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.consecutive_failures = 0  # of starts
        self.retry_at = 0.0  # no start before then
        self.at = self.since = 0.0  # of the last failure, and of the first in the row
        self.last_failure: StartFailure | None = None

    @property
    def looping(self) -> bool:
        return self.consecutive_failures >= CRASH_LOOP_FAILURES

    def failed(self, failure: StartFailure, began: float, now: float) -> None:
        """A replica started at `began` failed to start, or ended before it had been ready for a while."""
        if self.consecutive_failures == 0 or began > self.at:
            self.consecutive_failures += 1
            self.since = self.since if self.consecutive_failures > 1 else now
            self.retry_at = now + exponential_delay(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, self.consecutive_failures)
            self.at = now
        self.last_failure = failure

    def ended(self, failure: StartFailure, now: float) -> None:
        """A proven replica ended: the next may start at once, unless others fail meanwhile."""
        if self.consecutive_failures == 0:
            self.at = self.since = now
            self.last_failure = failure

    def left_well(self, began: float) -> None:
        """A replica started at `began` was ready and was stopped as surplus: earlier failures are forgotten."""
        if self.consecutive_failures and began > self.at:
            self.clear()

    def fade(self, now: float) -> None:
        if self.last_failure is not None and now - self.at >= FORGET_AFTER_SECONDS:
            self.clear()

    def retry_in(self, now: float) -> float:
        return max(0.0, self.retry_at - now) if self.consecutive_failures else 0.0

    def starts(self, missing: int, coming: int, ready_since: int, now: float) -> int:
        """How many of the missing may start. `coming`: starting; `ready_since`: became ready since the failure."""
        if not self.consecutive_failures:
            return missing
        if now < self.retry_at:
            return 0
        return max(0, min(missing, 1 + ready_since - coming))


class MemoryShortage:
    """A start that waits for device memory; not a failure."""

    def __init__(self) -> None:
        self.message = ""  # empty: no shortage
        self.since = 0.0

    def begin(self, message: str, now: float) -> bool:
        """Returns whether it is new."""
        new = not self.message
        self.since = now if new else self.since
        self.message = message
        return new

    def end(self) -> None:
        self.message = ""


class FailureRecorder:
    def __init__(self, fleet: FleetControl) -> None:
        self.backoff = CrashBackoff()
        self.shortage = MemoryShortage()
        self._fleet = fleet

    def failed(self, replica: ManagedReplica, reason: str, message: str, began: float, former: int, now: float) -> None:
        """`former`: replicas that still run with outdated settings and should have been replaced."""
        self.backoff.failed(self._record_failure(replica, reason, _with_outdated_count(message, former)), began, now)

    def ended(self, replica: ManagedReplica, message: str, now: float) -> None:
        """After it had been ready for a while."""
        self.backoff.ended(self._record_failure(replica, "ended", message), now)

    def ended_leaving(self, replica: ManagedReplica, message: str) -> None:
        self._record_failure(replica, "ended", message)

    def no_room(self, model: str, message: str, former: int, now: float) -> None:
        message = _with_outdated_count(message, former)
        if self.shortage.begin(message, now):
            self._fleet.record("scaling", f"no replica can be started: {message}", model, level=logging.WARNING)

    def client_message(self, with_words: bool) -> str:
        """Why the last start failed; empty: none did. The log may hold secrets: clients see it only if allowed."""
        failure = self.backoff.last_failure
        if failure is None or not self.backoff.consecutive_failures:
            return ""
        said = ""
        if failure.log_tail:
            said = f"; the last lines of its log{': ' + _join_lines(failure.log_tail) if with_words else SEE_ADMIN_API}"
        return "".join(c if c.isprintable() else " " for c in f"{failure.message}{said}")[:MAX_MESSAGE_CHARACTERS]

    def _record_failure(self, replica: ManagedReplica, reason: str, message: str) -> StartFailure:
        words = _log_tail(replica)
        said = f"; the last lines of its log: {_join_lines(words)}" if words else ""
        self._fleet.record("scaling", f"{message}{said}", *replica.key, level=logging.WARNING)
        return StartFailure(replica.id, reason, message, words)


def _join_lines(words: tuple[str, ...]) -> str:
    return " | ".join(words[-SHOWN_LOG_LINES:])


def _with_outdated_count(message: str, former: int) -> str:
    return f"{message}; {former} with the settings before serve on" if former else message


def _log_tail(replica: ManagedReplica) -> tuple[str, ...]:
    try:
        return replica.runtime.log_tail(*replica.key, MAX_LOG_LINES)
    except Exception:
        log.exception("the log of %s/%s could not be read", *replica.key)
        return ()
