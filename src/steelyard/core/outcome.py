"""How an attempt on a replica ended, and what follows from it."""

from __future__ import annotations

from enum import Enum


class Retryable(Enum):
    """May the request be tried on another replica?"""

    ALWAYS = "always"  # nothing reached the replica
    IF_IDEMPOTENT = "if_idempotent"  # the replica may have begun
    NEVER = "never"  # the client has seen part of the answer, or wants none


class Outcome(Enum):
    """`failed` counts against the replica; `informative`: its duration is learned from; `answered`: if only with an
    error."""

    OK = ("ok", False, True, Retryable.NEVER)
    CLIENT_ERROR = ("client_error", False, False, Retryable.NEVER)  # 4xx: its speed is not the model's
    CANCELLED = ("cancelled", False, False, Retryable.NEVER)  # the client left
    UNREACHABLE = ("unreachable", True, False, Retryable.ALWAYS)  # no connection: nothing was sent
    OVERLOADED = ("overloaded", True, False, Retryable.ALWAYS)  # 429 or 503, before any work
    ERROR = ("error", True, False, Retryable.IF_IDEMPOTENT)  # 5xx, not yet passed on to the client
    OUT_OF_MEMORY = ("out_of_memory", True, False, Retryable.IF_IDEMPOTENT)
    CONNECTION_LOST = ("connection_lost", True, False, Retryable.IF_IDEMPOTENT)  # before the first byte
    TIMEOUT = ("timeout", True, False, Retryable.IF_IDEMPOTENT)  # no first byte in time
    DEADLINE_EXCEEDED = ("deadline_exceeded", False, False, Retryable.NEVER)  # far past its estimate it is a timeout
    CLIENT_DEADLINE_EXCEEDED = ("client_deadline_exceeded", False, False, Retryable.NEVER)  # the client's own choice
    TRUNCATED = ("truncated", True, False, Retryable.NEVER)  # connection lost after the first byte

    failed: bool
    informative: bool
    answered: bool
    retryable: Retryable

    def __init__(self, label: str, failed: bool, taught: bool, resend: Retryable) -> None:
        self.label = label
        self.failed = failed
        self.informative = taught
        self.answered = taught or label in ("client_error", "overloaded", "error", "out_of_memory")
        self.retryable = resend
