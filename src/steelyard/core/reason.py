"""Why a request is refused."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """Why a request was refused: a stable code, an HTTP status, and a sentence for the user."""

    UNKNOWN_MODEL = ("unknown_model", 404, "No such model is served here.")
    NO_REPLICA = ("no_replica", 503, "The model has no replica that is ready; try again later.")
    QUEUE_FULL = ("queue_full", 503, "Too many requests are waiting for this model; try again later.")
    TENANT_SHARE = (
        "tenant_share",
        429,
        "The waiting line is full and this tenant holds its fair share of it; slow down.",
    )
    DISPLACED = (
        "displaced",
        503,
        "More urgent requests took this one's place in the full waiting line; try again later.",
    )
    DEADLINE = (
        "deadline",
        503,
        "No replica could finish this before its deadline; try again later or allow more time.",
    )
    TOO_LARGE = ("too_large", 413, "The request needs more memory than any device of this model has for one.")
    MEMORY = ("memory", 503, "No device had room for this request in the time it may wait; try again later.")
    WAITED = ("waited", 503, "No replica became free in the time a request may wait; try again later.")

    def __init__(self, code: str, status: int, sentence: str) -> None:
        self.code = code
        self.status = status
        self.sentence = sentence
