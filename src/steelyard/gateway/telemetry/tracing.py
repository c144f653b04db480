"""Spans of requests, as the proxy tells of them. Nothing here needs OpenTelemetry; who sends them is in otel.py."""

from __future__ import annotations

from typing import Final

from ..proxy.exchange import Exchange

CLOSE_SECONDS: Final = 2.0  # seconds, at the end, for the last spans


class RequestSpan:
    """One request that is traced: a span for it, one for its wait, one for each attempt."""

    def dispatched(self, exchange: Exchange, replica: str, now: float, hedged: bool) -> None:
        """An attempt begins; its head is not written yet."""
        raise NotImplementedError

    def attempt_lost(self, replica: str, why: str, now: float, status: int = 0) -> None:
        """An attempt ended without an answer for the client; `status`: what it was, if it was one."""
        raise NotImplementedError

    def finished(self, exchange: Exchange, verdict: str, reason: str, now: float) -> None:
        """The request is over."""
        raise NotImplementedError


class Tracer:
    dropped = 0  # spans that could not be sent, since the worker began
    sample = 0.0  # of the requests that come without a trace, to be traced

    def begin(self, exchange: Exchange) -> None:
        """The head of a request has come: give it a span. If it comes with a trace of its caller's: perhaps."""
        raise NotImplementedError

    def close(self, patience: float = CLOSE_SECONDS) -> None:
        """Send what is left; waits at most `patience` seconds for it."""
        raise NotImplementedError
