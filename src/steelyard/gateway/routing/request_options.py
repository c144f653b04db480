"""What a client asks of the gateway itself, in headers: a deadline, a priority, a session, a model."""

from __future__ import annotations

import re

from ..exchange import Exchange
from ..http.headers import MalformedMessageError

_GRPC = re.compile(rb"([0-9]{1,8})([HMSmun])")
_GRPC_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_NUMBER = re.compile(rb"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_PRIORITY = re.compile(rb"-?[0-9]{1,3}")
MAX_KEY_CHARS = 256  # of a session, or of a key in a body: keys are kept, and sent to the balancer process


def apply_request_options(exchange: Exchange, headers: dict[bytes, bytes], now: float) -> None:
    """Applies these headers to the exchange. Malformed: our own raise MalformedMessageError, others are ignored."""
    seconds = _timeout_seconds(headers)
    if seconds is not None:
        exchange.deadline = now + seconds
    first_byte = headers.get(b"x-slo-ttft-ms")
    if first_byte is not None and _NUMBER.fullmatch(first_byte) and float(first_byte):
        exchange.first_byte_by = now + float(first_byte) / 1e3
    priority = headers.get(b"steelyard-priority")
    if priority is not None:
        if not _PRIORITY.fullmatch(priority):
            raise MalformedMessageError("steelyard-priority is a whole number from -999 to 999; higher goes first.")
        exchange.priority = int(priority)
    session = headers.get(b"steelyard-session") or headers.get(b"x-session-id")
    if session:
        exchange.key = session[:MAX_KEY_CHARS].decode("latin-1")


def _timeout_seconds(headers: dict[bytes, bytes]) -> float | None:
    ours = headers.get(b"steelyard-timeout-ms")
    if ours is not None:
        if not _NUMBER.fullmatch(ours):
            raise MalformedMessageError("steelyard-timeout-ms is a number of milliseconds, for example 250.")
        return float(ours) / 1e3
    grpc = headers.get(b"grpc-timeout")
    match = _GRPC.fullmatch(grpc) if grpc is not None else None
    if match is not None:
        return int(match[1]) * _GRPC_UNITS[match[2]]
    envoy = headers.get(b"x-envoy-expected-rq-timeout-ms")
    if envoy is not None and _NUMBER.fullmatch(envoy):
        return float(envoy) / 1e3 or None  # Envoy says 0 for "no limit"
    return None
