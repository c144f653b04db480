"""Why a request is refused."""

from __future__ import annotations

from enum import Enum

from .slo.verdicts import CLIENT, OVERLOAD, REPLICA


class Reason(Enum):
    """Why a request was refused: a stable code, an HTTP status, a sentence for the user, and whose fault it is."""

    UNKNOWN_MODEL = ("unknown_model", 404, "No such model is served here.", CLIENT)
    NO_REPLICA = ("no_replica", 503, "The model has no replica that is ready; try again later.", REPLICA)
    START_FAILED = ("start_failed", 503, "A replica of the model could not be started; try again later.", REPLICA)
    QUEUE_FULL = ("queue_full", 503, "Too many requests are waiting for this model; try again later.", OVERLOAD)
    TENANT_SHARE = (
        "tenant_share",
        429,
        "The waiting line is full and this tenant holds its fair share of it; slow down.",
        OVERLOAD,
    )
    PREEMPTED = (
        "preempted",
        503,
        "More urgent requests took this one's place in the full waiting line; try again later.",
        OVERLOAD,
    )
    DEADLINE = (
        "deadline",
        503,
        "No replica could finish this before its deadline; try again later or allow more time.",
        OVERLOAD,
    )
    TOO_LARGE = ("too_large", 413, "The request needs more memory than any device of this model has for one.", CLIENT)
    INSUFFICIENT_MEMORY = (
        "insufficient_memory",
        503,
        "No device had room for this request in the time it may wait; try again later.",
        OVERLOAD,
    )
    QUEUE_TIMEOUT = (
        "queue_timeout",
        503,
        "No replica became free in the time a request may wait; try again later.",
        OVERLOAD,
    )

    def __init__(self, code: str, status: int, sentence: str, fault: str) -> None:
        self.code = code
        self.status = status
        self.sentence = sentence
        self.fault = fault
