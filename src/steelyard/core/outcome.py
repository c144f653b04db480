"""How an attempt on a replica ended, and what follows from it."""

from __future__ import annotations

from enum import Enum


class Resend(Enum):
    """May the request be tried on another replica after this?"""

    ALWAYS = "nothing reached the replica"
    IF_IDEMPOTENT = "the replica may have begun"
    NEVER = "the client has seen part of the answer, or wants none"


class Outcome(Enum):
    """One of these ends every attempt. `failed` counts against the replica; `taught`: its duration means something;
    `answered`: the replica did answer, if only with an error."""

    OK = ("ok", False, True, Resend.NEVER)
    CLIENT_ERROR = (
        "client_error",
        False,
        False,
        Resend.NEVER,
    )  # 4xx: the replica is fine, its speed is not the model's
    CANCELLED = ("cancelled", False, False, Resend.NEVER)  # the client left
    UNREACHABLE = ("unreachable", True, False, Resend.ALWAYS)  # no connection: nothing was sent
    OVERLOADED = ("overloaded", True, False, Resend.ALWAYS)  # the replica itself declined (429, 503) before any work
    ERROR = ("error", True, False, Resend.IF_IDEMPOTENT)  # 5xx, not yet passed on to the client
    OUT_OF_MEMORY = ("out_of_memory", True, False, Resend.IF_IDEMPOTENT)  # the device had no room for it after all
    BROKEN = ("broken", True, False, Resend.IF_IDEMPOTENT)  # connection lost before the first byte of the answer
    TIMEOUT = ("timeout", True, False, Resend.IF_IDEMPOTENT)  # no first byte in time
    LATE = ("late", False, False, Resend.NEVER)  # the deadline came first; far past its estimate it counts as a timeout
    IMPATIENT = ("impatient", False, False, Resend.NEVER)  # the same, of a deadline the client chose: no failure
    TRUNCATED = ("truncated", True, False, Resend.NEVER)  # connection lost after the first byte went to the client

    failed: bool
    taught: bool
    answered: bool
    resend: Resend

    def __init__(self, label: str, failed: bool, taught: bool, resend: Resend) -> None:
        self.label = label
        self.failed = failed
        self.taught = taught
        self.answered = taught or label in ("client_error", "overloaded", "error", "out_of_memory")
        self.resend = resend
