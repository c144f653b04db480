"""Tracing as the proxy sees it. Nothing here needs OpenTelemetry; otel.py sends spans."""

from __future__ import annotations

from typing import Final

from ..proxy.exchange import Exchange

CLOSE_SECONDS: Final = 2.0  # seconds, at the end, for the last spans


class Tracer:
    """Traces nothing: what there is where tracing is off."""

    dropped = 0  # spans that could not be sent, since the worker began
    sample = 0.0  # of the requests that come without a trace, to be traced

    def begin(self, exchange: Exchange) -> None:
        """The head of a request has come: give it a span. If it comes with a trace of its caller's: perhaps."""

    def close(self, patience: float = CLOSE_SECONDS) -> None:
        """Send what is left; waits at most `patience` seconds for it."""
