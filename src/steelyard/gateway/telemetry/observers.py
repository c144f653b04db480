"""Observers of single requests, for traces (otel.py) and the decision log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...core.replica import Replica
    from ..exchange import Exchange
    from .decision_log import DecisionLog

CLOSE_SECONDS: Final = 2.0  # at the end, for the last spans


class RequestObserver:
    def not_placed(self, exchange: Exchange, now: float) -> None:
        """The request was not dispatched when it came."""

    def dispatched(self, exchange: Exchange, replica: Replica, now: float, hedged: bool) -> None:
        """An attempt begins. Its head is not written yet."""

    def attempt_lost(self, exchange: Exchange, replica: Replica, how: str, now: float, status: int = 0) -> None:
        """An attempt ended without a response for the client. `status`: of the response it brought, if any."""

    def finished(self, exchange: Exchange, outcome: str, reason: str, now: float) -> None:
        """The request is over, and its SLO verdict is set."""


NO_OBSERVER: Final = RequestObserver()


class DecisionObserver(RequestObserver):
    """Of all sampled requests. A reload gives it another log, or none."""

    def __init__(self) -> None:
        self.log: RequestObserver | DecisionLog = NO_OBSERVER

    def not_placed(self, exchange: Exchange, now: float) -> None:
        self.log.not_placed(exchange, now)

    def dispatched(self, exchange: Exchange, replica: Replica, now: float, hedged: bool) -> None:
        self.log.dispatched(exchange, replica, now, hedged)

    def attempt_lost(self, exchange: Exchange, replica: Replica, how: str, now: float, status: int = 0) -> None:
        self.log.attempt_lost(exchange, replica, how, now)

    def finished(self, exchange: Exchange, outcome: str, reason: str, now: float) -> None:
        self.log.finished(exchange, outcome, reason, now)


class Tracer:
    """Where tracing is off."""

    dropped = 0  # spans that could not be sent, since the worker began
    sample = 0.0  # share of the requests without a trace that are traced

    def begin(self, exchange: Exchange) -> None:
        """The head of a request has come: it may get a span."""

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Sends what is left, in at most `timeout` seconds."""
