"""How an attempt on a replica ended, and what follows from it."""

from __future__ import annotations

from enum import Enum


class Retryable(Enum):
    """May the request be tried on another replica after this?"""

    ALWAYS = "nothing reached the replica"
    IF_IDEMPOTENT = "the replica may have begun"
    NEVER = "the client has seen part of the answer, or wants none"


class Outcome(Enum):
    """One of these ends every attempt. `failed` counts against the replica; `taught`: its duration means something;
    `answered`: the replica did answer, if only with an error."""

    OK = ("ok", False, True, Retryable.NEVER)
    CLIENT_ERROR = (
        "client_error",
        False,
        False,
        Retryable.NEVER,
    )  # 4xx: the replica is fine, its speed is not the model's
    CANCELLED = ("cancelled", False, False, Retryable.NEVER)  # the client left
    UNREACHABLE = ("unreachable", True, False, Retryable.ALWAYS)  # no connection: nothing was sent
    OVERLOADED = ("overloaded", True, False, Retryable.ALWAYS)  # the replica itself declined (429, 503) before any work
    ERROR = ("error", True, False, Retryable.IF_IDEMPOTENT)  # 5xx, not yet passed on to the client
    OUT_OF_MEMORY = ("out_of_memory", True, False, Retryable.IF_IDEMPOTENT)  # the device had no room for it after all
    CONNECTION_LOST = (
        "connection_lost",
        True,
        False,
        Retryable.IF_IDEMPOTENT,
    )  # connection lost before the first byte of the answer
    TIMEOUT = ("timeout", True, False, Retryable.IF_IDEMPOTENT)  # no first byte in time
    DEADLINE_EXCEEDED = (
        "deadline_exceeded",
        False,
        False,
        Retryable.NEVER,
    )  # the deadline came first; far past its estimate it counts as a timeout
    CLIENT_DEADLINE_EXCEEDED = (
        "client_deadline_exceeded",
        False,
        False,
        Retryable.NEVER,
    )  # the same, of a deadline the client chose: no failure
    TRUNCATED = ("truncated", True, False, Retryable.NEVER)  # connection lost after the first byte went to the client

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
