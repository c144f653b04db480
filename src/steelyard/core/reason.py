"""Why a request is refused: a stable code (the name), HTTP status, sentence for the user, and whose fault it is."""

from __future__ import annotations

from enum import Enum

from .slo.verdicts import CLIENT, GATEWAY, OVERLOAD, REPLICA


class Reason(Enum):
    UNKNOWN_MODEL = (404, "No such model is served here.", CLIENT)
    NO_REPLICA = (503, "The model has no replica that is ready; try again later.", REPLICA)
    START_FAILED = (503, "A replica of the model could not be started; try again later.", REPLICA)
    QUEUE_FULL = (503, "Too many requests are waiting for this model; try again later.", OVERLOAD)
    TENANT_SHARE = (429, "The queue is full and this tenant has its fair share of it; slow down.", OVERLOAD)
    PREEMPTED = (503, "Requests of higher priority took this one's place in the full queue; try again later.", OVERLOAD)
    DEADLINE = (503, "No replica could finish this before its deadline; try again later or allow more time.", OVERLOAD)
    TOO_LARGE = (413, "The request needs more memory than any device of this model has for one.", CLIENT)
    INSUFFICIENT_MEMORY = (
        503,
        "No device had room for this request in the time it may wait; try again later.",
        OVERLOAD,
    )
    POLICY_FAILED = (
        500,
        "The load balancing policy of this model raised an error; see the log of the gateway.",
        GATEWAY,
    )
    QUEUE_TIMEOUT = (503, "No replica became free in the time a request may wait; try again later.", OVERLOAD)

    def __init__(self, status: int, sentence: str, fault: str) -> None:
        self.code = self._name_.lower()
        self.status = status
        self.sentence = sentence
        self.fault = fault
